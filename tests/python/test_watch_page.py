"""The report in a real browser: it draws, hovering shows values, nothing complains, nothing is requested."""

import json
import shutil
import subprocess
import sys
import time
import urllib.request

import pytest

pytestmark = pytest.mark.heavy
BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Page:
    """A tab of a browser without a window, through its own debugging protocol."""

    def __init__(self, folder, width: int, dark: bool) -> None:
        websocket = pytest.importorskip("websocket", reason="websocket-client is not installed")
        flags = (
            "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-sync "
            "--disable-background-networking --disable-component-update "
            "--remote-debugging-port=0 --remote-allow-origins=*"
        )
        self.process = subprocess.Popen(
            [BROWSER, *flags.split(), f"--user-data-dir={folder / 'profile'}", "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        port_file = folder / "profile" / "DevToolsActivePort"
        end = time.monotonic() + 60
        while not (port_file.exists() and port_file.read_text()):
            assert time.monotonic() < end, "the browser did not start"
            time.sleep(0.1)
        port = port_file.read_text().split()[0]
        tabs = json.load(urllib.request.urlopen(f"http://127.0.0.1:{port}/json"))
        address = next(tab["webSocketDebuggerUrl"] for tab in tabs if tab["type"] == "page")
        self.socket = websocket.create_connection(address, timeout=60)
        self.number = 0
        self.events: list[dict] = []
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")
        screen = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        self.ask("Emulation.setDeviceMetricsOverride", **screen)
        scheme = "dark" if dark else "light"
        self.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def ask(self, method: str, **parameters):
        self.number += 1
        self.socket.send(json.dumps({"id": self.number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self.socket.recv())
            if message.get("id") == self.number:
                assert "error" not in message, message
                return message["result"]
            self.events.append(message)

    def run(self, script: str):
        answer = self.ask("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def open(self, path, drawn: str = "!!document.querySelector('#chart path')") -> None:
        self.ask("Page.navigate", url=path.as_uri())
        end = time.monotonic() + 30
        while not self.run(f"document.readyState === 'complete' && {drawn}"):
            assert time.monotonic() < end, "nothing was drawn"
            time.sleep(0.1)

    def mouse(self, kind: str, x: float, y: float, button: str = "none") -> None:
        self.ask(
            "Input.dispatchMouseEvent", type=kind, x=x, y=y, button=button, clickCount=int(button != "none")
        )

    def quiet(self) -> None:
        """Nothing has complained, and nothing was asked of anybody."""
        complaining = ("Log.entryAdded", "Runtime.exceptionThrown", "Runtime.consoleAPICalled")
        complaints = [event for event in self.events if event["method"] in complaining]
        assert not complaints, complaints
        requests = [
            event["params"] for event in self.events if event["method"] == "Network.requestWillBeSent"
        ]
        asked = [request["request"]["url"] for request in requests]
        assert {url.split(":")[0] for url in asked} <= {"file", "data", "about"}, asked
        assert sum(url.startswith("file:") for url in asked) == 1, asked

    def close(self) -> None:
        self.socket.close()
        self.process.terminate()
        self.process.wait()


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    # A name that would break out of a page that does not escape it.
    data = folder / "</script><img src=x onerror=alert(1)>.bin".replace("/", "\N{FRACTION SLASH}")
    data.write_bytes(bytes(16 << 20))
    # In a process of its own: what other tests left running in this one would be in the report.
    leak = """if True:
        import sys, time, lowtide
        held = []
        with lowtide.watch(files=[sys.argv[1]]) as w:
            for _ in range(130):
                held.append(bytearray(1 << 20))
                time.sleep(0.02)
        w.report.to_html("mem.html")
        print(w.report.sentence)
    """
    done = subprocess.run([sys.executable, "-c", leak, data], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder / "mem.html", done.stdout.strip()


@pytest.fixture(params=[(1100, False), (1100, True), (390, False)], ids=["light", "dark", "phone"])
def page(request, report, tmp_path):
    if BROWSER is None:
        pytest.skip("no Chromium on this machine")
    page = Page(tmp_path, *request.param)
    yield page
    page.close()


def test_the_page_draws_answers_and_asks_for_nothing(page, report):
    path, sentence = report
    page.open(path)
    assert page.run("document.querySelector('h1').textContent") == "leak"
    assert sentence in page.run("document.body.innerText")
    assert page.run("document.querySelectorAll('#chart path[data-kind=anon]').length") == 1
    assert page.run("document.documentElement.scrollWidth <= window.innerWidth"), "wider than the screen"

    page.run("document.getElementById('plot').scrollIntoView({block: 'center'})")
    box = page.run("document.getElementById('plot').getBoundingClientRect().toJSON()")
    x, y, width = box["x"], box["y"], box["width"]
    page.mouse("mouseMoved", x + width * 0.8, y + 100)
    assert page.run("!document.getElementById('tip').hidden")
    tip = page.run("document.getElementById('tip').innerText")
    assert "anonymous" in tip, tip
    assert "MiB" in tip, tip
    page.mouse("mouseMoved", x + width * 0.3, y + 100)
    assert page.run("document.getElementById('tip').innerText") != tip, "another moment, other values"

    # Drag to zoom, then back.
    page.mouse("mousePressed", x + width * 0.4, y + 100, "left")
    page.mouse("mouseMoved", x + width * 0.6, y + 100, "left")
    page.mouse("mouseReleased", x + width * 0.6, y + 100, "left")
    assert page.run("to - from < whole / 2")
    page.run("document.getElementById('reset').click()")
    assert page.run("from === 0 && to === whole")

    # The keyboard and a screen reader: a slider that says its value, and tables with captions.
    page.run("document.getElementById('plot').focus()")
    page.ask("Input.dispatchKeyEvent", type="keyDown", key="ArrowRight", code="ArrowRight")
    said = page.run("document.getElementById('plot').getAttribute('aria-valuetext')")
    assert "anonymous" in said, said
    assert page.run("[...document.querySelectorAll('table')].every(table => table.caption.textContent)")
    assert page.run("document.querySelectorAll('#processes tbody tr').length") >= 1
    assert "<img" not in page.run("document.getElementById('files').innerHTML"), "a name became markup"

    page.quiet()

"""The chart of ``lowtide watch`` on a terminal: the output of the command stays whole.

A terminal in Python (pyte) for what does not need a real one, tmux for resizing and for programs that take
the whole screen.
"""

import fcntl
import os
import pty
import re
import select
import shlex
import shutil
import struct
import subprocess
import sys
import termios
import time

import pytest

WATCH = [sys.executable, "-m", "lowtide", "watch"]
#: Prints numbered lines for as long as it takes.
LINES = "i=0; while [ $i -lt {count} ]; do i=$((i+1)); echo line $i; sleep 0.03; done"
CHART = re.compile("[░▒▓█▁▂▃▄▅▆▇┄─]|so far|lowtide watch")


def lines(count: int) -> list[str]:
    return [f"line {number}" for number in range(1, count + 1)]


def check(text: list[str], count: int) -> None:
    """All lines are there once, in order, nothing among them; then comes what is said at the end."""
    kept = [line.rstrip() for line in text]
    begin, end = kept.index("line 1"), kept.index(f"line {count}")
    assert kept[begin : end + 1] == lines(count)
    assert not any(CHART.search(line) for line in kept[:begin])
    rest = "\n".join(kept[end + 1 :])
    assert "so far" not in rest, rest
    assert "verdict: flat" in rest or "verdict: unknown" in rest, rest


class Screen:
    """A program on a terminal in Python."""

    def __init__(self, command: list[str], columns: int, rows: int) -> None:
        pyte = pytest.importorskip("pyte")
        self.screen = pyte.HistoryScreen(columns, rows, history=10_000, ratio=0.5)
        self.stream = pyte.ByteStream(self.screen)
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.child = subprocess.Popen(
            command,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
            env={**os.environ, "TERM": "xterm-256color"},
        )
        os.close(slave)

    def read(self, seconds: float) -> bool:
        """Shows what comes in; whether more may come."""
        if not select.select([self.master], [], [], seconds)[0]:
            return True
        try:
            data = os.read(self.master, 1 << 16)
        except OSError:
            return False
        self.stream.feed(data)
        return bool(data)

    def text(self) -> list[str]:
        rows = [*self.screen.history.top, *(self.screen.buffer[row] for row in range(self.screen.lines))]
        return ["".join(row[column].data for column in range(self.screen.columns)).rstrip() for row in rows]

    def shown(self) -> list[str]:
        return [line.rstrip() for line in self.screen.display]

    def end(self) -> None:
        while self.read(120):
            pass
        os.close(self.master)
        assert self.child.wait(timeout=60) == 0


@pytest.mark.parametrize(("columns", "rows"), [(80, 24), (132, 50)])
def test_lines_scroll_above_the_chart_and_none_is_lost(columns, rows):
    screen = Screen([*WATCH, "sh", "-c", LINES.format(count=110)], columns, rows)
    docked = 0
    while screen.read(120):
        shown = screen.shown()
        chart = [row for row, line in enumerate(shown) if "lowtide watch ·" in line]
        if chart:
            docked += 1
            assert chart == [rows - 12]
            above = [line for line in shown[: rows - 12] if line]
            # The last one may be on its way.
            assert all(line.startswith("line ") or "line ".startswith(line) for line in above), above
    screen.end()
    assert docked > 5
    check(screen.text(), 110)
    assert any(line.endswith("peak") for line in screen.shown()), "the last legend has the peaks"


@pytest.mark.heavy
def test_a_former_verdict_does_not_stay_below_a_shorter_one():
    # First a leak, which takes two lines at this width, then none, which takes one.
    program = (
        "import time\nheld = []\nfor step in range(1100):\n"
        "    if step < 250: held.append(bytearray(1 << 20))\n    time.sleep(0.01)\n"
    )
    screen = Screen([*WATCH, sys.executable, "-c", program], 118, 30)
    seen = {}
    while screen.read(120):
        shown = screen.shown()
        if shown[28].startswith("so far "):
            seen[shown[28].split()[2].strip(":")] = shown[28:]
    screen.end()
    assert "RssAnon" in seen["leak"][0], seen
    assert seen["leak"][1], seen
    assert len(seen) > 1, seen
    assert "kept growing" not in seen["flat"][1], seen


@pytest.mark.parametrize("options", [["--no-chart"], ["--quiet"]])
def test_without_a_chart_the_screen_is_the_commands(options):
    screen = Screen([*WATCH, *options, "sh", "-c", LINES.format(count=60)], 80, 24)
    while screen.read(120):
        assert not any(CHART.search(line) for line in screen.shown())
    screen.end()
    text = [line for line in screen.text() if line]
    assert text[:60] == lines(60)
    assert bool(text[60:]) == (options == ["--no-chart"])


class Tmux:
    """A window of a tmux of our own."""

    def __init__(self, folder, columns: int, rows: int, command: str) -> None:
        if shutil.which("tmux") is None:
            pytest.skip("tmux is not installed: there is no real terminal to resize")
        self.socket = folder / "tmux"
        config = folder / "tmux.conf"
        config.write_text("set -g history-limit 10000\nset -g remain-on-exit on\nset -g status off\n")
        size = ["-x", str(columns), "-y", str(rows)]
        self.ask("-f", config, "new-session", "-d", *size, command)

    def ask(self, *words: object) -> str:
        command = ["tmux", "-S", str(self.socket), *map(str, words)]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout

    def resize(self, columns: int, rows: int) -> None:
        self.ask("resize-window", "-x", columns, "-y", rows)

    def shown(self) -> list[str]:
        return self.ask("capture-pane", "-p").splitlines()

    def text(self) -> list[str]:
        return self.ask("capture-pane", "-p", "-J", "-S", "-").splitlines()

    def keys(self, *keys: str) -> None:
        self.ask("send-keys", *keys)

    def wait(self, text: str, seconds: float = 60) -> list[str]:
        end = time.monotonic() + seconds
        while not any(text in line for line in self.shown()):
            assert time.monotonic() < end, f"no {text!r} in\n" + "\n".join(self.shown())
            time.sleep(0.05)
        return self.shown()

    def close(self) -> None:
        subprocess.run(["tmux", "-S", str(self.socket), "kill-server"], capture_output=True)


@pytest.fixture
def tmux(tmp_path):
    opened = []

    def make(columns: int, rows: int, *command: str) -> Tmux:
        opened.append(Tmux(tmp_path, columns, rows, shlex.join([*WATCH, *command])))
        return opened[-1]

    yield make
    for terminal in opened:
        terminal.close()


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("first", "others"),
    [
        ((100, 30), [(100, 45), (70, 45), (70, 22), (50, 15), (62, 60), (120, 30), (61, 18), (200, 50)]),
        # What was wide is wrapped into more rows than the window has.
        ((200, 24), [(80, 24), (250, 30), (61, 30), (230, 18), (90, 18), (300, 60), (60, 60)]),
    ],
)
def test_no_line_is_lost_while_the_window_is_resized(tmux, first, others):
    terminal = tmux(*first, "sh", "-c", LINES.format(count=260))
    terminal.wait("lowtide watch ·")
    for columns, rows in others:
        time.sleep(0.6)
        terminal.resize(columns, rows)
        time.sleep(0.6)
        shown = terminal.shown()
        chart = [row for row, line in enumerate(shown) if "lowtide watch ·" in line]
        if any("verdict:" in line for line in shown):
            break
        if columns >= 60 and rows >= 18:
            assert chart == [rows - 12], "\n".join(shown)
            assert not any(CHART.search(line) for line in shown[: rows - 12]), "\n".join(shown)
        else:
            assert not chart, "\n".join(shown)
    terminal.wait("verdict:")
    check(terminal.text(), 260)


@pytest.mark.parametrize(
    "late", [False, pytest.param(True, marks=pytest.mark.heavy)], ids=["at once", "later"]
)
@pytest.mark.parametrize(
    ("program", "last_line", "leave"),
    [("less", ":|words", ["q"]), ("vim --clean", "Top", [":q!", "Enter"]), ("top -d 9", "", ["q"])],
    ids=["less", "vim", "top"],
)
def test_a_program_that_takes_the_screen_has_all_of_it(tmux, tmp_path, program, last_line, leave, late):
    if shutil.which(program.split()[0]) is None:
        pytest.skip(f"{program.split()[0]} is not installed")
    words = tmp_path / "words"
    words.write_text("".join(f"word {number}\n" for number in range(1, 200)))
    command = program if program.startswith("top") else f"{program} {words}"
    terminal = tmux(90, 28, "sh", "-c", f"sleep 2; exec {command}" if late else f"exec {command}")
    if late:
        terminal.wait("lowtide watch ·")
    terminal.wait("PID" if program.startswith("top") else "word 5")
    time.sleep(2.5)
    shown = terminal.shown()
    assert not any(CHART.search(line) for line in shown), "\n".join(shown)
    if program.startswith("top"):
        assert sum(bool(re.match(r"\s*\d+ ", line)) for line in shown) > 15, "\n".join(shown)
    else:
        assert [line.rstrip() for line in shown[:27]] == [f"word {number}" for number in range(1, 28)]
        assert re.search(last_line, shown[27]), shown[27]
    terminal.keys(*leave)
    rest = terminal.wait("verdict:")
    assert not any(CHART.search(line) for line in rest if "watched" not in line) or "peak" in "".join(rest)
    assert "so far" not in "\n".join(terminal.text())

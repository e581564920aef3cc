"""``lowtide demo``: like is compared with like, in a limit that the kernel confirms, and nothing stays."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from test_watch_page import BROWSER, Page

MIB = 1 << 20
COMMAND = [sys.executable, "-m", "lowtide", "demo", "--quick"]
ROWS = 256 * MIB // 512


def own_group():
    """The folder of this process's memory controller, if it is version 1's."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        if ":memory:" in line:
            return Path("/sys/fs/cgroup/memory" + line.split(":")[2])
    return None


GROUP = own_group()
CAN_LIMIT = GROUP is not None and os.access(GROUP, os.W_OK) and os.geteuid() == 0
needs_groups = pytest.mark.skipif(not CAN_LIMIT, reason="no rights to make a control group (version 1) here")


def left_over(folder, pid):
    return [*folder.iterdir(), *(GROUP.glob(f"lowtide-demo-{pid}") if GROUP else ())]


def page_of(folder):
    return folder.parent / f"{folder.name}.html"


def demo(folder, *arguments, before=()):
    """Runs the command to its end; it leaves nothing behind but the page."""
    where = ["--dir", str(folder), "--html", str(page_of(folder))]
    command = [*before, *COMMAND, "--seconds", "0.5", *where, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        said, errors = process.communicate(timeout=120)
    assert (process.returncode, errors) == (0, "")
    assert left_over(folder, process.pid) == []
    return said


def check(answer):
    """What must be true of every answer."""
    assert [way["name"] for way in answer["ways"]] == ["np.memmap held", "np.memmap per chunk", "Lowtide"]
    assert (answer["bytes"], answer["rows"]) == (256 * MIB, ROWS)
    for way in answer["ways"]:
        assert 0 < way["rows"] <= ROWS
        assert way["finished"] == (way["rows"] == ROWS)
        assert way["pass_seconds"] == pytest.approx(way["seconds"] * ROWS / way["rows"])
    held, _, ours = answer["ways"]
    assert answer["factor"] == pytest.approx(held["pass_seconds"] / ours["pass_seconds"])
    for way in [*answer["ways"], *answer["tokens"]["ways"]]:
        check_curve(way)
    assert answer["tokens"]["ways"][1]["rows"] % answer["tokens"]["batch_size"] == 0
    corpus = answer["corpus"]
    assert corpus["train_tokens"] + corpus["val_tokens"] >= corpus["text_bytes"] > 1 * MIB
    assert answer["machine"]["read_ahead_kb"] is None or answer["machine"]["read_ahead_kb"] >= 0


def check_curve(way):
    """The curve rises to the peaks, and ends when the way did."""
    curve = way["curve"]
    assert len({len(column) for column in curve.values()}) == 1
    assert curve["seconds"] == sorted(curve["seconds"])
    assert max(curve["added_anon_bytes"]) == way["added_anon_bytes"]
    assert max(curve["added_file_bytes"]) == way["added_file_bytes"]
    assert max(x or 0 for x in curve["added_cache_bytes"]) <= way["added_cache_bytes"]
    assert curve["seconds"][-1] == pytest.approx(way["seconds"], abs=1)


def program(path, text):
    """A program that is called as lowtide-gpt is; ``log`` is where it may write."""
    begin = "import os, subprocess, sys, time\nlog = open(sys.argv[sys.argv.index('--log') + 1], 'a')\n"
    path.write_text(f"#!{sys.executable}\n{begin}{text}")
    path.chmod(0o755)
    return str(path)


HOSTILE = r"""
def step(i, loss, more=""):
    times = '"step_seconds": 0.5, "loader_seconds": 0.001, "rss_anon": 1048576, "rss_file": 1, "cache": null'
    print('{"kind": "step", "step": %s, "loss": %s, %s%s}' % (i, loss, times, more), file=log)

print('{"kind": "start", "parameters": 7, "batch": 2, "block": 8, "steps": 3, "vocabulary": 1e400}', file=log)
print('{"kind": "start", "parameters": 7, "batch": 2, "block": 8, "steps": 3, "vocabulary": "<b>"}', file=log)
print('no json', '\x1b[31m', 'x' * 3_000_000, sep="\n", file=log)
step(0, 5.5)
for bad in ("NaN", "1e300", "-3", "null", "1e999", '"<img>"'):
    step(1, bad)
step(1, 4.5)
step(99999999999999999999, 4)
step(2, 4.25, ', "loss2": 1')
print('{"kind": "eval", "step": 3, "loss": 4.75}', file=log)
sample = "<script>alert(1)</script></pre>{{TABLE}}\\u001b[31m\\u202e & done"
print('{"kind": "end", "seconds": 2, "loader_share": -5, "sample": "%s"}' % sample, file=log)
print('{"kind": "st', end="", file=log)
"""


@needs_groups
def test_in_a_limit_nothing_exceeds_it_and_the_sentence_says_the_factor(tmp_path):
    gpt = program(tmp_path.parent / "hostile-gpt", HOSTILE)
    answer = json.loads(demo(tmp_path, "--json", "--gpt", gpt))
    check(answer)
    check_hostile(answer["training"], page_of(tmp_path).read_text())
    assert answer["limit"] == {"kind": "cgroup", "bytes": 64 * MIB, "why": None}
    for way in answer["ways"]:
        # The kernel's own counts: with the interpreter, nothing can have had more than the group.
        assert way["added_anon_bytes"] + way["added_cache_bytes"] < 64 * MIB
    # On a busy disk either side may take minutes.
    sentence = r"In 64 MiB of memory, Lowtide (went|would go) through a 256 MiB file in shuffled order"
    sentence += r" in \d[\w. ]+; np.memmap (took|would have taken) \d[\w. ]+: [\d.,]+ ×\."
    assert re.fullmatch(sentence, answer["sentence"])


def check_hostile(training, page):
    """What makes sense of a hostile log is taken, and none of it becomes markup."""
    assert training["loss"] == [[0, 5.5], [1, 4.5], [2, 4.25]]
    assert training["validation_loss"] == [[3, 4.75]]
    assert training["loader_share"] == pytest.approx(0.002)
    assert training["tokens_per_second"] == pytest.approx(2 * 8 / 0.5)
    # The first line (1e400 is no number), what is no JSON, six losses, and a step beyond all.
    assert training["unreadable_lines"] == 1 + 3 + 6 + 1
    assert training["problem"] is None
    assert training["sample"] == "<script>alert(1)</script></pre>{{TABLE}}[31m & done"
    assert "&lt;script&gt;alert(1)&lt;/script&gt;&lt;/pre&gt;{{TABLE}}[31m &amp; done</pre>" in page
    assert "<script" not in page
    assert page.count("</html>") == 1


@pytest.mark.heavy
@needs_groups
def test_people_get_a_plan_tables_sentences_and_what_to_do_next(tmp_path):
    text = demo(tmp_path)
    assert re.search(r"1\. write 256 MiB to .*about 1 s", text)
    assert re.search(r"2\. np.memmap held.*0.5 s, or a whole pass", text)
    assert re.search(r"^  Lowtide +[\d,]+ +[\d.]+ s", text, re.M)
    folded = re.sub(r"\s+", " ", text)
    assert re.search(r"np.memmap (took|would have taken) [\w. ]+: [\d.,]+ ×\.", folded)
    assert re.search(r"Lowtide's loader [\d.,]+: [\d.,]+ ×\.", folded)
    assert re.search(r"of Python's standard library, [\d,]+ documents, became [\d,]+ tokens", folded)
    if shutil.which("lowtide-gpt") is None:
        assert "left out: there is no lowtide-gpt" in text
        assert "cargo build --release -p lowtide-gpt" in folded
    lines = text.splitlines()
    assert lines[-5] == f"The page: {page_of(tmp_path)}"
    assert [line.split()[:2] for line in lines[-3:]] == [
        ["lowtide", "watch"],
        ["lowtide", "bench"],
        ["lowtide", "prepare"],
    ]
    page = page_of(tmp_path).read_text()
    assert "{{" not in page
    assert page.count('class="plot"') == 3, "a curve for each way"
    assert "\x1b" not in text


def content(path):
    """What the kernel says of a process or a group, which may end at any moment: then nothing."""
    try:
        return path.read_bytes()
    except OSError:
        return b""


def inside(pid):
    """The processes in the group of a demo."""
    groups = GROUP.glob(f"lowtide-demo-{pid}/cgroup.procs")
    return [int(inner) for group in groups for inner in content(group).split()]


@needs_groups
@pytest.mark.parametrize("signal_", [signal.SIGINT, signal.SIGTERM])
def test_a_demo_that_is_stopped_leaves_nothing(tmp_path, signal_):
    command = [*COMMAND, "--dir", str(tmp_path), "--html", str(page_of(tmp_path)), "--seconds", "60"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        deadline = time.monotonic() + 60
        while not inside(process.pid):
            assert process.poll() is None
            assert time.monotonic() < deadline, "it does not come to work"
            time.sleep(0.05)
        process.send_signal(signal_)
        assert process.wait(20) == 128 + signal_
        assert process.stderr.read() == b""
    assert left_over(tmp_path, process.pid) == []
    assert not page_of(tmp_path).exists()


# Says what it started, and never ends.
ENDLESS = """
child = subprocess.Popen(["sleep", "600"])
with open("PIDS.new", "w") as pids:
    pids.write(f"{os.getpid()} {child.pid}")
os.rename("PIDS.new", "PIDS")
"""


def gone(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True


@needs_groups
@pytest.mark.heavy
@pytest.mark.parametrize("step", ["writing", "batches", "training"])
def test_a_demo_that_is_stopped_at_any_step_leaves_nothing(tmp_path, step):
    folder, pids = tmp_path / "data", tmp_path / "pids"
    folder.mkdir()
    gpt = program(tmp_path / "gpt", ENDLESS.replace("PIDS", str(pids)) + "time.sleep(600)\n")

    def reached(pid):
        if step == "training":
            return pids.exists()
        if step == "writing":
            return any(folder.glob("*/rows.npy"))
        return any(b"\0nanogpt\0" in content(Path(f"/proc/{inner}/cmdline")) for inner in inside(pid))

    # In a session of its own, as a terminal's Ctrl-C comes: to the whole group.
    where = ["--dir", str(folder), "--html", str(page_of(folder)), "--gpt", gpt]
    command = [*COMMAND, *where, "--seconds", "5"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True) as process:
        deadline = time.monotonic() + 120
        while not reached(process.pid):
            assert process.poll() is None
            assert time.monotonic() < deadline, "it does not come so far"
            time.sleep(0.002)
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(20) == 128 + signal.SIGINT
    assert left_over(folder, process.pid) == []
    assert not page_of(folder).exists()
    if step == "training":
        assert all(gone(pid) for pid in pids.read_text().split())


@needs_groups
@pytest.mark.heavy
@pytest.mark.parametrize(
    ("text", "problem", "losses"),
    [
        ("print('\\x1b[31mno <b>luck', file=sys.stderr); sys.exit(3)", "exit status: 3: [31mno <b>luck", 0),
        ("sys.exit(0)", "has ended without any step in its log", 0),
        (ENDLESS + "log.write(LINE); log.flush(); time.sleep(600)", "it was stopped after 4 s", 1),
        (
            ENDLESS + "while True: log.write('x' * 65536); sys.stderr.write('x' * 65536)",
            "anybody can read",
            0,
        ),
    ],
    ids=["fails", "says nothing", "never ends", "never stops talking"],
)
def test_a_training_that_goes_wrong_is_told_and_nothing_else_suffers(tmp_path, text, problem, losses):
    folder, pids = tmp_path / "data", tmp_path / "pids"
    folder.mkdir()
    line = '{"kind": "step", "step": 0, "loss": 1, "step_seconds": 1, "loader_seconds": 0}\n'
    text = text.replace("LINE", repr(line)).replace("PIDS", str(pids))
    answer = json.loads(demo(folder, "--json", "--gpt", program(tmp_path / "gpt", text + "\n")))
    check(answer)
    assert problem in answer["training"]["problem"]
    assert len(answer["training"]["loss"]) == losses
    page = page_of(folder).read_text()
    assert "<b>luck" not in page
    assert ("No model was trained" in page, "Not the whole run" in page) == (losses == 0, losses > 0)
    if pids.exists():
        assert all(gone(pid) for pid in pids.read_text().split()), "it left somebody behind"


@needs_groups
@pytest.mark.heavy
@pytest.mark.parametrize(
    ("width", "dark"), [(1280, False), (1280, True), (390, False), (390, True)], ids=lambda x: str(x)
)
def test_the_page_in_a_browser(tmp_path, told, width, dark):
    if BROWSER is None:
        pytest.skip("no Chromium on this machine")
    page = Page(tmp_path, width, dark)
    try:
        page.open(told, "document.querySelectorAll('.plot path').length > 0")
        assert page.run("document.documentElement.scrollWidth <= window.innerWidth"), "wider than the screen"
        assert "as fast as np.memmap" in page.run("document.querySelector('h1').textContent")
        tops = "[...document.querySelectorAll('.panels > div')].map(div => div.getBoundingClientRect().top)"
        assert len(set(page.run(tops))) == (1 if width == 1280 else 3), "side by side, or one below the other"
        for kind in ("own", "anon", "file", "cache", "limit"):
            assert page.run(f"document.querySelectorAll('.panels path.{kind}').length") == 3
        assert page.run("document.querySelectorAll('path.train, path.val').length") >= 2
        low = (
            "[...document.querySelectorAll('.panels svg')].every(s => s.getBoundingClientRect().height > 100)"
        )
        assert page.run(low)
        colour = page.run("getComputedStyle(document.body).backgroundColor")
        assert (sum(map(int, re.findall(r"\d+", colour)[:3])) < 200) == dark, colour
        said = page.run("document.querySelector('pre.sample').textContent")
        assert said == "<script>alert(1)</script></pre>{{TABLE}}[31m & done"
        page.quiet()
    finally:
        page.close()


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """A page with everything in it."""
    folder = tmp_path_factory.mktemp("told") / "data"
    folder.mkdir()
    demo(folder, "--gpt", program(folder.parent / "gpt", HOSTILE))
    return page_of(folder)


def without_rights(tmp_path, systemd=""):
    """A command that runs another where no control group can be made, and maybe with a systemd-run."""
    bin_folder, elsewhere = tmp_path / "bin", tmp_path / "groups"
    bin_folder.mkdir()
    elsewhere.mkdir()
    if systemd:
        script = bin_folder / "systemd-run"
        script.write_text(systemd)
        script.chmod(0o755)
    prepare = f"mount --bind /sys/fs/cgroup/memory {elsewhere}"
    prepare += " && mount -o remount,bind,ro /sys/fs/cgroup/memory"
    prepare += f" && export GROUPS_AT={elsewhere / GROUP.relative_to('/sys/fs/cgroup/memory')}"
    prepare += f' && export PATH={bin_folder}:$PATH && exec "$@"'
    return ["unshare", "--mount", "sh", "-c", prepare, "sh"]


@needs_groups
@pytest.mark.heavy
@pytest.mark.skipif(shutil.which("unshare") is None, reason="unshare is not installed")
def test_without_rights_it_says_what_could_not_be_shown(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    before = without_rights(tmp_path)
    answer = json.loads(demo(folder, "--json", before=before))
    check(answer)
    assert answer["limit"]["kind"] == "none"
    assert "no control group can be made here: Read-only file system" in answer["limit"]["why"]
    assert answer["sentence"].startswith("With memory to spare, Lowtide ")
    text = re.sub(r"\s+", " ", demo(folder, before=before))
    assert "could not be shown: no control group can be made here" in text


@needs_groups
@pytest.mark.heavy
@pytest.mark.skipif(shutil.which("unshare") is None, reason="unshare is not installed")
def test_in_a_container_that_is_smaller_than_the_file_its_own_limit_is_enough(tmp_path):
    folder, group = tmp_path / "data", GROUP / f"lowtide-test-{os.getpid()}"
    folder.mkdir()
    group.mkdir()
    try:
        (group / "memory.limit_in_bytes").write_text(str(128 * MIB))
        inside = ["sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh"]
        answer = json.loads(demo(folder, "--json", before=[*inside, *without_rights(tmp_path)]))
    finally:
        group.rmdir()
    check(answer)
    assert answer["limit"]["kind"] == "room"
    assert 0 < answer["limit"]["bytes"] <= 128 * MIB
    assert re.match(r"In [\d.]+ MiB of memory, Lowtide ", answer["sentence"])


# What systemd-run does: a group with the limit that was asked for, and the command in its place.
SYSTEMD = """#!/bin/sh
while [ "$1" != -- ]; do case "$1" in MemoryMax=*) limit=${1#*=};; esac; shift; done; shift
group=$GROUPS_AT/lowtide-demo-scope-$$
mkdir "$group" && echo "$limit" > "$group/memory.limit_in_bytes" && echo $$ > "$group/cgroup.procs"
exec "$@"
"""


@needs_groups
@pytest.mark.heavy
@pytest.mark.skipif(shutil.which("unshare") is None, reason="unshare is not installed")
@pytest.mark.parametrize("honest", [True, False])
def test_a_systemd_of_the_user_limits_it_and_is_not_just_believed(tmp_path, honest):
    folder = tmp_path / "data"
    folder.mkdir()
    systemd = SYSTEMD if honest else SYSTEMD.replace('echo "$limit"', "echo -1")
    try:
        answer = json.loads(demo(folder, "--json", before=without_rights(tmp_path, systemd)))
    finally:
        for group in GROUP.glob("lowtide-demo-scope-*"):
            group.rmdir()
    check(answer)
    assert answer["limit"]["kind"] == ("cgroup" if honest else "none")


def test_a_place_or_size_that_cannot_show_it_is_refused(tmp_path):
    def refused(*arguments):
        page = [] if "--html" in arguments else ["--html", str(page_of(tmp_path))]
        command = [sys.executable, "-m", "lowtide", "demo", *page, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.stdout == ""
        return done.returncode, done.stderr

    code, text = refused("--size", "1MiB")
    assert (code, "at least 256 MiB" in text) == (2, True)
    code, text = refused("--dir", "/dev/shm")
    assert (code, "is memory itself" in text) == (1, True), text
    code, text = refused("--html", str(tmp_path / "none" / "page.html"))
    assert (code, "there is no such folder" in text) == (2, True), text
    code, text = refused("--html", "/dev/null")
    assert (code, "this is not a file" in text) == (2, True), text
    mine = tmp_path.parent / "mine.html"
    mine.write_text("<p>mine</p>")
    code, text = refused("--html", str(mine))
    assert (code, "which this command has not made" in text, mine.read_text()) == (2, True, "<p>mine</p>")
    code, text = refused("--gpt", str(mine))
    assert (code, "there is no such program" in text) == (2, True), text
    code, text = refused("--dir", str(tmp_path / "none"))
    assert (code, "there is no place" in text) == (1, True)
    assert list(tmp_path.iterdir()) == []

"""``lowtide bench``: every way is there, and its figures agree with what the kernel must have counted."""

import html.parser
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROWS, WIDTH = 40_000, 128
BYTES = ROWS * WIDTH * 4
MIB = 1 << 20
OURS = [f"lowtide {access}" for access in ("map", "remap", "advise", "read", "direct", "auto")]
NUMPY = ["np.memmap held", "np.memmap per chunk"]
DISK = "fio, the disk"


def bench(*arguments, code=0):
    """Runs the command, as a program would: nothing on stderr unless it fails."""
    command = [sys.executable, "-m", "lowtide", "bench", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == code, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    assert (done.stderr == "") == (code == 0), done.stderr
    return done.stdout if code == 0 else done.stderr


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """20 MB, on disk: what is not written yet could not be dropped from the page cache."""
    path = tmp_path_factory.mktemp("bench") / "rows <b>&.npy"
    np.save(path, np.arange(ROWS * WIDTH, dtype="float32").reshape(ROWS, WIDTH))
    with open(path, "rb") as file:
        os.fsync(file.fileno())
    return path


@pytest.fixture(scope="module")
def measured(rows):
    """One run with a page, and the file as it was before and after."""
    before = rows.read_bytes(), rows.stat().st_mtime_ns
    page = rows.with_name("bench.html")
    answer = json.loads(bench(rows, "--seconds", 0.2, "--json", "--html", page))
    assert (rows.read_bytes(), rows.stat().st_mtime_ns) == before
    assert sorted(p.name for p in rows.parent.iterdir()) == ["bench.html", rows.name], "nothing is left over"
    return answer, page.read_text()


def by_name(answer):
    return {way["name"]: way for way in answer["ways"]}


def is_cold(answer):
    if answer["start"] != "cold":
        pytest.skip("the temporary folder's filesystem does not let go of its page cache")


def test_every_way_has_figures(measured):
    answer, _ = measured
    ways = by_name(answer)
    assert list(ways)[:8] == OURS + NUMPY
    assert (answer["rows"], answer["row_bytes"], answer["chunk_rows"]) == (ROWS, WIDTH * 4, 4096)
    for name in OURS + NUMPY:
        way = ways[name]
        assert "error" not in way, way
        assert 0 < way["rows"] <= ROWS, "a cold start is one pass at most"
        assert way["rows_per_second"] == pytest.approx(way["rows"] / way["seconds"])
        assert way["bytes_per_second"] == pytest.approx(way["rows_per_second"] * WIDTH * 4)
        assert way["added_anon_bytes"] < 100 * MIB
    for access in ("map", "remap", "advise", "read", "direct"):
        assert ways[f"lowtide {access}"]["access"] == access
    assert ways["lowtide auto"]["why"]


def test_memory_is_where_each_way_puts_it(measured):
    answer, _ = measured
    is_cold(answer)
    ways = by_name(answer)
    mapped = {name: way.get("added_file_bytes") for name, way in ways.items()}
    for name in ("lowtide map", "np.memmap held"):
        assert mapped[name] > BYTES // 2, mapped
    for name in ("lowtide read", "lowtide direct"):
        assert mapped[name] < MIB, "the pages of the code itself are not the file's"
    assert ways["lowtide direct"]["added_cache_bytes"] < MIB
    # The whole file passed through the page cache, and through the disk, once.
    for name in ("lowtide map", "lowtide read", "np.memmap held"):
        way = ways[name]
        if way["rows"] == ROWS:
            assert way["added_cache_bytes"] == pytest.approx(BYTES, rel=0.02)
            assert way["read_per_byte_used"] == pytest.approx(1, rel=0.1)


def test_the_disk_itself_is_a_reference(measured):
    answer, _ = measured
    if shutil.which("fio") is None:
        assert DISK not in by_name(answer)
        assert any("fio is not installed" in note for note in answer["notes"])
        pytest.skip("fio is not installed")
    if DISK not in by_name(answer):
        pytest.skip(f"fio cannot measure here: {answer['notes']}")
    disk = by_name(answer)[DISK]
    assert disk["rows_per_second"] > 0
    assert disk["read_per_byte_used"] in (1, 8), "blocks of 512 or of 4,096 bytes"
    assert disk["added_file_bytes"] is None


class Page(html.parser.HTMLParser):
    """Elements that were opened must be closed, in order."""

    void = frozenset({"meta", "link"})

    def __init__(self):
        super().__init__()
        self.open, self.text, self.rects = [], [], 0

    def handle_starttag(self, tag, attrs):
        self.rects += tag == "rect"
        if tag not in self.void:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.rects += tag == "rect"

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def test_the_page_is_whole(measured, rows):
    answer, text = measured
    page = Page()
    page.feed(text)
    page.close()
    assert page.open == []
    said = "".join(page.text)
    for way in answer["ways"]:
        assert said.count(way["name"]) >= 2, "in the chart and in the table"
    assert str(rows) in said, "the name of the file is text, whatever is in it"
    assert page.rects >= 2 * len(answer["ways"])
    assert "{{" not in text
    assert not re.search(r"https?://|<script|src=|url\(|@import", text)
    assert "prefers-color-scheme: dark" in text


def test_a_warm_file_in_file_order_is_read_from_memory(rows):
    arguments = ["--order", "sequential", "--rows", 1000, "--budget", "16MiB", "--seconds", 0.1]
    answer = json.loads(bench(rows, "--warm", *arguments, "--json"))
    assert (answer["start"], answer["order"], answer["chunk_rows"]) == ("warm", "sequential", 1000)
    for name in OURS + NUMPY:
        way = by_name(answer)[name]
        assert way["rows"] % 1000 == 0 < way["rows"]
        if name != "lowtide direct":  # which may ask the disk all the same
            assert way["read_per_byte_used"] < 0.01
        # Some kernels take pages away by themselves (kdamond), and those come back.
        assert way["added_cache_bytes"] < 1 * MIB


def test_a_file_without_a_header(tmp_path):
    path = tmp_path / "rows: raw.bin"
    np.arange(1_000 * 30 + 4, dtype=">i2").tofile(path)
    arguments = ["--dtype", ">i2", "--shape", "-1,30", "--offset", 8, "--seconds", 0.1]
    answer = json.loads(bench(path, *arguments, "--budget", "8MiB", "--json"))
    ways = by_name(answer)
    assert (answer["rows"], answer["row_bytes"], answer["budget_bytes"]) == (1000, 60, 8 * MIB)
    assert ways["np.memmap held"]["rows"] == ways["lowtide auto"]["rows"] == 1000
    # A way that cannot be says why, and the others go on.
    assert "needs 16 MiB" in ways["lowtide remap"]["error"]
    assert any("needs 16 MiB" in note for note in answer["notes"])


def test_the_table_is_for_people(save):
    path = save(np.zeros((5_000, 16)))
    text = bench(path, "--order", "sequential", "--seconds", 0.05)
    for name in OURS + NUMPY:
        assert re.search(rf"^  {re.escape(name)} +[\d,]+ ", text, re.M), text
    assert "read_ahead_kb" in text
    assert "\x1b" not in text, "no colours where nobody sees them"


def test_what_cannot_be_measured_fails(tmp_path, save):
    assert "cannot open the file" in bench(tmp_path / "none.npy", code=1)
    assert "there are no rows" in bench(save(np.zeros((0, 3))), code=1)
    assert "needs" in bench(save(np.zeros((100, 1000))), "--budget", "64KiB", code=1)
    text = tmp_path / "notes.txt"
    text.write_text("no array")
    assert "needs --dtype (and --shape, --offset)" in bench(text, code=1), "flags, not keywords"


def test_a_wrong_call_is_refused(save):
    path = save(np.zeros((10, 3)))
    for arguments in (
        ["--order", "random"],
        ["--seconds", "nan"],
        ["--rows", 0],
        ["--budget", "much"],
        ["--cold", "--warm"],
        ["--cache", "maybe"],
        ["--shape", "3"],
        ["--html", path.parent],
        ["--html", path.parent / "none" / "page.html"],
    ):
        assert bench(path, *arguments, code=2).startswith("error: ")
    before = path.read_bytes()
    assert "would replace the file" in bench(path, "--html", path, code=2)
    assert path.read_bytes() == before


@pytest.mark.parametrize("way", ["recreate", "read"])
def test_rows_are_divided_by_the_time_that_a_way_had(tmp_path, way):
    """One chunk at once and then nothing: not the time of that chunk, whichever side it is."""
    path = tmp_path / "rows.npy"
    np.save(path, np.zeros((100, 4), "f4"))
    code = """if True:
        import sys, time
        import numpy as np
        import lowtide
        map_file, open_array = np.memmap, lowtide.open
        state = {"maps": 0}

        def slow_map(path, *arguments, **named):
            state["maps"] += str(path).endswith("rows.npy")
            if state["maps"] > 2:  # one for the pass, one for its first chunk
                time.sleep(60)
            return map_file(path, *arguments, **named)

        class Slow:
            access, why = "read", "it is slow"

            def __init__(self, rows):
                self.chunks_of = iter(rows.chunks(10))

            def shuffled(self, *_, **__):
                return self

            def __iter__(self):
                yield next(self.chunks_of)
                time.sleep(60)

        def slow_open(path, **named):
            array = open_array(path, **named)
            return Slow(array) if str(path).endswith("rows.npy") else array

        np.memmap, lowtide.open = slow_map, slow_open
        exec(compile(open(sys.argv.pop(1)).read(), "worker.py", "exec"))
    """
    job = {"way": way, "order": "shuffled", "chunk_rows": 10, "seconds": 1.0, "rows": 100, "unit": "rows"}
    job |= {"again": False, "budget": 1 << 20, "row_bytes": 16, "cache": "keep", "storage_options": None}
    job |= {"raw": False, "offset": 128, "shape": [100, 4], "memory_order": "C", "dtype": "<f4"}
    worker = Path(__file__).parents[2] / "crates/lowtide-cli/src/bench/worker.py"
    command = [sys.executable, "-c", code, str(worker), str(path), json.dumps(job)]
    done = subprocess.run(command, input="go\nend\n", capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[1])
    assert told["rows"] == told["half_rows"] == 10
    assert 1.0 <= told["seconds"] < 2.0

"""`lowtide prepare` when things go wrong: killed, out of disk and of memory, over inputs and files that lie.

The oracle of every test by kill is a run that was left alone: each file has to have its bytes, and so the
manifest. Memory is what the kernel says of the process, without what an idle one of the same kind holds.
"""

import contextlib
import gzip
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from test_cache import cached

COMMAND = Path(sys.executable).with_name("lowtide")
WORK = ".lowtide-prepare"
MIB = 1 << 20


def start(source: Path | list[Path], output: Path, *words: object, stdin=None) -> subprocess.Popen[str]:
    sources = source if isinstance(source, list) else [source]
    return subprocess.Popen(
        [COMMAND, "--quiet", "prepare", *sources, "-o", output, *map(str, words)],
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def prepare(source: Path | list[Path], output: Path, *words: object) -> dict:
    """The manifest of a run that has to work."""
    run = start(source, output, *words, "--json")
    out, err = run.communicate()
    assert run.returncode == 0, err
    return json.loads(out)


def refused(source: Path | list[Path], output: Path, *words: object) -> str:
    """What is said by a run that must fail: an error, neither a panic nor a signal."""
    run = start(source, output, *words)
    _, err = run.communicate()
    assert run.returncode in (1, 2), (run.returncode, err)
    assert "panicked" not in err
    return err


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def texts(seed: int, count: int) -> list[str]:
    """Documents of every size, nothing to a quarter of a megabyte, in several scripts."""
    luck = random.Random(seed)
    words = [
        "the",
        "of",
        "and",
        "Lowtide",
        "def",
        "self",
        "12345",
        "don't",
        "naïve",
        "世界",
        "🙂",
        "\n",
        "\n\n",
    ]
    words += ["", "", "", "(", ")", "==", "x", "\t"]
    made = []
    for number in range(count):
        length = luck.choice([0, 1, 5, 50, 200, 1000])
        if number % 97 == 96:
            length = 40_000
        made.append(" ".join(luck.choices(words, k=length)))
    return made


@pytest.fixture(scope="session")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Path]]:
    """The same kinds of input that people have: JSON lines with bad ones between, packed text, a folder."""
    folder = tmp_path_factory.mktemp("corpora")
    jsonl, packed, tree = folder / "crawl.jsonl", folder / "text.gz", folder / "tree"
    with jsonl.open("w") as file:
        for number, text in enumerate(texts(1, 6000)):
            file.write(json.dumps({"id": number, "text": text}, ensure_ascii=number % 2 == 0) + "\n")
            if number % 500 == 7:
                file.write('{"text": 3}\nnot JSON\n')
    with gzip.open(packed, "wt", compresslevel=1) as file:
        file.write("<|end|>".join(texts(2, 3000)))
    for number, text in enumerate(texts(3, 1500)):
        path = tree / f"{number % 7}" / f"{number}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    kinds = {"jsonl": [jsonl, packed_jsonl(folder)], "packed": [packed], "tree": [tree]}
    with contextlib.suppress(ImportError):  # the fast tier does without
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.table({"text": texts(5, 3000)}), folder / "rows.parquet", row_group_size=500)
        kinds["table"] = [folder / "rows.parquet"]
    return kinds


def packed_jsonl(folder: Path) -> Path:
    path = folder / "more.jsonl.gz"
    with gzip.open(path, "wt", compresslevel=1) as file:
        file.writelines(json.dumps({"text": text}) + "\n" for text in texts(4, 1500))
    return path


KINDS: dict[str, list[object]] = {
    "jsonl": ["--on-error", "skip"],
    "packed": ["--separator", "<|end|>"],
    "tree": [],
    "table": ["--column", "text"],
}


def jobs(luck: random.Random, kinds: list[str]) -> Iterator[tuple[str, list[object]]]:
    """Commands of every format, with and without another order, a split, shards, one thread or two."""
    while True:
        for format in ("nanogpt", "llmc", "megatron", "datatrove", "npy"):
            kind = luck.choice(kinds)
            words = [*KINDS[kind], "--format", format, "--threads", luck.choice([1, 2]), "--budget", "64MiB"]
            words += ["--tokenizer", luck.choice(["gpt2", "gpt2", "bytes", "chars"])]
            words += luck.choice([[], ["--shuffle-documents", luck.randrange(100)]])
            words += luck.choice([[], ["--val", "0.1"]])
            words += luck.choice([[], ["--shard-tokens", luck.choice(["50k", "700k"])]])
            yield kind, words


def look_at(folder: Path, whole: dict[str, bytes]) -> None:
    """After a kill: whole shards, the manifest last of all, and in the folder of the work what we know."""
    for name, content in files(folder).items() if folder.exists() else ():
        if name.startswith(WORK):
            inside = Path(name).name
            assert inside in ("lock", "job.json", "state.json") or inside.endswith((".part", ".tmp")), name
        else:
            assert content == whole[name], f"{name} is not whole"
    if (folder / "lowtide.json").exists():
        assert {name for name in files(folder) if not name.startswith(WORK)} == set(whole)


def kill_often(corpora: dict[str, list[Path]], folder: Path, kills: int, seed: int) -> dict[str, int]:
    """Runs jobs, each killed again and again at random moments until it ends, and compares."""
    luck = random.Random(seed)
    seen = {"killed": 0, "went on": 0, "jobs": 0}
    for number, (kind, words) in enumerate(jobs(luck, list(corpora))):
        alone, often = folder / f"{number}-alone", folder / f"{number}-often"
        begun = time.perf_counter()
        prepare(corpora[kind], alone, *words)
        took = time.perf_counter() - begun
        whole = files(alone)
        words += ["--checkpoint", luck.choice([0, 0, 0.02])]
        # Some moments all over the run, some at its end, where names are given.
        for _ in range(40):
            run = start(corpora[kind], often, *words)
            moment = luck.uniform(0.0, took) if luck.random() < 0.7 else took * luck.uniform(0.8, 1.1)
            with contextlib.suppress(subprocess.TimeoutExpired):
                run.wait(moment)
            run.kill()
            _, err = run.communicate()
            assert run.returncode in (0, -signal.SIGKILL), err
            seen["killed"] += run.returncode != 0
            seen["went on"] += (often / WORK / "state.json").exists()
            look_at(often, whole)
            if run.returncode == 0:
                break
        prepare(corpora[kind], often, *words)
        again = files(often)
        assert again.keys() == whole.keys(), (kind, words)
        assert again == whole, (kind, words)
        seen["jobs"] += 1
        for made in (alone, often):
            shutil.rmtree(made)
        if seen["killed"] >= kills:
            return seen
    raise AssertionError


def test_killed_a_few_times_it_goes_on(corpora, tmp_path):
    seen = kill_often(corpora, tmp_path, 5, seed=5)
    assert seen["killed"] >= 5


@pytest.mark.heavy
def test_killed_a_hundred_times_the_bytes_are_the_same(corpora, tmp_path):
    seen = kill_often(corpora, tmp_path, 100, seed=13)
    print(seen)
    assert seen["went on"] > 10, "most kills have to meet a run that has something to go on from"


def test_standard_input_is_given_again_from_its_beginning(corpora, tmp_path):
    words = ["--input", "jsonl", "--on-error", "skip", "--budget", "64MiB", "--checkpoint", 0]

    def run(output: Path, until: Callable[[], bool] | None = None) -> int:
        with corpora["jsonl"][0].open("rb") as text:
            process = start(Path("-"), output, *words, stdin=text)
        if until:
            wait_for(until, process)
            process.kill()
        process.communicate()
        return process.returncode

    often = tmp_path / "often"
    assert run(tmp_path / "alone") == 0
    assert run(often, lambda: (often / WORK / "state.json").exists()) == -signal.SIGKILL
    assert run(often) == 0
    assert files(often) == files(tmp_path / "alone")


@pytest.mark.parametrize("words", [[], ["--shuffle-documents", "3"]])
def test_ctrl_c_ends_it_and_it_goes_on(corpora, tmp_path, words):
    words = [*KINDS["jsonl"], "--budget", "64MiB", *words]
    prepare(corpora["jsonl"], tmp_path / "alone", *words)
    run = start(corpora["jsonl"], tmp_path / "often", *words, "--checkpoint", 0)
    wait_for(lambda: (tmp_path / "often" / WORK / "state.json").exists(), run)
    run.send_signal(signal.SIGINT)
    _, err = run.communicate(timeout=10)
    assert run.returncode in (-signal.SIGINT, 128 + signal.SIGINT)
    assert "Traceback" not in err
    assert "panicked" not in err
    look_at(tmp_path / "often", files(tmp_path / "alone"))
    prepare(corpora["jsonl"], tmp_path / "often", *words)
    assert files(tmp_path / "often") == files(tmp_path / "alone")


def wait_for(what: Callable[[], bool], run: subprocess.Popen[str]) -> None:
    until = time.monotonic() + 20
    while not what():
        assert run.poll() is None, f"it ended before: {run.communicate()}"
        assert time.monotonic() < until
        time.sleep(0.001)


@contextlib.contextmanager
def mounted(folder: Path, options: str) -> Iterator[Path]:
    """A small filesystem in memory, where we may mount one."""
    folder.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "lowtide", folder], capture_output=True, text=True
    )
    if done.returncode != 0:
        pytest.skip(f"mounting a small filesystem needs root: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


@pytest.mark.parametrize(
    "words",
    [
        [],
        pytest.param(["--shuffle-documents", "3"], marks=pytest.mark.heavy),
        ["--format", "megatron", "--shard-tokens", "200k"],
    ],
)
def test_a_full_disk_is_an_error_and_more_room_ends_it(corpora, tmp_path, words):
    words = [*KINDS["jsonl"], "--budget", "64MiB", "--checkpoint", 0.05, *words]
    prepare(corpora["jsonl"], tmp_path / "alone", *words)
    whole = files(tmp_path / "alone")
    with mounted(tmp_path / "disk", "size=2m") as disk:
        for size in ("2m", "3m"):
            subprocess.run(["mount", "-o", f"remount,size={size}", disk], check=True)
            said = refused(corpora["jsonl"], disk / "out", *words)
            assert "No space left on device" in said
            look_at(disk / "out", whole)
        subprocess.run(["mount", "-o", "remount,size=256m", disk], check=True)
        prepare(corpora["jsonl"], disk / "out", *words)
        assert files(disk / "out") == whole


def test_a_folder_that_cannot_be_written_is_named(corpora, tmp_path):
    (tmp_path / "file").write_text("")
    assert "cannot make the folder" in refused(corpora["tree"], tmp_path / "file" / "out")
    with mounted(tmp_path / "disk", "ro") as disk:
        said = refused(corpora["tree"], disk / "out")
        assert "Read-only file system" in said
        assert str(disk / "out") in said


def test_a_folder_that_vanishes_is_an_error(corpora, tmp_path):
    output = tmp_path / "out"
    run = start(corpora["jsonl"], output, *KINDS["jsonl"], "--budget", "64MiB", "--checkpoint", 0)
    wait_for(lambda: (output / WORK / "state.json").exists(), run)
    run.send_signal(signal.SIGSTOP)
    shutil.rmtree(output)
    run.send_signal(signal.SIGCONT)
    _, err = run.communicate(timeout=20)
    assert run.returncode == 1, err
    assert "No such file or directory" in err
    assert not output.exists(), "it does not come back by itself"


def halfway(source: Path | list[Path], output: Path, *words: object) -> None:
    """A run that was killed after it had written down how far it is."""
    run = start(source, output, *words, "--checkpoint", 0)
    wait_for(lambda: (output / WORK / "state.json").exists(), run)
    run.kill()
    run.communicate()


def test_an_input_that_has_changed_since_is_refused(corpora, tmp_path):
    source = tmp_path / "crawl.jsonl"
    shutil.copy(corpora["jsonl"][0], source)
    output, words = tmp_path / "out", KINDS["jsonl"]
    halfway(source, output, *words)
    before = files(output)
    times = source.stat()
    with source.open("a") as file:
        file.write('{"text": "more"}\n')
    assert "crawl.jsonl has changed since" in refused(source, output, *words)
    os.truncate(source, times.st_size - 10)
    os.utime(source, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert "crawl.jsonl has changed since" in refused(source, output, *words)
    shutil.copy(corpora["jsonl"][0], source)
    assert "crawl.jsonl has changed since" in refused(source, output, *words), (
        "the same size, at another time"
    )
    source.unlink()
    assert "No such file" in refused(source, output, *words)
    assert "this is --shard-tokens 1000000" in refused(
        recopied(corpora, source, times), output, *words, "--shard-tokens", "1M"
    )
    assert files(output) == before, "what was begun is as it was"
    prepare(source, output, *words)
    prepare(source, tmp_path / "alone", *words)
    assert files(output) == files(tmp_path / "alone")


def recopied(corpora: dict[str, list[Path]], source: Path, times: os.stat_result) -> Path:
    shutil.copy(corpora["jsonl"][0], source)
    os.utime(source, ns=(times.st_atime_ns, times.st_mtime_ns))
    return source


@pytest.mark.parametrize("change", ["cut", "grown", "gone"])
def test_an_input_that_changes_while_it_is_read_is_refused(corpora, tmp_path, change):
    source, output = tmp_path / "crawl.jsonl", tmp_path / "out"
    shutil.copy(corpora["jsonl"][0], source)
    run = start(source, output, *KINDS["jsonl"], "--threads", 1, "--budget", "64MiB", "--checkpoint", 0)
    wait_for(lambda: (output / WORK / "state.json").exists(), run)
    run.send_signal(signal.SIGSTOP)
    if change == "cut":
        os.truncate(source, source.stat().st_size // 2)
    elif change == "grown":
        with source.open("a") as file:
            file.write('{"text": "more"}\n' * 1000)
    else:
        source.unlink()
    run.send_signal(signal.SIGCONT)
    _, err = run.communicate(timeout=20)
    assert run.returncode == 1, err
    assert "crawl.jsonl" in err
    assert "cannot find the file again" in err if change == "gone" else "when the work began" in err
    assert not (output / "lowtide.json").exists()


def test_a_shard_that_was_removed_since_is_missed(corpora, tmp_path):
    words = [*KINDS["jsonl"], "--shard-tokens", "20k", "--budget", "64MiB"]
    run = start(corpora["jsonl"], tmp_path / "out", *words, "--checkpoint", 0)
    state = tmp_path / "out" / WORK / "state.json"
    wait_for(lambda: state.exists() and len(json.loads(state.read_text())["done"][0]) > 2, run)
    run.kill()
    run.communicate()
    shard = tmp_path / "out" / "train-00001.bin"
    content = shard.read_bytes()
    shard.unlink()
    said = refused(corpora["jsonl"], tmp_path / "out", *words)
    assert "train-00001.bin" in said
    assert "what the earlier run has left" in said
    shard.write_bytes(content)
    prepare(corpora["jsonl"], tmp_path / "out", *words)
    prepare(corpora["jsonl"], tmp_path / "alone", *words)
    assert files(tmp_path / "out") == files(tmp_path / "alone")


def test_two_at_once_do_not_meet(corpora, tmp_path):
    words = [*KINDS["jsonl"], "--budget", "64MiB"]
    run = start(corpora["jsonl"], tmp_path / "out", *words)
    wait_for(lambda: (tmp_path / "out" / WORK / "job.json").exists(), run)
    run.send_signal(signal.SIGSTOP)
    assert "another process is preparing tokens" in refused(corpora["jsonl"], tmp_path / "out", *words)
    run.send_signal(signal.SIGCONT)
    said = run.communicate()[1].splitlines()
    assert all(
        line.startswith("warning: ") and "a line of JSON" in line for line in said
    )  # what it passes over
    assert run.returncode == 0


# Files that lie.


def test_a_state_that_lies_is_an_error(corpora, tmp_path):
    output, words = tmp_path / "out", [*KINDS["jsonl"], "--shard-tokens", "100k", "--val", "0.1"]
    halfway(corpora["jsonl"], output, *words)
    path = output / WORK / "state.json"
    good = path.read_text()
    state = json.loads(good)
    big = 2**64 - 1
    lies: list[tuple[str, object]] = [
        ("nothing", ""),
        ("another type", []),
        ("deep", "[" * 1_000_000),
        ("a sum past all", state | {"open": [o | {"tokens": big, "bytes": big} for o in state["open"]] * 3}),
        ("counts past all", state | {"counts": dict.fromkeys(state["counts"], big)}),
        (
            "a place past all",
            state | {"place": {"source": big, "documents": big, "mark": None, "number": big}},
        ),
        (
            "a place behind the input",
            state | {"place": state["place"] | {"mark": {"offset": big, "line": 1}}},
        ),
        ("a line past all", state | {"place": state["place"] | {"mark": {"offset": 1, "line": big}}}),
        ("a split of many", state | {"open": [{**open, "split": 7} for open in state["open"]]}),
        ("spools", state | {"spools": [big] * 3}),
        ("spools", state | {"spools": [1] * 1_000_000}),
        ("below zero", state | {"dealing": -1}),
        ("a half", good[: len(good) // 2]),
    ]
    shard = {"file": "../../etc/passwd", "bytes": 3, "crc32c": 1, "tokens": 3, "documents": 1}
    lies += [("a path", state | {"done": [[shard], []]})]
    lies += [("beside", state | {"done": [[shard | {"file": "train-00000.bin", "beside": [shard]}], []]})]
    for what, lie in lies:
        path.write_text(lie if isinstance(lie, str) else json.dumps(lie))
        said = refused(corpora["jsonl"], output, *words)
        assert "expected" in said, (what, said)
        assert "begin again" in said, (what, said)
    # Its own state is right again after all of that.
    path.write_text(good)
    prepare(corpora["jsonl"], output, *words)
    prepare(corpora["jsonl"], tmp_path / "alone", *words)
    assert files(output) == files(tmp_path / "alone")


def test_links_and_pipes_of_our_names_lead_nowhere(corpora, tmp_path):
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "package.json").write_text("{}")
    (precious / "notes").write_text("mine")
    before = files(precious)
    output = tmp_path / "out"
    output.mkdir()
    (output / WORK).symlink_to(precious)
    assert "is no folder of ours" in refused(corpora["tree"], output)
    (output / WORK).unlink()
    (output / WORK).mkdir()
    for name in ("lock", "train.bin.part"):
        (output / WORK / name).symlink_to(precious / "notes")
        assert "symbolic links" in refused(corpora["tree"], output)
        (output / WORK / name).unlink()
    shutil.rmtree(output / WORK)
    (output / "lowtide.json").symlink_to("/dev/zero")
    assert "it is no file" in refused(corpora["tree"], output)
    (output / "lowtide.json").unlink()
    os.mkfifo(output / "lowtide.json")
    assert "it is no file" in refused(corpora["tree"], output)
    (output / "lowtide.json").unlink()
    (output / WORK).mkdir(exist_ok=True)
    os.mkfifo(output / WORK / "job.json")
    assert "an earlier run" in refused(corpora["tree"], output)
    assert files(precious) == before


def test_a_manifest_that_lies_is_an_error(corpora, tmp_path):
    prepare(corpora["tree"], tmp_path / "out")
    path = tmp_path / "out" / "lowtide.json"
    good = json.loads(path.read_text())
    shard = good["splits"][0]["shards"][0]

    def splits(**changes: object) -> list[dict]:
        return [good["splits"][0] | {"shards": [shard | changes]}]

    for lie in (
        good | {"splits": splits(file="../../../etc/passwd")},
        good | {"splits": splits(file="/etc/passwd")},
        good | {"splits": splits(tokens=2**64 - 1)},
        good | {"splits": splits(bytes=-1)},
        good | {"splits": splits(beside=[{"file": "a/b", "bytes": 1, "crc32c": 1}])},
        good | {"tokenizer": good["tokenizer"] | {"vocabulary": 2**70}},
        good | {"counts": []},
        good | {"lowtide": 2},
    ):
        path.write_text(json.dumps(lie))
        assert "expected" in refused(corpora["tree"], tmp_path / "out")
        done = subprocess.run([COMMAND, "verify", tmp_path / "out"], capture_output=True, text=True)
        assert done.returncode == 1
        assert "panicked" not in done.stderr
        assert "expected" in done.stderr
    # Numbers that are right by themselves and wrong of the files.
    path.write_text(json.dumps(good | {"splits": splits(bytes=2**63)}))
    done = subprocess.run([COMMAND, "verify", tmp_path / "out"], capture_output=True, text=True)
    assert done.returncode == 1
    assert "were written" in done.stderr


# Memory.


def watched(run: subprocess.Popen[str]) -> int:
    """The most of RssAnon that was seen until the process ended."""
    most, status = 0, Path(f"/proc/{run.pid}/status")
    while run.poll() is None:
        with contextlib.suppress(OSError, StopIteration):
            line = next(line for line in status.read_text().splitlines() if line.startswith("RssAnon"))
            most = max(most, int(line.split()[1]) << 10)
        time.sleep(0.003)
    return most


def hold(source: Path | list[Path], output: Path, *words: object) -> int:
    run = start(source, output, *words)
    most = watched(run)
    _, err = run.communicate()
    assert run.returncode == 0, err
    return most


@pytest.fixture(scope="session")
def idle(tmp_path_factory):
    """What the process itself holds: the interpreter and its modules, with nothing to do."""
    folder = tmp_path_factory.mktemp("idle")
    (folder / "text").write_text("hello " * 20_000)
    return hold(folder / "text", folder / "out", "--tokenizer", "bytes", "--threads", 1, "--budget", "32MiB")


def within(most: int, idle: int, budget: int) -> None:
    print(f"RssAnon {(most - idle) / MIB:.1f} of {budget / MIB:.0f} MiB")
    assert most - idle <= budget


def line_of(path: Path, size: int, wrap: bool) -> int:
    """A document of so many bytes in one line; how many times its paragraph stands there."""
    paragraph = " ".join(texts(9, 40)).replace("\n", " ") + " "
    times = size // len(paragraph.encode()) + 1
    with path.open("w") as file:
        file.write('{"id": 1, "text": "' if wrap else "")
        for _ in range(times):
            file.write(json.dumps(paragraph, ensure_ascii=False)[1:-1] if wrap else paragraph)
        file.write('", "more": [1, 2]}\n{"text": "after"}\n' if wrap else "")
    return times


@pytest.mark.parametrize(
    "size",
    [
        pytest.param(24 * MIB, id="24MiB"),
        *(
            pytest.param(size, id=name, marks=pytest.mark.heavy)
            for name, size in [("200MiB", 200 * MIB), ("2GiB", 2 << 30)]
        ),
    ],
)
@pytest.mark.parametrize("name", ["one.jsonl", "one.txt"])
def test_a_document_larger_than_the_budget_stays_inside_it(tmp_path, idle, name, size):
    source, budget = tmp_path / name, (48 if size < 100 * MIB else 96) * MIB
    times = line_of(source, size, wrap=name.endswith("l"))
    most = hold(source, tmp_path / "out", "--budget", budget, "--cache", "drop")
    within(most, idle, budget)
    manifest = json.loads((tmp_path / "out" / "lowtide.json").read_text())
    # The ids of a paragraph, which ends with a space, are those of the whole again and again.
    few = tmp_path / "few.txt"
    line_of(few, 1, wrap=False)
    few.write_text(few.read_text() * 3)
    three = prepare(few, tmp_path / "few")["counts"]["longest"]
    few.write_text(few.read_text()[: len(few.read_text()) // 3 * 2])
    two = prepare(few, tmp_path / "fewer")["counts"]["longest"]
    assert manifest["counts"]["longest"] == two + (times - 2) * (three - two)
    shutil.rmtree(tmp_path / "out")
    source.unlink()


@pytest.mark.heavy
@pytest.mark.parametrize("words", [["--threads", "16"], ["--threads", "2", "--shuffle-documents", "1"]])
@pytest.mark.parametrize("tokenizer", ["gpt2", "o200k_base"])
def test_many_threads_and_another_order_stay_inside_the_budget(corpora, tmp_path, idle, words, tokenizer):
    budget = 160 * MIB
    sources = [*corpora["jsonl"]] * 8
    most = hold(
        sources, tmp_path / "out", *KINDS["jsonl"], *words, "--budget", budget, "--tokenizer", tokenizer
    )
    within(most, idle, budget)


@pytest.mark.heavy
def test_runs_without_a_place_to_cut_stay_inside_the_budget(tmp_path, idle):
    """Piece after piece that is as long as there is room for, on many threads."""
    source, budget = tmp_path / "runs.txt", 96 * MIB
    with source.open("w") as file:
        for number in range(200):
            file.write("ab" * (100_000 + 400 * number) + " ")
    most = hold(source, tmp_path / "out", "--budget", budget, "--threads", 8, "--split-lines")
    within(most, idle, budget)
    source.write_text("a" * (64 * MIB))
    said = refused(source, tmp_path / "long", "--budget", budget)
    assert "runs.txt: document 1 has" in said
    assert "bytes without a place where it could be cut" in said
    assert "a larger --budget has room for it" in said


@pytest.mark.heavy
def test_a_table_with_a_large_row_group_stays_inside_the_budget(tmp_path, idle):
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    source, budget = tmp_path / "rows.parquet", 128 * MIB
    rows = [text for seed in range(12) for text in texts(seed, 6000)]
    pq.write_table(pa.table({"text": rows}), source, row_group_size=len(rows), compression="zstd")
    assert pq.ParquetFile(source).metadata.row_group(0).total_byte_size > budget // 2
    within(hold(source, tmp_path / "out", "--budget", budget), idle, budget)
    # A page that unpacks to a gigabyte is refused before it is unpacked. Somebody else makes it: the memory
    # that it takes would stay with us, and every fork after it would be slow.
    code = """if True:
        import sys, pyarrow as pa, pyarrow.parquet as pq
        table = pa.table({"text": ["a" * (1 << 30)]})
        pq.write_table(table, sys.argv[1], compression="zstd", use_dictionary=False)
    """
    subprocess.run([sys.executable, "-c", code, source], check=True)
    run = start(source, tmp_path / "bomb", "--budget", budget)
    most = watched(run)
    _, err = run.communicate()
    assert run.returncode == 1
    assert "the budget has room for" in err
    assert "a larger --budget reads it" in err
    within(most, idle, budget)


@pytest.mark.heavy
def test_archives_that_unpack_to_a_thousand_times_stay_inside_the_budget(tmp_path, idle):
    budget = 96 * MIB
    plain = tmp_path / "bomb.txt"
    with plain.open("w") as file:
        for _ in range(1024):
            file.write("word " * (MIB // 5))
    for pack in (["gzip", "-k", "-1"], ["zstd", "-q", "-k", "--long=22"]):
        if shutil.which(pack[0]) is None:
            pytest.skip(f"there is no command {pack[0]} here to pack with")
        packed = plain.with_suffix(".txt.gz" if pack[0] == "gzip" else ".txt.zst")
        subprocess.run([*pack, plain], check=True)
        assert packed.stat().st_size < plain.stat().st_size // 100
        output = tmp_path / pack[0]
        within(hold(packed, output, "--budget", budget), idle, budget)
        shutil.rmtree(output)
        packed.unlink()
    # A window of 128 MiB does not fit.
    subprocess.run(["zstd", "-q", "-k", "--long=27", plain], check=True)
    said = refused(plain.with_suffix(".txt.zst"), tmp_path / "window", "--budget", budget)
    assert "a larger --budget reads it" in said


@pytest.mark.heavy
def test_a_tokenizer_of_hugging_face_stays_inside_the_budget(tmp_path, idle):
    tokenizers = pytest.importorskip("tokenizers")
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=20_000, special_tokens=["<|endoftext|>"], show_progress=False
    )
    sample = [path.read_text(errors="replace") for path in sorted(Path(os.__file__).parent.glob("*.py"))]
    made.train_from_iterator(sample, trainer)
    made.save(str(tmp_path / "tokenizer.json"))
    source, budget = tmp_path / "one.txt", 192 * MIB
    source.write_text("".join(sample)[: 24 * MIB] * 2)
    most = hold(source, tmp_path / "out", "--budget", budget, "--tokenizer", tmp_path / "tokenizer.json")
    within(most, idle, budget)
    import numpy as np

    ids = np.fromfile(tmp_path / "out" / "train.bin", "<u2")
    text = source.read_text()
    assert list(ids[:-1]) == made.encode(text[: len(text) // 2] * 2, add_special_tokens=False).ids
    source.write_text("a" * (32 * MIB))
    said = refused(source, tmp_path / "long", "--budget", budget, "--tokenizer", tmp_path / "tokenizer.json")
    assert "bytes without a place where it could be cut" in said


@pytest.mark.heavy
@pytest.mark.parametrize("words", [[], ["--shuffle-documents", "1"]])
def test_the_page_cache_is_left_as_it_was_found(tmp_path, words):
    source = tmp_path / "text.txt"
    line_of(source, 600 * MIB, wrap=False)
    os.sync()
    with source.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    output = tmp_path / "out"
    run = start(source, output, "--separator", "self", "--budget", "128MiB", "--cache", "drop", *words)
    most: dict[str, int] = {}
    while run.poll() is None:
        with contextlib.suppress(OSError):
            for path in [source, *output.rglob("*.part")]:
                kind = "source" if path == source else "spools" if "spool" in path.name else path.name
                now = sum(cached(p) for p in output.rglob("spool-*")) if kind == "spools" else cached(path)
                most[kind] = max(most.get(kind, 0), now)
        time.sleep(0.01)
    _, err = run.communicate()
    assert run.returncode == 0, err
    print({kind: f"{value / MIB:.0f} MiB" for kind, value in most.items()})
    assert most["source"] <= 48 * MIB
    assert all(value <= 40 * MIB for kind, value in most.items() if kind.startswith("train"))
    assert most.get("spools", 0) <= 128 * MIB
    assert cached(source) <= MIB
    assert cached(output / "train.bin") <= MIB

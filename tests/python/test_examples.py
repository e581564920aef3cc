"""The Python examples do what they say: the same losses, every window once, the truth found, flat memory.

Oracles: nanoGPT's own lines, an uninterrupted run, all windows of a file by NumPy, a truth that was written
down before, and the kernel.
"""

from __future__ import annotations

import collections
import contextlib
import importlib.util
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import time
import zlib
from pathlib import Path

import numpy as np
import psutil
import pytest
from test_memory import limited

import lowtide

torch = pytest.importorskip("torch", reason="torch is not installed")
pytestmark = [pytest.mark.heavy, pytest.mark.usefixtures("one_thread")]

EXAMPLES = Path(__file__).parents[2] / "examples"
TRAIN = EXAMPLES / "nanogpt" / "train.py"
MIB = 1 << 20
# One thread each, so that ranks and whatever else runs here do not wait for each other's spinning threads.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE")}
ENVIRONMENT |= {"OMP_NUM_THREADS": "1"}


@pytest.fixture
def one_thread(monkeypatch):
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def example(path):
    """The main function of an example, which finds what lies beside it, as a script does."""
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    spec = importlib.util.spec_from_file_location(f"example_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.main


def text(size, seed=0):
    """Words that a small model can learn a little about."""
    words = ["the", "tide", "was", "low", "and", "a", "boat", "lay", "on", "sand", "while", "gulls", "cried"]
    numbers = np.random.default_rng(seed).integers(0, len(words), size)
    return " ".join(words[n] + str(i % 1000) for i, n in enumerate(numbers))[:size]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A prepared folder with a validation split."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "text.txt").write_text("\n".join(text(700, seed) for seed in range(60)))
    words = {"tokenizer": "bytes", "split_lines": True, "val": 0.2}
    lowtide.prepare(folder / "text.txt", folder / "tokens", **words)
    return folder / "tokens"


def lines(trace):
    return [json.loads(line) for line in trace.read_text().splitlines()]


def losses(trace):
    return [line["loss"] for line in lines(trace)]


SMALL = ["--layers=2", "--width=32", "--block-size=32", "--sample=0"]


# Losses


def test_the_losses_are_those_of_nanogpt_to_the_last_bit(data, tmp_path):
    train, traces = example(TRAIN), {}
    for batches in ("nanogpt", "draws", "loader"):
        traces[batches] = tmp_path / batches
        train([str(data), *SMALL, "--steps=40", f"--batches={batches}", "--eval-every=20", "--seed=7",
               f"--trace={traces[batches]}", f"--checkpoint={tmp_path / 'c.pt'}"])  # fmt: skip
    assert lines(traces["nanogpt"]) == lines(traces["draws"])  # JSON has every bit of a float
    assert len(losses(traces["draws"])) == 40
    assert losses(traces["draws"]) != losses(traces["loader"])
    for trace in traces.values():
        assert np.mean(losses(trace)[-5:]) < losses(trace)[0] - 0.5, "it learns"


def test_stopped_and_resumed_it_is_the_uninterrupted_run(data, tmp_path, capsys):
    train = example(TRAIN)
    common = [str(data), *SMALL, "--batch-size=96", "--eval-every=5", "--decay-steps=30"]
    windows = (len(lowtide.tokens(data)) - 32) // 32
    assert windows // 96 < 12, "the second part begins in another epoch"

    def run(name, steps, *more):
        train([*common, f"--steps={steps}", f"--trace={tmp_path / name}",
               f"--checkpoint={tmp_path / name}.pt", *more])  # fmt: skip
        said = capsys.readouterr().out
        return re.findall(r"^step \d+: validation loss .*", said, re.M), re.findall(
            r"^step .*: loss [\d.]+", said, re.M
        )

    whole = run("whole", 30)
    parts = [run("parts", steps, "--resume") for steps in (7, 18, 30)]  # the first has nothing to resume from
    assert lines(tmp_path / "parts") == lines(tmp_path / "whole")
    assert [line["step"] for line in lines(tmp_path / "whole")] == list(range(30))
    validations = [line for part in parts for line in part[0]]
    assert set(whole[0]) <= set(validations)
    assert len(whole[0]) == 7
    first, second = (torch.load(f"{tmp_path / name}.pt") for name in ("whole", "parts"))
    assert first["loader"] == second["loader"]
    assert first["step"] == second["step"] == 30
    for name, tensor in first["model"].items():
        assert torch.equal(tensor, second["model"][name]), name


def test_a_checkpoint_of_other_tokens_is_refused(data, tmp_path):
    train = example(TRAIN)
    settings = [*SMALL, "--eval-every=0", f"--checkpoint={tmp_path / 'c.pt'}"]
    train([str(data), *settings, "--steps=1"])
    (tmp_path / "other.txt").write_text(text(9000, 99))
    lowtide.prepare(tmp_path / "other.txt", tmp_path / "other", tokenizer="bytes")
    with pytest.raises(ValueError, match="other data"):
        train([str(tmp_path / "other"), *settings, "--steps=2", "--resume"])
    assert torch.load(tmp_path / "c.pt")["step"] == 1


def test_it_says_what_it_costs(data, tmp_path, capsys):
    settings = ["--steps=12", "--log-every=4", "--sample=20", "--eval-every=6"]
    example(TRAIN)([str(data), *settings, f"--checkpoint={tmp_path / 'c.pt'}"])
    said = capsys.readouterr().out
    numbers = r"tokens/s, loader ([\d.]+)%, heap ([\d,]+) MiB, mapped ([\d,]+) MiB$"
    logged = re.findall(r"^step (\d+): loss [\d.]+, [\d,]+ " + numbers, said, re.M)
    assert [line[0] for line in logged] == ["4", "8", "12"]
    assert float(logged[-1][1]) < 5, "of the time of a step; on a quiet machine below 1"
    memory = psutil.Process().memory_info()
    heap, mapped = (int(number.replace(",", "")) * MIB for number in logged[-1][2:])
    assert heap + mapped == pytest.approx(memory.rss, rel=0.1)
    peaks = re.search(
        r"^at most: heap ([\d,]+) MiB, mapped ([\d,]+) MiB, page cache of the tokens 0 MiB$", said, re.M
    )
    assert int(peaks[1].replace(",", "")) * MIB > 0.9 * heap
    assert len(said.split("page cache of the tokens 0 MiB\n")[1]) > 5, "a sample"


# Ranks


def torchrun(ranks, *arguments):
    command = [
        "-m",
        "torch.distributed.run",
        "--standalone",
        f"--nproc-per-node={ranks}",
        str(TRAIN),
        *arguments,
    ]
    return subprocess.Popen(
        [sys.executable, *command], env=ENVIRONMENT, start_new_session=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def wait_for_step(trace, step, process):
    """Until every rank that writes has come so far."""
    deadline = time.monotonic() + 120
    while not (trace.exists() and any(line["step"] >= step for line in whole_lines(trace))):
        assert process.poll() is None, process.stderr.read()[-4000:]
        assert time.monotonic() < deadline, "it does not come so far"
        time.sleep(0.01)


def whole_lines(trace):
    written = trace.read_text()
    return [json.loads(line) for line in written[: written.rfind("\n") + 1].splitlines()]


def workers(process):
    """The processes of the ranks, by rank."""
    found = {}
    for child in psutil.Process(process.pid).children(recursive=True):
        with contextlib.suppress(psutil.Error):
            rank = child.environ().get("RANK")
            if rank is not None:
                found[int(rank)] = child
    return found


def test_killed_and_restarted_with_other_ranks_every_window_comes_once(tmp_path):
    """Two ranks, one of them killed; one rank; three, all killed, the launcher too; one, to the end.

    What was done after the last checkpoint is done again: a step is what the last run made of it.
    """
    block, windows, batch = 16, 3600, 12
    steps = windows // batch
    (tmp_path / "text.txt").write_text(
        text(block * (windows + 1) + 5 - 1)
    )  # 5 more: the cuts may lie elsewhere
    lowtide.prepare(tmp_path / "text.txt", tmp_path / "data", tokenizer="bytes")
    stream = np.fromfile(tmp_path / "data" / "train.bin", "<u2").astype(np.int64)
    assert len(stream) == block * (windows + 1) + 5

    common = [
        str(tmp_path / "data"), "--layers=1", "--width=32", f"--block-size={block}", f"--batch-size={batch}",
        "--sample=0", "--eval-every=0", "--save-every=16", f"--decay-steps={steps}",
    ]  # fmt: skip
    runs = [tmp_path / f"run-{n}" for n in range(4)]
    resume = [*common, f"--checkpoint={tmp_path / 'c.pt'}", "--resume"]
    train = example(TRAIN)

    with torchrun(2, *resume, f"--steps={steps}", f"--trace={runs[0]}") as process:
        wait_for_step(runs[0], 40, process)
        ranks = workers(process)
        assert sorted(ranks) == [0, 1]
        ranks[1].kill()
        assert process.wait(60) != 0
    stop = torch.load(tmp_path / "c.pt")["step"] + 30
    train([*resume, f"--steps={stop}", f"--trace={runs[1]}"])
    with torchrun(3, *resume, f"--steps={steps}", f"--trace={runs[2]}") as process:
        wait_for_step(runs[2], stop + 30, process)
        ranks = workers(process)
        assert sorted(ranks) == [0, 1, 2]
        for killed in (process, *ranks.values()):
            killed.send_signal(signal.SIGKILL)
        assert process.wait(60) == -signal.SIGKILL
        psutil.wait_procs(ranks.values(), 30)
    train([*resume, f"--steps={steps}", f"--trace={runs[3]}"])

    done = collections.defaultdict(dict)  # of each step, what each rank did
    for trace, ranks in zip(runs, (2, 1, 3, 1), strict=True):
        written = whole_lines(trace)
        first = min(line["step"] for line in written)
        assert first % 16 == 0 or first == stop, "where the checkpoint was"
        for step in [step for step in done if step >= first]:
            del done[step]
        for line in written:
            assert line["rank"] < ranks
            assert len(line["windows"]) == batch // ranks
            done[line["step"]][line["rank"]] = line
    assert sorted(done) == list(range(steps))
    assert {len(ranks) for ranks in done.values()} == {1, 2, 3}

    seen = collections.Counter(
        window for ranks in done.values() for line in ranks.values() for window in line["windows"]
    )
    matches = [
        phase
        for phase in range(len(stream) - windows * block)
        if seen == collections.Counter(
            zlib.crc32(stream[phase + k * block : phase + (k + 1) * block]) for k in range(windows)
        )
    ]  # fmt: skip
    assert len(matches) == 1, "every window of one cut of the stream, each once"

    # The same windows in the same steps as without any of this, and so, but for rounding, the same losses.
    train(
        [
            *common,
            f"--steps={steps}",
            f"--trace={tmp_path / 'whole'}",
            f"--checkpoint={tmp_path / 'whole.pt'}",
        ]
    )
    for line in lines(tmp_path / "whole"):
        ranks = [done[line["step"]][rank] for rank in sorted(done[line["step"]])]
        assert line["windows"] == list(itertools.chain(*(rank["windows"] for rank in ranks)))
        assert np.mean([rank["loss"] for rank in ranks]) == pytest.approx(line["loss"], rel=1e-3)


def test_a_batch_that_cannot_be_shared_out_is_refused(data, monkeypatch):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "5")
    with pytest.raises(SystemExit, match="--batch-size 12 cannot be shared out over 5 ranks"):
        example(TRAIN)([str(data)])


# Memory


def inside(group):
    def join():
        (group / "cgroup.procs").write_text(str(os.getpid()))

    return join


def run(command, group, timeout=300):
    done = subprocess.run(
        [sys.executable, *map(str, command)], env=ENVIRONMENT, capture_output=True, text=True,
        timeout=timeout, preexec_fn=inside(group),
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    return done.stdout


def test_training_in_a_tenth_of_the_file_is_flat(data, tmp_path):
    """A prepared folder whose train.bin goes on as a hole: its pages are read and cached like any others."""
    size = 5000 * MIB
    folder = tmp_path / "data"
    folder.mkdir()
    for file in data.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    os.truncate(folder / "train.bin", size)
    manifest = json.loads((folder / "lowtide.json").read_text())
    (split,) = (split for split in manifest["splits"] if split["name"] == "train")
    split["tokens"] = split["shards"][0]["tokens"] = size // 2
    split["shards"][0]["bytes"] = size
    (folder / "lowtide.json").write_text(json.dumps(manifest))
    assert len(lowtide.tokens(folder)) == size // 2

    settings = [
        "--layers=2",
        "--width=64",
        "--block-size=64",
        "--steps=300",
        "--sample=0",
        "--eval-every=100",
    ]
    with limited(size // 10) as group:
        watch = [
            "-m",
            "lowtide",
            "watch",
            "--quiet",
            f"--json={tmp_path / 'watch.json'}",
            f"--file={folder}",
            "--",
        ]
        train = [sys.executable, TRAIN, folder, *settings, f"--checkpoint={tmp_path / 'c.pt'}"]
        said = run([*watch, *train], group)
    assert "step 300: loss" in said
    report = json.loads((tmp_path / "watch.json").read_text())
    assert (report["verdict"], report["killed"]) == ("flat", None), report["sentence"]
    # A page cache that fills the limit would be flat too, as the kernel takes it back. This one stays empty.
    assert report["peak_cache_bytes"] < 16 * MIB


# Pages


def blocks(page):
    return "".join(re.findall(r"^```\n(.*?)^```", page.read_text(), re.M | re.S))


@pytest.mark.parametrize("name", ["nanogpt", "rows"])
def test_what_a_page_names_is_there(name, capsys):
    page = EXAMPLES / name / "README.md"
    commands = re.findall(r"(\w+\.py)(.*)$", blocks(page), re.M)
    programs = {file.name for file in page.parent.glob("*.py") if "__main__" in file.read_text()}
    assert {program for program, _ in commands} == programs
    for program, arguments in commands:
        with pytest.raises(SystemExit, match="0"):
            example(page.parent / program)(["--help"])
        known = set(re.findall(r"--[\w-]+", capsys.readouterr().out))
        assert set(re.findall(r"--[\w-]+", arguments)) <= known, program
    for link in re.findall(r"\]\(([^)#]+)", page.read_text()):
        assert (page.parent / link).exists(), link

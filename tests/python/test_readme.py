"""The examples of README.md and of docs/: every block of Python is run, in its order, on small files."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import lowtide

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page: Path, language: str) -> list[tuple[int, str]]:
    """The blocks of a page, each with its first line."""
    text = page.read_text()
    fences = re.finditer(rf"^```{language}\n(.*?)^```$", text, re.M | re.S)
    return [(text.count("\n", 0, fence.start(1)) + 1, fence.group(1)) for fence in fences]


def is_program(code: str) -> bool:
    """Whether a block is a file of its own, which begins with its name."""
    return code.startswith("# ") and code.split("\n")[0].endswith(".py")


# What the fast tier does not have: blocks that use one of them are run by the heavy one.
HEAVY = ("torch", "torchdata", "h5py", "zarr", "ray")


def needs(code: str) -> set[str]:
    """The heavy packages that a block uses; in a comment they may be named."""
    return set(re.findall(rf"\b({'|'.join(HEAVY)})\b", re.sub(r"#.*", "", code)))


@pytest.fixture
def names(tmp_path, monkeypatch):
    """A folder with the files that the pages name, and what they leave to the reader."""
    monkeypatch.chdir(tmp_path)
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    numbers = np.random.default_rng(0)
    rows = numbers.random((1000, 128), dtype="float32")
    np.save("rows.npy", rows)
    np.save("labels.npy", np.arange(1000))
    np.save("halves.npy", rows.astype("f2"))
    np.save("old.npy", rows.astype(">f4"))
    rows.tofile("rows.bin")
    Path("parts").mkdir()
    for name in ("part-0.npy", "part-1.npy", "parts/part-0.npy", "parts/part-1.npy"):
        np.save(name, rows[:10])
    stories = [
        f"Story {n}: once upon a time there was a tide, and it was low. " * (n % 7 + 1) for n in range(300)
    ]
    Path("stories.jsonl").write_text("".join(json.dumps({"text": story}) + "\n" for story in stories))
    for split in ("train", "val"):
        numbers.integers(0, 50257, 200_000).astype("<u2").tofile(f"{split}.bin")
    return {
        "lowtide": lowtide,
        "np": np,
        "train": lambda *chunk: None,
        "mask": rows[:, 0] > 0.5,
        "rows": [3, 1, 1],
        "buffer": np.empty((3, 128), "float32"),
        "labels": lowtide.open("labels.npy"),
        "memmap_array": np.memmap("rows.bin", dtype="float32", shape=(1000, 128), mode="r"),
    }


def run(page: Path, names: dict, wanted) -> int:
    ran = 0
    for line, code in blocks(page, "python"):
        if wanted(code) and not is_program(code):
            exec(compile("\n" * (line - 1) + code, str(page), "exec"), names)
            ran += 1
    return ran


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_examples_run(page, names):
    expected = sum(not needs(code) and not is_program(code) for _, code in blocks(page, "python"))
    assert run(page, names, lambda code: not needs(code)) == expected


def test_there_are_examples():
    """The pages are where they are looked for, and their fences are found."""
    assert len(blocks(ROOT / "README.md", "python")) >= 2
    assert len(blocks(ROOT / "docs" / "arrays.md", "python")) >= 4
    assert len(blocks(ROOT / "docs" / "tokens.md", "python")) >= 8
    for page in PAGES:
        assert page.read_text().count("```") % 2 == 0


def anchors(page: Path) -> set[str]:
    """The places in a page that a link can lead to, as a forge names them: after its headings."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S)
    return {
        re.sub(r"[^\w\- ]", "", re.sub(r"\]\([^)]*\)", "]", title).lower()).replace(" ", "-")
        for title in re.findall(r"^#+ (.*)$", text, re.M)
    }


def test_links_lead_somewhere():
    """On a forge, where pages are files; docs/check.py does the same for the site."""
    for page in [
        *PAGES,
        *(ROOT / name for name in ("BENCHMARKS.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")),
    ]:
        for link in re.findall(
            r"\]\(([^)\s]+)", re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S)
        ):
            if re.match("https?:", link):
                continue
            path, _, anchor = link.partition("#")
            target = page.parent / path if path else page
            assert target.exists(), f"{page.name}: {link}"
            assert not anchor or anchor in anchors(target), f"{page.name}: {link}"


def test_the_formats_are_all_named(names):
    """Each dialect has its line in the page of formats, and no other has."""
    table = (ROOT / "docs" / "formats.md").read_text().split("| `format` |")[1].split("\n\n")[0]
    table = re.findall(r"^\| `(\w+)` \|", table, re.M)
    with pytest.raises(ValueError, match="not a token format") as caught:
        lowtide.tokens("train.bin", format="none")
    known = re.findall(r'"(\w+)"', str(caught.value).split("hint: ")[1])
    assert table == known


@pytest.mark.heavy
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
@pytest.mark.filterwarnings("default")  # those of torch, torchdata, zarr and Ray are not ours
def test_all_examples_run(page, names):
    packages = sorted(set().union(*(needs(code) for _, code in blocks(page, "python"))))
    for package in packages:
        pytest.importorskip(package)
    if "ray" not in packages:
        run(page, names, lambda code: True)
        return
    ray = pytest.importorskip("ray.data", reason="Ray is not installed") and sys.modules["ray"]
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=256 << 20)
    try:
        run(page, names, lambda code: True)
    finally:
        ray.shutdown()


NANOGPT = Path(__file__).with_name("nanogpt_train.py.txt").read_text()


def patched(command: list[str]) -> str:
    """nanoGPT's lines after the README's diff."""
    ((_, diff),) = blocks(ROOT / "README.md", "diff")
    Path("train.py").write_text("\n" * 40 + NANOGPT)  # they stand elsewhere in other versions of the file
    done = subprocess.run(command, input=diff, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return Path("train.py").read_text()


@pytest.mark.parametrize("command", [["patch", "-p1"], ["git", "apply"]], ids=lambda command: command[0])
def test_the_diff_applies_to_nanogpt(names, command):
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    lines = patched(command).strip().splitlines()
    compile("\n".join(lines), "train.py", "exec")
    assert len([line for line in lines if "lowtide" in line]) == 3
    assert not any("memmap" in line for line in lines)
    assert lines[-1] == NANOGPT.splitlines()[-1]


@pytest.mark.heavy
def test_the_three_lines_give_nanogpt_s_batches(names):
    torch = pytest.importorskip("torch")
    Path("data").symlink_to(".")
    batches = []
    for code in (NANOGPT, patched(["patch", "-p1"] if shutil.which("patch") else ["git", "apply"])):
        given = {"dataset": ".", "block_size": 64, "batch_size": 12, "device": "cpu", "device_type": "cpu"}
        exec(f"import os\nimport numpy as np\nimport torch\n{code}", given)
        torch.manual_seed(1337)
        batches.append([given["get_batch"](split) for split in ["train", "val"] * 50])
    for before, after in zip(*batches, strict=True):
        assert all(torch.equal(*pair) for pair in zip(before, after, strict=True))
        assert {part.dtype for part in after} == {torch.int64}


@pytest.mark.heavy
def test_the_program_for_several_gpus_runs_and_goes_on(names):
    torch = pytest.importorskip("torch")
    programs = [code for _, code in blocks(ROOT / "docs" / "tokens.md", "python") if is_program(code)]
    assert len(programs) == 1
    Path("train.py").write_text(programs[0])
    positions = []
    for ranks in (2, 1):  # from the checkpoint of two ranks, one goes on
        command = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks), "train.py"]
        done = subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        positions.append(torch.load("checkpoint.pt")["loader"]["position"])
    assert positions == [10 * 2 * 4, 10 * 2 * 4 + 10 * 4]

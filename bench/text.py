"""Text to tokens, both sides in one run: a core against Python's tiktoken, two cores against one, and all of `lowtide
prepare` against the way nanoGPT goes (bench/text_side.py). The corpus is Python's standard library, again and again.

tiktoken fetches its vocabularies; here they come from our side, and count only if their SHA-256 is the one that the
package carries (crates/lowtide-text/tests/oracle).
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from harness import HERE, Bench, warm

sys.path.insert(0, str(HERE.parent / "crates/lowtide-text/tests/oracle"))
from token_oracles import binary, standard_library, tiktoken_encoding

COMMAND = Path(sys.executable).with_name("lowtide")


def make(path: Path, size: int) -> None:
    """JSON lines of the modules of the standard library, until there are so many bytes. Empty ones are left out:
    nanoGPT writes an end of text for them, we do not.
    """
    lines = [json.dumps({"text": text}) + "\n" for text in standard_library() if text]
    written = 0
    with path.open("w") as file:
        while written < size:
            for line in lines:
                written += file.write(line)
        file.flush()
        os.fsync(file.fileno())


def corpus_texts() -> list[str]:
    return [text.replace("\0", " ") for text in standard_library()]


def processor_seconds(pid: int) -> float:
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


def text_encode(b: Bench, path: Path) -> None:
    """One core, the processor's own time: other load meets both sides alike, and neither is paid for it."""
    texts = corpus_texts()
    size = sum(len(text.encode()) for text in texts) / 1e6
    file = b.folder / "texts"
    file.write_text("\0".join(texts), newline="")
    for name in ("gpt2", "cl100k_base", "o200k_base"):
        theirs = tiktoken_encoding(name)
        ours = subprocess.Popen(
            [binary(), name, "--time", file], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        counts: set[int] = set()

        def lowtide(_: int, ours=ours, counts=counts) -> dict:
            start = processor_seconds(ours.pid)
            print(file=ours.stdin, flush=True)
            counts.add(int(ours.stdout.readline().split()[1]))
            return {"rate": size / (processor_seconds(ours.pid) - start), "unit": "MB/s"}

        def tiktoken(_: int, theirs=theirs, counts=counts) -> dict:
            start = time.thread_time()
            counts.add(sum(len(theirs.encode_ordinary(text)) for text in texts))
            return {"rate": size / (time.thread_time() - start), "unit": "MB/s"}

        lowtide(0)  # warms up
        tiktoken(0)
        what = f"{name}, {size:.0f} MB of Python, one core"
        best = b.turns(f"text_encode_{name}", what, {"lowtide": lowtide, "tiktoken": tiktoken}, False, path)
        assert len(counts) == 1, "both sides give the same number of tokens"
        ours.stdin.close()
        ours.wait()
        ratio = best["lowtide"]["rate"] / best["tiktoken"]["rate"]
        b.check("text_encode", f"{name}: one core against tiktoken's encode_ordinary", ratio, floor=2)


def family(pid: int) -> list[int]:
    """A process and all that came from it."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(one for child in children for one in family(int(child)))]


def anonymous(pid: int) -> int:
    return int(Path(f"/proc/{pid}/status").read_text().partition("RssAnon:")[2].split()[0]) << 10


def timed(command: list, size: int, before: Callable[[], None] | None = None) -> dict:
    """A process from its start to its end: bytes of input a second, and the most that its tree held."""
    begun = time.perf_counter()
    child = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, text=True, preexec_fn=before)
    most = 0
    while True:
        with contextlib.suppress(OSError, IndexError):  # some are ending
            most = max(most, sum(map(anonymous, family(child.pid))))
        # Looking takes a part of a core that one of the sides would use: not often.
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(0.1)
            break
    end = time.perf_counter() - begun
    said = child.stdout.read() if child.stdout else ""
    if child.returncode != 0:
        return {"rate": 0.0, "died": child.returncode}
    result = {"rate": size / end / 1e6, "unit": "MB/s", "seconds": end, "RssAnon_of_all": most}
    with contextlib.suppress(json.JSONDecodeError):
        last = said.strip().splitlines()[-1] if said.strip() else "{}"
        result |= {"said": json.loads(last)}
    return result | {"note": f"{end:.1f} s, RssAnon of all {most >> 20} MiB"}


def prepare(b: Bench, path: Path, output: Path, *words: object, before=None) -> dict:
    shutil.rmtree(output, ignore_errors=True)
    warm(path)
    return timed([COMMAND, "--quiet", "prepare", path, "-o", output, *words], path.stat().st_size, before)


def text_cores(b: Bench, path: Path) -> None:
    """The same command, allowed on one core and on two."""
    cores = sorted(os.sched_getaffinity(0))[:2]

    def on(count: int) -> Callable[[int], dict]:
        pin = lambda: os.sched_setaffinity(0, cores[:count])  # noqa: E731
        return lambda _: prepare(b, path, b.folder / "out", before=pin)

    what = "lowtide prepare, from JSON lines to nanoGPT's file, bytes of input a second"
    sides = {"two cores": on(2), "one core": on(1)}
    best = b.turns("text_cores", what, sides, False, path)
    ratio = best["two cores"]["rate"] / best["one core"]["rate"]
    b.check("text_cores", "two cores against one", ratio, floor=1.8)


def text_prepare(b: Bench, path: Path) -> None:
    """All of it, as people run it: JSON lines in the page cache to train.bin and val.bin."""
    theirs, size = b.folder / "nanogpt", path.stat().st_size

    def nanogpt(_: int) -> dict:
        shutil.rmtree(theirs, ignore_errors=True)
        warm(path)
        result = timed([sys.executable, HERE / "text_side.py", path, theirs], size)
        if "said" in result:
            said = result["said"]
            # Loading turns the JSON into an Arrow table, once: not what is compared.
            rest = said["split_map"] + said["write"]
            result |= {"rate": size / rest / 1e6, "seconds_all": result["seconds"], "seconds": rest}
            result["note"] = (
                f"{rest:.1f} s, and {said['load']:.1f} s to load; " + result["note"].partition(", ")[2]
            )
        return result

    val = ["--val", 0.0005]
    sides: dict[str, Callable[[int], dict]] = {
        "lowtide": lambda _: prepare(b, path, b.folder / "out", *val),
        "lowtide, documents shuffled": lambda _: prepare(
            b, path, b.folder / "shuffled", *val, "--shuffle-documents", 2357
        ),
        "nanoGPT's prepare.py": nanogpt,
    }
    what = "to train.bin and val.bin, bytes of input a second"
    best = b.turns("text_prepare", what, sides, False, path)
    counts = {folder: tokens(b.folder / folder) for folder in ("out", "shuffled", "nanogpt")}
    assert len(set(counts.values())) == 1, counts
    for label in ("lowtide", "lowtide, documents shuffled"):
        ratio = best[label]["rate"] / best["nanoGPT's prepare.py"]["rate"]
        b.check("text_prepare", f"{label} against nanoGPT's way", ratio, floor=3)


def tokens(folder: Path) -> int:
    """Tokens of both splits: which documents are for validation is each side's own."""
    return sum((folder / name).stat().st_size // 2 for name in ("train.bin", "val.bin"))


ALL = [text_encode, text_cores, text_prepare]

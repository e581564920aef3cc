"""Memory of loaders by the kernel's own numbers: within the budget, over thousands of batches."""

import json

import numpy as np
import pytest

MIB = 1 << 20
BUDGET = 48 * MIB
# What nobody counts: Python's own objects, the stacks of threads, the batch in the caller's hand.
SLACK = 6 * MIB

RUN = """if True:
    import ctypes, json, os, re, sys, time, lowtide, numpy as np
    paths, access, cache, order, batches = json.loads(sys.argv[1])
    libc = ctypes.CDLL(None, use_errno=True)
    def cached():
        total = 0
        for path in paths:
            with open(path, "rb") as file:
                answer = (ctypes.c_uint64 * 5)()
                if libc.syscall(451, file.fileno(), (ctypes.c_uint64 * 2)(0, 0), answer, 0):
                    return None
                total += answer[0] * 4096
        return total
    def memory():
        text = open("/proc/self/status").read()
        return sum(int(kib) << 10 for kib in re.findall(r"^Rss(?:Anon|File):\\s+(\\d+) kB", text, re.M))
    if cache == "drop":
        for path in paths:
            with open(path, "rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    t = lowtide.tokens(paths, access=access, cache=cache, budget=int(sys.argv[2]))
    warm = lowtide.tokens(paths[:1], access="read", budget="4MiB").loader(2, 8)
    next(warm), next(warm)
    del warm
    cache_before = cached()
    before = memory()
    most, most_cached = 0, 0
    loader = t.loader(12, 1024, order=order, epochs=None)
    for i, (x, y) in enumerate(loader):
        if i % 50 == 0:
            most = max(most, memory() - before)
            if cache == "drop" and i % 200 == 0 and cache_before is not None:
                most_cached = max(most_cached, cached() - cache_before)
        if i == batches:
            break
    print(json.dumps([most, most_cached, loader.access]))
"""


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    """384 MiB of tokens in three files."""
    folder = tmp_path_factory.mktemp("tokens")
    block = np.random.default_rng(0).integers(0, 50257, 64 << 20).astype("<u2")
    paths = []
    for i in range(3):
        paths.append(str(folder / f"{i}.bin"))
        block.tofile(paths[-1])
    yield paths
    for path in paths:
        (folder / path).unlink()


@pytest.mark.parametrize("order", ["shuffled", "with_replacement"])
@pytest.mark.parametrize(
    ("access", "cache", "files"),
    [
        ("remap", "keep", 1),
        ("advise", "keep", 1),
        ("advise", "keep", 3),
        ("read", "keep", 1),
        ("direct", "auto", 3),
        ("auto", "auto", 3),
        ("read", "drop", 3),
        ("direct", "drop", 1),
        ("auto", "drop", 1),
    ],
)
def test_a_loader_stays_within_its_budget(python, shards, access, cache, order, files):
    batches = 2000 if access == "remap" else 6000
    arguments = json.dumps([shards[:files], access, cache, order, batches])
    most, cached, _ = json.loads(python(RUN, arguments, BUDGET, timeout=300))
    assert most <= BUDGET + SLACK, f"RssAnon + RssFile grew by {most / MIB:.1f} MiB"
    assert cached <= BUDGET, f"the page cache grew by {cached / MIB:.1f} MiB"


def test_a_held_map_is_seen_to_grow(python, shards):
    """The problem itself; otherwise the test above would prove nothing."""
    arguments = json.dumps([shards[:1], "map", "keep", "with_replacement", 4000])
    most, _, _ = json.loads(python(RUN, arguments, BUDGET))
    assert most > BUDGET + SLACK

"""Batches of token windows, nanoGPT's way or from Lowtide's loader, and how many came in the time."""

import json
import signal
import sys
import time

import numpy as np

signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started us ends us
way, path = sys.argv[1:3]
batch_size, block_size, seed, limit = int(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5]), float(sys.argv[6])
if way == "lowtide":
    import lowtide

    def batches():
        """Lowtide's loader: windows from anywhere, as nanoGPT draws them."""
        tokens = lowtide.tokens(path, dtype="uint16", format="raw")
        yield from tokens.loader(
            batch_size, block_size, order="with_replacement", seed=seed, rank=0, world_size=1
        )
else:

    def batches():
        """nanoGPT's get_batch, in NumPy: a new map for every batch, or its memory would grow."""
        random = np.random.default_rng(seed)
        while True:
            data = np.memmap(path, dtype=np.uint16, mode="r")
            ix = random.integers(0, len(data) - block_size, batch_size)
            x = np.stack([data[i : i + block_size].astype(np.int64) for i in ix])
            y = np.stack([data[i + 1 : i + 1 + block_size].astype(np.int64) for i in ix])
            yield x, y


print("ready", flush=True)
sys.stdin.readline()
began, windows, wrong = time.perf_counter(), 0, None
for x, y in batches():
    if wrong is None:
        wrong = not (x.shape == y.shape == (batch_size, block_size) and (x[:, 1:] == y[:, :-1]).all())
    windows += len(x)
    if time.perf_counter() - began > limit:
        break
answer = {"rows": windows, "seconds": time.perf_counter() - began}
if wrong:
    answer["error"] = f"{way}: y is not x shifted by one"
print(json.dumps(answer), flush=True)
sys.stdin.readline()

"""One way of the demo: go through the file shuffled, for at most so many seconds, and say how far it got."""

import json
import sys
import time

import numpy as np

way, path, rows_per_chunk, limit = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
if way == "lowtide":
    import lowtide

    def chunks():
        """Lowtide, with its defaults."""
        yield from lowtide.open(path).shuffled(rows_per_chunk, seed=1)
else:

    def chunks():
        """NumPy, as people write it; "recreate" makes a new map for every chunk."""
        rows = np.load(path, mmap_mode="r")
        order = np.random.default_rng(1).permutation(len(rows))
        for start in range(0, len(order), rows_per_chunk):
            if way == "recreate":
                rows = np.load(path, mmap_mode="r")
            yield rows[order[start : start + rows_per_chunk]]


print("ready", flush=True)
sys.stdin.readline()
began, seen, total = time.perf_counter(), 0, 0.0
for chunk in chunks():
    seen += len(chunk)
    total += float(chunk[:, 0].sum(dtype="float64"))  # somebody uses the rows
    if time.perf_counter() - began > limit:
        break
print(json.dumps({"rows": seen, "seconds": time.perf_counter() - began, "sum": total}), flush=True)
sys.stdin.readline()

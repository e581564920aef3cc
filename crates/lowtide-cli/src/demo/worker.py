"""One way of the demo: go through the file in the given order, and say how far it got in its time."""

import json
import platform
import signal
import sys
import sysconfig
import time

import numpy as np

# So few rows are asked for at once where each of them has to be waited for: the time is kept all the same.
LEAST = 32
# A request that takes less than this can be twice as large.
QUICK = 0.05

signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started us ends us
way, path, order_path = sys.argv[1:4]
rows_per_chunk, seed, limit = int(sys.argv[4]), int(sys.argv[5]), float(sys.argv[6])
if way == "lowtide":
    import lowtide

    def chunks():
        """Lowtide, with its defaults."""
        yield from lowtide.open(path).shuffled(rows_per_chunk, seed=seed)
else:
    order = np.load(order_path)  # the order that Lowtide has under this seed

    def chunks():
        """NumPy, as people write it; "recreate" makes a new map for every chunk, as nanoGPT does."""
        rows, at, piece = np.load(path, mmap_mode="r"), 0, LEAST
        while at < len(order):
            if way == "recreate" and at % rows_per_chunk == 0:
                rows = np.load(path, mmap_mode="r")
            end = min(at + piece, (at // rows_per_chunk + 1) * rows_per_chunk)
            asked = time.perf_counter()
            yield rows[order[at:end]]
            if time.perf_counter() - asked < QUICK:
                piece = min(2 * piece, rows_per_chunk)
            at = end


print("ready", flush=True)
sys.stdin.readline()
began, seen, total, first = time.perf_counter(), 0, 0.0, None
for chunk in chunks():
    if first is None:
        first = chunk[:8, 0].tolist()
    seen += len(chunk)
    total += float(chunk[:, 0].sum(dtype="float64"))  # somebody uses the rows
    if time.perf_counter() - began > limit:
        break
answer = {"rows": seen, "seconds": time.perf_counter() - began, "sum": total, "first": first}
answer |= {"python": platform.python_version(), "numpy": np.__version__}
answer["stdlib"] = sysconfig.get_path("stdlib")  # a corpus that every machine has
print(json.dumps(answer), flush=True)
sys.stdin.readline()

"""One way of ``lowtide bench``: go through the file for so many seconds, and say how far it got."""

import itertools
import json
import os
import platform
import signal
import sys
import threading
import time

import numpy as np

import lowtide

# Beyond this many rows an order of its own would cost NumPy more memory and time than the reading.
PERMUTED = 1 << 24
# A chunk that comes sooner than this was ready.
READY = 0.05

signal.signal(signal.SIGINT, signal.SIG_DFL)
path, job = sys.argv[1], json.loads(sys.argv[2])
way, shuffled, rows_per_chunk, limit = job["way"], job["shuffled"], job["chunk_rows"], job["seconds"]
length = job["shape"][0]


class NumPy:
    """np.memmap as people write it, held or made anew for every chunk."""

    ahead = 0

    def __init__(self):
        """Draw the order beforehand: it is not what is measured."""
        self.access, self.why, self.held = None, None, None
        self.random = np.random.default_rng(1)
        few = shuffled and length <= PERMUTED
        self.order = self.random.permutation(length) if few else None

    def map(self):
        """Map the file."""
        offset, shape, order = job["offset"], tuple(job["shape"]), job["memory_order"]
        return np.memmap(path, job["dtype"], "r", offset=offset, shape=shape, order=order)

    def chunks(self, _epoch):
        """One pass."""
        rows = self.held = self.map()  # held to the end, whatever becomes of the loop
        for start in range(0, length, rows_per_chunk):
            if way == "recreate":
                rows = self.held = self.map()
            stop = min(start + rows_per_chunk, length)
            if not shuffled:
                yield np.array(rows[start:stop])  # a slice alone would read nothing
            elif self.order is not None:
                yield rows[self.order[start:stop]]
            else:
                yield rows[self.random.integers(0, length, stop - start)]


class Lowtide:
    """Lowtide with one way of access."""

    def __init__(self):
        """Nothing is opened yet: opening is measured."""
        self.array, self.it = None, None
        # What may have been read ahead when the time is up.
        self.ahead = job["budget"] // job["row_bytes"]

    def chunks(self, epoch):
        """One pass."""
        if self.array is None:
            described = {key: job[key] for key in ("dtype", "shape", "offset")} if job["raw"] else {}
            settings = {key: job[key] for key in ("cache", "budget")}
            self.array = lowtide.open(path, access=way, **settings, **described)
        if shuffled:
            self.it = self.array.shuffled(rows_per_chunk, seed=1, epoch=epoch, rank=0, world_size=1)
        else:
            self.it = self.array.chunks(rows_per_chunk)
        return self.it

    @property
    def access(self):
        """What ``auto`` took."""
        return self.it.access

    @property
    def why(self):
        """And why."""
        return self.it.why


class Pass(threading.Thread):
    """Takes chunks until the time is up, and then what is ready: whoever reads far ahead gets its rows in
    bursts, and a cut in the middle of one would count the reading without the rows.
    """

    def __init__(self, reader):
        """Take chunks from ``reader``."""
        super().__init__(daemon=True)
        self.reader, self.told, self.late, self.error, self.total = reader, None, None, None, 0.0
        self.taken, self.why = [], None

    def run(self):
        """Go through the file, again and again where it is in memory anyway."""
        try:
            for epoch in itertools.count() if job["again"] else range(1):
                for chunk in self.reader.chunks(epoch):
                    first = chunk[(slice(None), *[0] * (chunk.ndim - 1))]
                    self.total += abs(complex(first.sum()))  # somebody uses the rows
                    if not self.tell(len(chunk)):
                        return
        except Exception as error:
            self.error = str(error) or repr(error)

    def tell(self, rows):
        """Note what came, and whether to go on."""
        now = time.perf_counter() - began
        rows += self.told["rows"] if self.told else 0
        if now > limit and self.late is None:
            self.late = rows
        if self.reader.access not in self.taken:
            self.taken.append(self.reader.access)
        if self.why is None:
            self.why = self.reader.why  # later ones tell what this pass itself brought into memory
        self.told = {"rows": rows, "seconds": now, "access": self.taken, "why": self.why}
        return self.late is None or rows - self.late < self.reader.ahead

    def over(self):
        """Whether it has ended or the time is up and nothing is ready."""
        if not self.is_alive():
            return True
        told, now = self.told, time.perf_counter() - began
        return told is not None and now > limit and now - told["seconds"] > READY


reader = NumPy() if way in ("memmap", "recreate") else Lowtide()
reading = Pass(reader)
print("ready", flush=True)
sys.stdin.readline()
began = time.perf_counter()
reading.start()
reading.join(limit)
while not reading.over():
    reading.join(0.005)
told = reading.told or {"rows": 0, "seconds": time.perf_counter() - began}
if reading.error:
    told["error"] = reading.error
print(json.dumps({**told, "python": platform.python_version(), "numpy": np.__version__}), flush=True)
sys.stdin.readline()
os._exit(0)  # a thread of ours may still read

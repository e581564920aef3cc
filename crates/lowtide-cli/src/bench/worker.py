"""One way of ``lowtide bench``: go through the file for so many seconds, and say how far it got."""

import bisect
import contextlib
import itertools
import json
import os
import platform
import signal
import sys
import tempfile
import threading
import time
import warnings

import numpy as np

import lowtide

# Beyond this many rows an order of its own would cost NumPy more memory and time than the reading.
PERMUTED = 1 << 24
# A chunk that comes sooner than this was ready.
READY = 0.05
# How far it was is noted so many times.
MARKS = 64
# Of an object store the ways are orders: what each is called, and what it is.
FAR = {
    "exact": "shuffled",
    "blocks": "shuffled",
    "sequential": "sequential",
    "with_replacement": "with_replacement",
}

signal.signal(signal.SIGINT, signal.SIG_DFL)
warnings.simplefilter("ignore")  # what a file looks like is said once, by whoever started us
path, job = sys.argv[1], json.loads(sys.argv[2])
way, order, rows_per_chunk, limit = job["way"], job["order"], job["chunk_rows"], job["seconds"]
length = job["rows"]
torch = None
if job["unit"] == "windows" and way in ("memmap", "recreate"):
    with contextlib.suppress(ImportError):  # NumPy does the same work
        import torch


class Numbers:
    """Row numbers in the order that was asked for, drawn beforehand: that is not what is measured."""

    def __init__(self):
        """Draw."""
        self.random = np.random.default_rng(1)
        few = order == "shuffled" and length <= PERMUTED
        self.permuted = self.random.permutation(length) if few else None

    def __call__(self, start, stop):
        """The rows of one chunk."""
        if order == "sequential":
            return np.arange(start, stop)
        if self.permuted is not None:
            return self.permuted[start:stop]
        return self.random.integers(0, length, stop - start)


class NumPy:
    """np.memmap as people write it, held or made anew for every chunk."""

    ahead = 0

    def __init__(self):
        """Nothing is mapped yet."""
        self.access, self.why, self.held, self.numbers = None, None, None, Numbers()

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
            if order == "sequential":
                yield np.array(rows[start:stop])  # a slice alone would read nothing
            else:
                yield rows[self.numbers(start, stop)]


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
            settings = {key: job[key] for key in ("cache", "budget", "storage_options")}
            self.array = lowtide.open(path, access="auto" if way in FAR else way, **settings, **described)
        if FAR.get(way, order) == "shuffled":
            blocks = "auto" if way == "blocks" else None
            self.it = self.array.shuffled(
                rows_per_chunk, seed=1, epoch=epoch, rank=0, world_size=1, blocks=blocks
            )
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


class NanoGPT:
    """nanoGPT's get_batch: windows sliced and widened twice, from a map made anew for every batch or held."""

    ahead = 0

    def __init__(self):
        """Nothing is mapped yet. Of many files, only those that hold a whole window are drawn from."""
        self.access, self.why, self.held, self.numbers = None, None, {}, Numbers()
        self.block = job["block_size"]
        self.files = [file for file in job["files"] if file[2] > self.block]
        self.ends = list(itertools.accumulate(count for _, _, count in self.files))

    def data(self, file):
        """The map of a file; for each batch the first use makes it."""
        if file not in self.held:
            name, offset, count = self.files[file]
            self.held[file] = np.memmap(name, job["dtype"], "r", offset=offset, shape=(count,))
        return self.held[file]

    def place(self, start):
        """Which file a window is in, and where: one that would reach into the next ends with its file."""
        file = min(bisect.bisect_right(self.ends, start), len(self.ends) - 1)
        count = self.files[file][2]
        return self.data(file), min(start - (self.ends[file] - count), count - self.block - 1)

    def starts(self, start, stop):
        """Where the windows of one batch begin."""
        if order == "with_replacement":
            return self.numbers.random.integers(0, self.ends[-1] - self.block, stop - start)
        return self.numbers(start, stop) * self.block

    def chunks(self, _epoch):
        """One pass."""
        block, stack = self.block, torch.stack if torch else np.stack
        if not self.files:
            raise ValueError(f"no file has {block + 1} tokens, and a map does not reach into the next")

        def widened(data, start):
            window = data[start : start + block].astype(np.int64)
            return torch.from_numpy(window) if torch else window

        for start in range(0, length, rows_per_chunk):
            if way == "recreate":
                self.held.clear()
            ix = self.starts(start, min(start + rows_per_chunk, length))
            if len(self.files) == 1:  # as nanoGPT writes it, down to the type of i
                data, ix = self.data(0), torch.from_numpy(ix) if torch else ix
                windows = [(data, i) for i in ix]
            else:
                windows = [self.place(int(i)) for i in ix]
            x = stack([widened(data, i) for data, i in windows])
            y = stack([widened(data, i + 1) for data, i in windows])
            if y[0, 0] != windows[0][0][windows[0][1] + 1]:
                raise ValueError("this is not the next token")
            yield x.numpy() if torch else x


class Loader:
    """Lowtide's loader with one way of access."""

    def __init__(self):
        """Nothing is opened yet: opening is measured."""
        self.loader = None
        self.ahead = job["budget"] // job["row_bytes"]

    def chunks(self, _epoch):
        """One pass: the loader goes on with the next epoch by itself."""
        if self.loader is None:
            described = {"dtype": job["given_dtype"], "format": job["format"]}
            settings = {key: job[key] for key in ("cache", "budget", "storage_options")}
            tokens = lowtide.tokens(path, access="auto" if way in FAR else way, **settings, **described)
            blocks = "auto" if way == "blocks" else None
            how = {"order": FAR.get(way, order), "seed": 1, "rank": 0, "world_size": 1, "blocks": blocks}
            self.loader = tokens.loader(rows_per_chunk, job["block_size"], **how)
        for x, _ in self.loader:
            yield x

    @property
    def access(self):
        """What ``auto`` took."""
        return self.loader.access

    @property
    def why(self):
        """And why."""
        return self.loader.why


class Pass(threading.Thread):
    """Takes chunks until the time is up, and then what is ready: whoever reads far ahead gets its rows in
    bursts, and a cut in the middle of one would count the reading without the rows.
    """

    def __init__(self, reader):
        """Take chunks from ``reader``."""
        super().__init__(daemon=True)
        self.reader, self.told, self.late, self.error, self.total = reader, None, None, None, 0.0
        self.taken, self.why = [], None
        self.marks = [(0.0, 0)] * MARKS

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
        self.marks[min(int(now / limit * MARKS), MARKS - 1)] = now, rows
        if now > limit and self.late is None:
            self.late = rows
        if self.reader.access not in self.taken:
            self.taken.append(self.reader.access)
        if self.why is None:
            self.why = self.reader.why  # later ones tell what this pass itself brought into memory
        self.told = {"rows": rows, "seconds": now, "access": self.taken, "why": self.why}
        if self.late is None:
            return True
        return rows - self.late < self.reader.ahead and now < limit + max(limit, 0.5)

    def outcome(self):
        """What came, and in how long."""
        told = self.told
        if told is None:
            return {"rows": 0, "seconds": time.perf_counter() - began}
        # One that is still at work had all of the time for what it delivered. One that ended, by itself or
        # because it saw that the time was up, ended with its last chunk.
        seconds = max(told["seconds"], limit) if self.is_alive() else told["seconds"]
        half = max(rows for when, rows in self.marks if when <= seconds / 2)
        return told | {"seconds": seconds, "half_rows": half}

    def over(self):
        """Whether it has ended or the time is up and nothing is ready."""
        if not self.is_alive():
            return True
        told, now = self.told, time.perf_counter() - began
        return told is not None and now > limit and now - told["seconds"] > READY


def first_run():
    """Go through a small file: pages of the code itself are mapped by then, and not counted as the file's."""
    ways = ("map", "remap", "advise", "read", "direct") if way == "auto" or way in FAR else (way,)
    # What is wrong with it (a budget that is too small, a folder for temporary files that is not there or
    # cannot do this way) is spoken of by the run that counts, if it is wrong there, too.
    with contextlib.suppress(Exception), tempfile.TemporaryDirectory() as folder:
        small = os.path.join(folder, "small.bin")
        np.arange(1 << 16, dtype="<u2").tofile(small)
        for access in ways:
            with contextlib.suppress(Exception):
                read_once(small, access)


def read_once(small, access):
    """Go through a file of two-byte numbers in this way."""
    if way in ("memmap", "recreate"):
        np.memmap(small, "<u2", "r")[::64].astype(np.int64).sum()
    elif job["unit"] == "rows":
        rows = lowtide.open(small, dtype="<u2", shape=(-1, 64), access=access, budget=job["budget"])
        sum(len(chunk) for it in (rows.shuffled(64, rank=0, world_size=1), rows.chunks(64)) for chunk in it)
    else:
        tokens = lowtide.tokens(small, dtype="<u2", access=access, budget=job["budget"])
        sum(len(x) for x, _ in tokens.loader(4, 64, rank=0, world_size=1))


if job["unit"] == "rows":
    reader = NumPy() if way in ("memmap", "recreate") else Lowtide()
else:
    reader = NanoGPT() if way in ("memmap", "recreate") else Loader()
reading = Pass(reader)
first_run()
print("ready", flush=True)
sys.stdin.readline()
began = time.perf_counter()
reading.start()
reading.join(limit)
while not reading.over():
    reading.join(0.005)
told = reading.outcome()
if reading.error:
    told["error"] = reading.error
told |= {"python": platform.python_version(), "numpy": np.__version__, "torch": torch and torch.__version__}
print(json.dumps(told), flush=True)
sys.stdin.readline()
os._exit(0)  # a thread of ours may still read

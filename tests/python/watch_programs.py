"""Programs whose memory does one thing each, for the tests of ``lowtide watch``.

``python watch_programs.py NAME FILE`` runs one for a few seconds, ``NAME FILE wait`` after a line on standard
input. Nothing here imports the meter.
"""

import math
import os
import sys
import time

SECONDS = 3.5
MIB = 1 << 20


def ticks(pause: float = 0.01):
    """Yields the seconds since the start. Counted, not timed: a machine that stalls stretches the run."""
    for number in range(int(SECONDS / pause)):
        yield number * pause
        time.sleep(pause)


def drop(path: str) -> None:
    """Empties the page cache of a file."""
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


def growing_list(path: str) -> None:
    held = []
    for _ in ticks(0.02):
        held.append(bytearray(MIB))


def slow_leak(path: str) -> None:
    held = [bytearray(MIB) for _ in range(100)]
    for _ in ticks(0.05):
        held.append(bytearray(MIB // 4))


def held_memmap(path: str) -> None:
    import numpy as np

    drop(path)
    rows = np.memmap(path, np.float32, "r").reshape(-1, 128)
    random = np.random.default_rng()
    for _ in ticks():
        rows[random.integers(0, len(rows), 8)].sum()


def warm(path: str) -> None:
    """Fills the page cache of a file."""
    with open(path, "rb") as file:
        while file.read(MIB):
            pass


def held_memmap_warm(path: str) -> None:
    import numpy as np

    rows = np.memmap(path, np.float32, "r").reshape(-1, 128)
    random = np.random.default_rng()
    for _ in ticks():
        rows[random.integers(0, len(rows), 64)].sum()


def shuffled_pass_warm(path: str) -> None:
    """Has all of the file mapped within a moment, and goes on."""
    import numpy as np

    rows = np.memmap(path, np.float32, "r").reshape(-1, 128)
    random = np.random.default_rng()
    order = np.array_split(random.permutation(len(rows)), 100)
    for number, _ in enumerate(ticks(0.02)):
        rows[order[number % 100]].sum()


def map_per_batch(path: str) -> None:
    import numpy as np

    drop(path)
    random = np.random.default_rng()
    for _ in ticks():
        rows = np.memmap(path, np.float32, "r").reshape(-1, 128)
        rows[random.integers(0, len(rows), 4)].sum()


def plain_reads(path: str) -> None:
    drop(path)
    with open(path, "rb", buffering=0) as file:
        for _ in ticks():
            file.read(MIB)


def shared_memory(path: str) -> None:
    from multiprocessing.shared_memory import SharedMemory

    held = []
    for _ in ticks(0.02):
        held.append(SharedMemory(create=True, size=MIB))
        held[-1].buf[:] = bytes(MIB)
    for memory in held:
        memory.close()
        memory.unlink()


def quiet(path: str) -> None:
    held = bytearray(100 * MIB)
    for _ in ticks():
        held[0] = 1


def short(path: str) -> None:
    held = bytearray(20 * MIB)
    time.sleep(0.3)
    del held


def bursty(path: str) -> None:
    for number, _ in enumerate(ticks(0.02)):
        if number % 30 == 7:
            held = bytearray(200 * MIB)
            time.sleep(0.15)
            del held


def oscillating(path: str) -> None:
    held: list[bytearray] = []
    for now in ticks(0.02):
        wanted = int(100 + 80 * math.sin(now * 2 * math.pi / 0.8))
        while len(held) < wanted:
            held.append(bytearray(MIB))
        del held[wanted:]


def warming_up(path: str) -> None:
    held = [bytearray(MIB) for _ in range(300)]
    for _ in ticks():
        held[0][0] = 1


def forked_workers(path: str) -> None:
    held = [bytearray(MIB) for _ in range(200)]
    workers = []
    for _ in range(3):
        worker = os.fork()
        if worker == 0:
            for _ in ticks():
                held[0][0]
            os._exit(0)
        workers.append(worker)
    for worker in workers:
        os.waitpid(worker, 0)


def six_map_one(path: str) -> None:
    """Six processes have the same file mapped, all of it."""
    in_six(lambda number: touch(path))


def six_map_their_own(path: str) -> None:
    """Six processes have a file each mapped, all of it."""
    files = [f"{path}-{number}" for number in range(6)]
    for name in files:
        with open(name, "wb") as file:
            file.truncate(48 * MIB)
    in_six(lambda number: touch(files[number]))
    for name in files:
        os.unlink(name)


def six_share_memory(path: str) -> None:
    """Six processes have the same shared memory mapped."""
    from multiprocessing.shared_memory import SharedMemory

    memory = SharedMemory(create=True, size=64 * MIB)

    def fill(number: int) -> object:
        for start in range(0, 64 * MIB, MIB):
            memory.buf[start : start + MIB] = bytes(MIB)
            time.sleep(0.01)
        return memory

    in_six(fill)
    memory.close()
    memory.unlink()


def touch(path: str) -> object:
    """Maps a file and touches every page of it within a second or so."""
    import mmap

    with open(path, "rb") as file:
        held = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    step = max(MIB, len(held) // 64)
    for start in range(0, len(held), step):
        sum(held[start : start + step : 4096])
        time.sleep(0.01)
    return held


def in_six(work) -> None:
    workers = []
    for number in range(6):
        worker = os.fork()
        if worker == 0:
            held = work(number)
            for _ in ticks():
                pass
            del held
            os._exit(0)
        workers.append(worker)
    for worker in workers:
        os.waitpid(worker, 0)


def lowtide_shuffled(path: str) -> None:
    import lowtide

    rows = lowtide.open(path, dtype="float32", shape=(-1, 128), budget="32MiB")
    epoch = 0
    chunks = iter(())
    for _ in ticks():
        chunk = next(chunks, None)
        if chunk is None:
            chunks = iter(rows.shuffled(1024, seed=0, epoch=epoch))
            epoch += 1


#: Those whose file is in the page cache before they start.
WARM = {held_memmap_warm, shuffled_pass_warm, lowtide_shuffled, six_map_one}

#: What each of them must be called.
VERDICTS = {
    growing_list: "leak",
    slow_leak: "leak",
    shared_memory: "shared",
    held_memmap: "mapped",
    held_memmap_warm: "mapped",
    shuffled_pass_warm: "mapped",
    map_per_batch: "cache",
    plain_reads: "cache",
    quiet: "flat",
    bursty: "flat",
    oscillating: "flat",
    warming_up: "flat",
    forked_workers: "flat",
    lowtide_shuffled: "flat",
    short: "unknown",
}

if __name__ == "__main__":
    if sys.argv[3:] == ["wait"]:
        sys.stdin.readline()
    globals()[sys.argv[1]](sys.argv[2])

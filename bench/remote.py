"""An array in an object store, by Lowtide and by obstore, in the same run.

    python bench/remote.py [MIB]        # 1,024 unless said: the first touch of a budget's memory is a part of every pass

SeaweedFS (`weed mini`) serves it on loopback. It is read by obstore, with the same ranges and as many in flight; and later
epochs over the local cache stand beside the same file on the local disk. Sides are interleaved; each figure is the best of
five rounds.
"""

import concurrent.futures
import os
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import obstore

import lowtide

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "python"))
from weed import KEY, SECRET, Weed

# What ours asks for, in a pass in order and in one of blocks.
EXTENT, BLOCK, IN_FLIGHT, ROUNDS = 8 << 20, 1 << 20, 16, 5


def anon():
    """RssAnon, in MiB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1]) / 1024
    return 0.0


def main():
    mib = int(sys.argv[1]) if len(sys.argv) > 1 else 1024
    with tempfile.TemporaryDirectory() as folder:
        server = Weed(Path(folder))
        try:
            rows = np.random.default_rng(0).integers(0, 255, (mib << 10, 1024), dtype=np.uint8)
            path = Path(folder) / "rows.npy"
            np.save(path, rows)
            with path.open("rb") as file:
                server.client.upload_fileobj(file, "bucket", "rows.npy")
            measure(server, path.stat().st_size, rows)
            second_epoch(server, path, Path(folder) / "cache")
        finally:
            server.close()


def measure(server, size, rows):
    store = obstore.store.S3Store(
        "bucket",
        endpoint=server.url,
        access_key_id=KEY,
        secret_access_key=SECRET,
        region="us-east-1",
        client_options={"allow_http": True},
    )
    starts = range(0, size, EXTENT)
    blocks = np.random.default_rng(0).permutation(np.arange(0, size, BLOCK)).tolist()

    def peer(starts, length):
        def one(start):
            return len(obstore.get_range(store, "rows.npy", start=start, end=min(start + length, size)))

        with concurrent.futures.ThreadPoolExecutor(IN_FLIGHT) as pool:
            return sum(pool.map(one, starts))

    def ours(how):
        array = lowtide.open("s3://bucket/rows.npy", storage_options=server.options)
        chunks = array.chunks(8192) if how == "sequential" else array.shuffled(8192, seed=0, blocks="auto")
        return sum(chunk.nbytes for chunk in chunks)

    sides = {
        "obstore, 8 MiB ranges, 16 in flight": lambda: peer(starts, EXTENT),
        "lowtide, sequential": lambda: ours("sequential"),
        "obstore, 1 MiB ranges, in random order": lambda: peer(blocks, BLOCK),
        'lowtide, blocks="auto"': lambda: ours("blocks"),
    }
    best, before, most = dict.fromkeys(sides, 0.0), anon(), 0.0
    for _ in range(ROUNDS):
        for name, side in sides.items():
            began = time.perf_counter()
            count = side()
            best[name] = max(best[name], count / (time.perf_counter() - began) / 1e6)
            if name.startswith("lowtide"):
                most = max(most, anon() - before)
    for name, rate in best.items():
        print(f"{name:44} {rate:8.0f} MB/s")
    long, sequential, short, shuffled = best.values()
    print(f"{'sequential / obstore':44} {sequential / long:8.2f}")
    print(f"{'blocks / obstore, the same ranges':44} {shuffled / short:8.2f}")
    print(f"{'RssAnon added by now, budget 256 MiB':44} {most:8.0f} MiB")


def forget(folder):
    """Leave nothing of these files in the page cache."""
    for path in [folder] if folder.is_file() else folder.iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def second_epoch(server, path, cache):
    """Later epochs over what the local cache has kept, and over the file itself; and the same of what is opened anew,
    where every 64 KiB of the cache are checked once."""
    how = {
        "storage_options": server.options,
        "local_cache": cache,
        "local_cache_size": path.stat().st_size * 2,
    }
    names = {"local cache": ("s3://bucket/rows.npy", how, cache), "local file": (path, {}, path)}
    arrays = {name: lowtide.open(where, **options) for name, (where, options, _) in names.items()}
    for array in arrays.values():
        for chunk in array.chunks(8192):
            del chunk
    for opened in ("later epochs", "opened again"):
        for state in ("cold", "warm"):
            for order in ("sequential", "shuffled"):
                best = dict.fromkeys(names, 0.0)
                for _ in range(ROUNDS):
                    for name, (where, options, files) in names.items():
                        if state == "cold":
                            forget(files)
                        array = arrays[name] if opened == "later epochs" else lowtide.open(where, **options)
                        chunks = array.chunks(8192) if order == "sequential" else array.shuffled(8192, seed=0)
                        began = time.perf_counter()
                        count = sum(chunk.nbytes for chunk in chunks)
                        best[name] = max(best[name], count / (time.perf_counter() - began) / 1e6)
                figures = ", ".join(f"{name} {rate:.0f} MB/s" for name, rate in best.items())
                what = f"{opened}, {order}, {state}"
                print(f"{what:44} {best['local cache'] / best['local file']:8.2f}   ({figures})")


if __name__ == "__main__":
    main()

"""Shuffled windows from an object store, by Lowtide and by Mosaic Streaming, in the same run.

    pip install --no-deps mosaicml-streaming Brotli python-snappy cramjam zstd catalogue
    python bench/peers.py [MIB]        # 128 unless said

SeaweedFS (`weed mini`) serves the same tokens to both: a nanoGPT .bin to one, MDS shards of the same windows to the
other. A side is a first epoch in a process of its own, with an empty local folder: all windows, shuffled, in batches of
12 × 1,024 as int64 x and y. Sides take turns; each figure is the best of three rounds.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "python"))
BATCH, BLOCK, ROUNDS = 12, 1024, 3


def lowtide_side(how):
    import lowtide

    began = time.perf_counter()
    tokens = lowtide.tokens("s3://bucket/train.bin", dtype="uint16", storage_options=how["options"])
    loader = tokens.loader(BATCH, BLOCK, seed=0, blocks="auto")
    return began, sum(len(x) for x, y in loader)


def mosaic_side(how):
    import torch
    from streaming import StreamingDataset

    class Windows(StreamingDataset):
        def __getitem__(self, index):
            window = torch.from_numpy(super().__getitem__(index)["tokens"].astype(np.int64))
            return window[:-1], window[1:]

    began = time.perf_counter()
    words = {"remote": "s3://bucket/mds", "local": how["local"], "shuffle": True, "shuffle_seed": 0}
    dataset = Windows(**words, batch_size=BATCH)
    loader = torch.utils.data.DataLoader(dataset, batch_size=BATCH, num_workers=how["workers"])
    return began, sum(len(x) for x, y in loader)


def side(name, how):
    """Windows a second of one side, in a process of its own."""
    how = json.dumps(how)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", __file__, name, how], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    return float(done.stdout.splitlines()[-1])


def fill(server, folder, mib):
    """The same tokens, as they are and as samples of a window each."""
    from streaming import MDSWriter

    tokens = np.random.default_rng(0).integers(0, 50_257, mib << 19, dtype=np.uint16)
    tokens.tofile(folder / "train.bin")
    with MDSWriter(out=str(folder / "mds"), columns={"tokens": f"ndarray:uint16:{BLOCK + 1}"}) as out:
        for start in range(0, len(tokens) - BLOCK, BLOCK):
            out.write({"tokens": tokens[start : start + BLOCK + 1]})
    for path in [folder / "train.bin", *(folder / "mds").iterdir()]:
        server.client.upload_file(str(path), "bucket", str(path.relative_to(folder)))


def main():
    from weed import KEY, SECRET, Weed

    mib = int(sys.argv[1]) if len(sys.argv) > 1 else 128
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        server = Weed(folder)
        os.environ |= {
            "S3_ENDPOINT_URL": server.url,
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
        }
        os.environ |= {"AWS_DEFAULT_REGION": "us-east-1"}
        try:
            fill(server, folder, mib)
            sides = {"lowtide, blocks": ("lowtide", {"options": server.options})}
            sides |= {f"Mosaic Streaming, {n} workers": ("mosaic", {"workers": n}) for n in (0, 2)}
            best = dict.fromkeys(sides, 0.0)
            for turn in range(ROUNDS):
                for label, (which, how) in sides.items():
                    local = {"local": str(folder / f"local-{turn}-{label[-9:-8]}")}
                    best[label] = max(best[label], side(which, how | local))
        finally:
            server.close()
    ours, *theirs = best.values()
    for label, rate in best.items():
        print(f"{label:34} {rate:10,.0f} windows/s   {ours / rate:6.1f}×")
    print(f"{'against the faster of theirs':34} {ours / max(theirs):10.1f}×   20× asked for")


if __name__ == "__main__":
    if len(sys.argv) == 3:
        began, count = {"lowtide": lowtide_side, "mosaic": mosaic_side}[sys.argv[1]](json.loads(sys.argv[2]))
        print(count / (time.perf_counter() - began))
    else:
        main()

"""Fit a torch model to an array that is larger than memory, in shuffled order.

    python fit_torch.py data

The file holds float64, as NumPy likes it; torch gets float32, converted while it is read.
"""

import argparse
import itertools
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

import lowtide


def main(argv=None):
    """Fit, and compare with the truth."""
    parser = argparse.ArgumentParser(description="Fit a linear model with torch.")
    parser.add_argument("folder", type=Path, help="what make.py has made")
    parser.add_argument("--chunks", type=int, help="learn from so many chunks of 4,096 rows; else from all")
    parser.add_argument("--scratch", help="a folder with room for all rows, to sort them there first")
    args = parser.parse_args(argv)

    x = lowtide.open(args.folder / "x.npy", astype="float32")
    y = lowtide.open(args.folder / "y.npy", astype="float32")
    chunks = lowtide.zip(x, y).shuffled(4096, seed=0, drop_last=True, scratch=args.scratch)
    steps = min(len(chunks), args.chunks or len(chunks))

    torch.manual_seed(0)
    model = torch.nn.Linear(x.shape[1], 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    with lowtide.watch([*x.files, *y.files]) as watch:
        mean, std = x.mean(axis=0), x.std(axis=0)
        seen, waited, begin = 0, 0.0, time.perf_counter()
        asked = begin
        for readings, measured in itertools.islice(chunks, steps):
            waited += time.perf_counter() - asked
            readings, measured = torch.from_numpy((readings - mean) / std), torch.from_numpy(measured)
            loss = F.mse_loss(model(readings).squeeze(1), measured)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            seen += len(measured)
            asked = time.perf_counter()
        seconds = time.perf_counter() - begin

    truth = np.load(args.folder / "truth.npz")
    found, baseline = model.weight.detach().numpy()[0] / std, model.bias.item()
    error = np.abs(found * truth["spread"] - truth["effect"]).max()
    print(f"{chunks.access}: {chunks.why}")
    print(
        f"{seen:,} rows, {seen / seconds:,.0f} a second, {waited / seconds:.1%} of the time waiting for them"
    )
    print(f"effects, which are 0.5 to 2: off by at most {error:.4f}; baseline, which is 0: {baseline:.4f}")
    peaks = watch.report.peak_anon_bytes, watch.report.peak_file_bytes, watch.report.peak_cache_bytes or 0
    heap, mapped, cached = (peak >> 20 for peak in peaks)
    print(f"at most: heap {heap:,} MiB, mapped {mapped:,} MiB, page cache of the files {cached:,} MiB")


if __name__ == "__main__":
    main()

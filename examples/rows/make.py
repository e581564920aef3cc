"""Make measurements that are larger than memory, with a known truth behind them.

    python make.py data --rows 10_000_000

A row of x.npy is a reading of 64 channels, each with a level and a spread of its own. y.npy is what was
measured with it: a weighted sum of the channels, noise, and a baseline that drifts from the first row to the
last. Rows are in the order of time: a model that has seen only the first of them has the wrong baseline.
"""

import argparse
from pathlib import Path

import numpy as np

import lowtide

CHANNELS = 64


def main(argv=None):
    """Write x.npy, y.npy and truth.npz."""
    parser = argparse.ArgumentParser(description="Make x.npy and y.npy with a known linear truth.")
    parser.add_argument("folder", type=Path, help="where they go")
    parser.add_argument(
        "--rows", type=int, default=10_000_000, help="how many, of 512 bytes each (10,000,000)"
    )
    args = parser.parse_args(argv)
    args.folder.mkdir(parents=True, exist_ok=True)

    numbers = np.random.default_rng(0)
    level, spread = numbers.uniform(-1000, 1000, CHANNELS), 10 ** numbers.uniform(-2, 2, CHANNELS)
    effect = numbers.uniform(0.5, 2, CHANNELS)  # on y, where a channel rises by its spread
    np.savez(args.folder / "truth.npz", effect=effect, spread=spread)

    # Each file appears whole or not at all. Neither this process nor the page cache grows with them.
    with (
        lowtide.create(args.folder / "x.npy", "float64", (None, CHANNELS), overwrite=True) as x,
        lowtide.create(args.folder / "y.npy", "float64", (None,), overwrite=True) as y,
    ):
        for start in range(0, args.rows, 8192):
            time = np.arange(start, min(start + 8192, args.rows)) / args.rows
            reading = numbers.uniform(-(3**0.5), 3**0.5, (len(time), CHANNELS))  # mean 0, deviation 1
            noise, baseline = numbers.normal(0, 1, len(time)), 10 * (time - 0.5)
            y.append(reading @ effect + noise + baseline)
            x.append(level + spread * reading)
    print(f"{args.rows:,} rows of {CHANNELS} channels in {args.folder}")


if __name__ == "__main__":
    main()

"""Fit a scikit-learn model to an array that is larger than memory, in shuffled order.

    python fit_sklearn.py data

Every row comes exactly once. The scaler's means and deviations take a pass over the file each.
"""

import argparse
import itertools
import time
from pathlib import Path

import numpy as np
from sklearn.linear_model import SGDRegressor
from sklearn.preprocessing import StandardScaler

import lowtide


def main(argv=None):
    """Fit, and compare with the truth."""
    parser = argparse.ArgumentParser(description="Fit a linear model with scikit-learn's partial_fit.")
    parser.add_argument("folder", type=Path, help="what make.py has made")
    parser.add_argument(
        "--order", choices=["shuffled", "file"], default="shuffled", help="of the rows (shuffled)"
    )
    parser.add_argument("--chunks", type=int, help="learn from so many chunks of 4,096 rows; else from all")
    parser.add_argument("--scratch", help="a folder with room for all rows, to sort them there first")
    args = parser.parse_args(argv)

    x, y = lowtide.open(args.folder / "x.npy"), lowtide.open(args.folder / "y.npy")
    rows, unseen = lowtide.zip(x, y).split(len(x) - 20_000, seed=0)
    if args.order == "shuffled":
        chunks = rows.shuffled(4096, seed=0, scratch=args.scratch)
    else:
        chunks = lowtide.zip(x, y).chunks(4096)

    with lowtide.watch([*x.files, *y.files]) as watch:
        scaler = StandardScaler()
        scaler.mean_, scaler.scale_ = x.mean(axis=0), x.std(axis=0)

        model = SGDRegressor(alpha=0, average=True, random_state=0)
        seen, waited, begin = 0, 0.0, time.perf_counter()
        asked = begin
        for readings, measured in itertools.islice(chunks, args.chunks):
            waited += time.perf_counter() - asked
            model.partial_fit(scaler.transform(readings), measured)
            seen += len(measured)
            asked = time.perf_counter()
        seconds = time.perf_counter() - begin

        score = np.mean([model.score(scaler.transform(r), m) for r, m in unseen.chunks(4096)])

    truth = np.load(args.folder / "truth.npz")
    found, baseline = model.coef_ / scaler.scale_, model.intercept_[0]
    error = np.abs(found * truth["spread"] - truth["effect"]).max()
    print(f"{chunks.access}: {chunks.why}")
    print(
        f"{seen:,} rows, {seen / seconds:,.0f} a second, {waited / seconds:.1%} of the time waiting for them"
    )
    print(f"effects, which are 0.5 to 2: off by at most {error:.4f}; baseline, which is 0: {baseline:.4f}")
    print(f"R² {score:.4f} on rows that the model has not seen")
    peaks = watch.report.peak_anon_bytes, watch.report.peak_file_bytes, watch.report.peak_cache_bytes or 0
    heap, mapped, cached = (peak >> 20 for peak in peaks)
    print(f"at most: heap {heap:,} MiB, mapped {mapped:,} MiB, page cache of the files {cached:,} MiB")


if __name__ == "__main__":
    main()

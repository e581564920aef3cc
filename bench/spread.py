"""How random a shuffle in blocks is, predicted and measured: the table of docs/shuffling.md.

    python bench/spread.py        keeps the run in bench/runs/DATE-spread

1 GiB in rows of 512 bytes, sorted by class, ten classes, chunks of 1,024 rows. The spread is the standard deviation of the
classes' shares in a chunk, divided by that of a perfect shuffle. Beside it a buffer of rows in file order from which one is
drawn at a time, as shuffle buffers do. Only row numbers matter, so the file is a hole.
"""

from __future__ import annotations

import datetime
import json
import math
import platform
import random
import tempfile
from pathlib import Path

import numpy as np

import lowtide

ROW, ROWS, CHUNK, CLASSES = 512, 1 << 21, 1_024, 10
RUN = Path(__file__).parent / "runs" / f"{datetime.date.today()}-spread"


def spread(chunks) -> float:
    """The ratio for chunks of row numbers."""
    shares = [
        np.bincount(rows * CLASSES // ROWS, minlength=CLASSES) / len(rows)
        for rows in chunks
        if len(rows) == CHUNK
    ]
    p = 1 / CLASSES
    perfect = math.sqrt(p * (1 - p) / CHUNK * (ROWS - CHUNK) / (ROWS - 1))
    return float(np.sqrt(np.mean((np.array(shares) - p) ** 2)) / perfect)


def buffered(size: int):
    """Row numbers as they come out of a buffer of so many rows that is filled in file order."""
    draw = random.Random(0)
    held, out = list(range(size)), []
    for row in range(size, ROWS):
        at = draw.randrange(size)
        out.append(held[at])
        held[at] = row
    draw.shuffle(held)
    return np.array(out + held).reshape(-1, CHUNK)


def main() -> None:
    results = []
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        path = Path(folder) / "rows.bin"
        with path.open("wb") as file:
            file.truncate(ROW * ROWS)
        for budget in ("64MiB", "256MiB"):
            a = lowtide.open(path, dtype="uint8", shape=(-1, ROW), budget=budget)
            for blocks in (2_048, 512, 128, "auto", None):
                it = a.shuffled(CHUNK, seed=0, blocks=blocks, with_rows=True)
                measured = spread(rows for rows, _ in it)
                name = "exact" if blocks is None else f"blocks={blocks!r}"
                results.append([budget, name, it.blocks, it.predicted_spread, measured])
            size = (64 if budget == "64MiB" else 256) << 20
            results.append([budget, "a shuffle buffer", None, None, spread(buffered(size // ROW))])
    lines = [f"{'budget':8} {'scheme':18} {'rows × blocks mixed':>20} {'predicted':>10} {'measured':>10}"]
    for budget, name, mixed, predicted, measured in results:
        shown = "" if mixed is None else f"{mixed[0]} × {mixed[1]}"
        foretold = "" if predicted is None else f"{predicted:.3f}"
        lines.append(f"{budget:8} {name:18} {shown:>20} {foretold:>10} {measured:10.3f}")
    print("\n".join(lines))
    RUN.mkdir(parents=True, exist_ok=True)
    (RUN / "summary.txt").write_text("\n".join(lines) + "\n")
    (RUN / "raw.json").write_text(json.dumps(results, indent=1) + "\n")
    machine = {"command": "python bench/spread.py", "kernel": platform.release(), "numpy": np.__version__}
    (RUN / "machine.json").write_text(json.dumps(machine, indent=1) + "\n")


if __name__ == "__main__":
    main()

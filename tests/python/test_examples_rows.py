"""The examples with rows: the truth is found, in a tenth of the file's size and anywhere else.

Oracles: a truth that was written down before, least squares by NumPy, and the kernel.
"""

from __future__ import annotations

import re

import numpy as np
import pytest
from test_examples import EXAMPLES, MIB, example, run
from test_memory import limited

pytest.importorskip("sklearn", reason="scikit-learn is not installed")
pytestmark = pytest.mark.heavy


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """What make.py makes, in a tenth of its size; and that tenth."""
    folder = tmp_path_factory.mktemp("rows")
    count = 10_000_000
    with limited(count * 512 // 10) as group:
        said = run([EXAMPLES / "rows" / "make.py", folder, f"--rows={count}"], group)
    assert said == f"10,000,000 rows of 64 channels in {folder}\n"
    assert (folder / "x.npy").stat().st_size == 128 + count * 512
    yield folder, count * 512 // 10
    for name in ("x.npy", "y.npy"):
        (folder / name).unlink()


def errors(said):
    """How far the effects and the baseline are off, as an example says."""
    return map(float, re.search(r"off by at most ([\d.]+); baseline, which is 0: (-?[\d.]+)", said).groups())


@pytest.mark.parametrize("program", ["fit_sklearn", "fit_torch"])
def test_the_truth_is_found_in_a_tenth_of_the_file(rows, program):
    folder, limit = rows
    with limited(limit) as group:
        said = run([EXAMPLES / "rows" / f"{program}.py", folder, "--chunks=50"], group)
    effect, baseline = errors(said)
    # 200,000 rows whose noise and drift deviate by 3: the best of 64 estimates deviate by 0.007.
    assert effect < 0.06
    assert abs(baseline) < 0.1
    heap, _, cached = (
        int(n.replace(",", "")) * MIB for n in re.findall(r"([\d,]+) MiB", said.splitlines()[-1])
    )
    assert heap < limit
    assert cached < 16 * MIB + (folder / "y.npy").stat().st_size, "make.py has left y there, which is small"
    if program == "fit_sklearn":
        assert float(re.search(r"R² ([\d.]+)", said)[1]) == pytest.approx(0.92, abs=0.02)


def test_rows_that_are_few_or_in_file_order(tmp_path, capsys):
    """All rows, sorted in scratch; the truth of the file itself; and what shuffling is for."""
    example(EXAMPLES / "rows" / "make.py")([str(tmp_path), "--rows=100_000"])
    x, y, truth = np.load(tmp_path / "x.npy"), np.load(tmp_path / "y.npy"), np.load(tmp_path / "truth.npz")
    design = np.column_stack([(x - x.mean(axis=0)) / truth["spread"], np.ones(len(x))])
    best = np.linalg.lstsq(design, y)[0]
    assert np.abs(best[:-1] - truth["effect"]).max() < 0.05
    assert abs(best[-1]) < 0.05

    def fit(name, *arguments):
        example(EXAMPLES / "rows" / f"{name}.py")([str(tmp_path), *arguments])
        return tuple(errors(capsys.readouterr().out))

    capsys.readouterr()
    assert max(map(abs, fit("fit_sklearn", f"--scratch={tmp_path}"))) < 0.1
    # So few rows are 24 steps: it has not come all the way.
    assert max(map(abs, fit("fit_torch", f"--scratch={tmp_path}"))) < 0.25
    assert abs(fit("fit_sklearn", "--chunks=10")[1]) < 1
    assert fit("fit_sklearn", "--chunks=10", "--order=file")[1] < -2, "the baseline of the first rows"

"""Parts of arrays, several files as one, writers and blocks of windows under torch's DataLoader and dask."""

from __future__ import annotations

import numpy as np
import pytest

import lowtide

pytestmark = pytest.mark.heavy
torch = pytest.importorskip("torch")
da = pytest.importorskip("dask.array")

from torch.utils.data import DataLoader  # noqa: E402

import lowtide.torch  # noqa: E402


@pytest.fixture
def rows(tmp_path):
    np.save(tmp_path / "x.npy", np.random.default_rng(0).random((1000, 16), dtype="float32"))
    return tmp_path / "x.npy"


@pytest.mark.parametrize("what", ["dealt", "rows", "several"])
def test_every_row_once(rows, what):
    whole = lowtide.open(rows)
    part = {
        "dealt": lambda: whole.split(0.9, seed=0)[0],
        "rows": lambda: whole.rows(10, 500),
        "several": lambda: lowtide.open([rows, rows]),
    }[what]()
    expected = part[:]
    for dataset in (part, lowtide.torch.RowDataset(part)):
        got = torch.cat(list(DataLoader(dataset, batch_size=32, shuffle=True, num_workers=2))).numpy()
        np.testing.assert_array_equal(np.sort(got, axis=0), np.sort(expected, axis=0))
    np.testing.assert_allclose(da.from_array(part).mean(axis=0).compute(), expected.mean(axis=0), rtol=1e-5)
    np.testing.assert_array_equal(torch.as_tensor(part).numpy(), expected)


def test_a_file_is_made_of_batches(rows, tmp_path):
    part = lowtide.open(rows).split(0.9, seed=0)[0]
    with lowtide.create(tmp_path / "made.npy", "float32", (None, 16)) as w:
        w.extend(batch.numpy() for batch in DataLoader(part, batch_size=100))
    np.testing.assert_array_equal(np.load(tmp_path / "made.npy"), part[:])


def test_blocks_of_windows_with_and_without_workers(tmp_path):
    np.arange(50_000, dtype="<u2").tofile(tmp_path / "t.bin")
    tokens = lowtide.tokens(tmp_path / "t.bin", dtype="uint16")

    def starts(workers):
        dataset = lowtide.torch.TokenDataset(tokens, 4, 32, blocks=8, epochs=2)
        batches = DataLoader(dataset, batch_size=None, num_workers=workers)
        return [[x[:, 0].tolist() for x, _ in batches] for _ in range(2)]

    alone = starts(0)
    assert alone == starts(2)
    assert alone[0] != alone[1]
    loader = tokens.loader(4, 32, blocks=8, epochs=2)
    assert alone == [[x[:, 0].tolist() for x, _ in loader] for _ in range(2)]

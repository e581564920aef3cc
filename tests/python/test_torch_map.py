"""Rows and windows by number in a ``DataLoader``, and tensors of whole arrays. NumPy is the oracle."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from token_streams import flat, starts

import lowtide

torch = pytest.importorskip("torch", reason="torch is not installed")
DataLoader = torch.utils.data.DataLoader

from torch_dataloaders import MARKS, through  # noqa: E402 (they need torch)

from lowtide.torch import RowDataset, TokenDataset, WindowDataset  # noqa: E402

pytestmark = MARKS

ROWS = np.random.default_rng(0).random((1000, 16), dtype="float32")
LABELS = np.arange(1000)


@pytest.fixture
def rows(save):
    return lowtide.open(save(ROWS))


@pytest.fixture
def pairs(rows, save):
    return lowtide.zip(rows, lowtide.open(save(LABELS, "labels.npy")))


WAYS = [(0, None), (2, "fork"), (2, "spawn")]


@pytest.mark.parametrize(("workers", "context"), WAYS)
@pytest.mark.parametrize("make", [lambda a: a, RowDataset], ids=["array", "dataset"])
def test_a_dataloader_over_rows(rows, make, workers, context):
    """The same as over the array in memory, for the same seed."""
    batches = []
    for data in (ROWS, make(rows)):
        generator = torch.Generator().manual_seed(3)
        dataloader = DataLoader(
            data,
            batch_size=64,
            shuffle=True,
            generator=generator,
            num_workers=workers,
            multiprocessing_context=context,
        )
        batches.append(list(dataloader))
    assert [len(batch) for batch in batches[1]] == [64] * 15 + [40]
    assert all(torch.equal(*pair) for pair in zip(*batches, strict=True))


@pytest.mark.parametrize("make", [lambda a: a, RowDataset], ids=["zip", "dataset"])
def test_a_dataloader_over_a_zip(pairs, make):
    seen = []
    for x, y in DataLoader(make(pairs), batch_size=50, shuffle=True):
        assert torch.equal(x, torch.from_numpy(ROWS[y]))
        seen += y.tolist()
    assert sorted(seen) == list(range(1000))


def test_the_rows_of_a_batch_are_read_together(rows, pairs):
    wanted = [999, 0, 0, -1, 17]
    assert all(np.array_equal(*pair) for pair in zip(rows.__getitems__(wanted), ROWS[wanted], strict=True))
    assert isinstance(rows.__getitems__(wanted), list)
    for (x, y), row in zip(pairs.__getitems__(wanted), wanted, strict=True):
        assert np.array_equal(x, ROWS[row])
        assert y == LABELS[row]
        assert isinstance(y, np.int64)
    for x, row in zip(RowDataset(rows).__getitems__(wanted), wanted, strict=True):
        assert torch.equal(x, torch.from_numpy(ROWS[row]))
    assert rows.__getitems__([]) == pairs.__getitems__([]) == RowDataset(rows).__getitems__([]) == []
    with pytest.raises(IndexError, match="1000"):
        rows.__getitems__([3, 1000])


def test_a_row_dataset(rows, pairs):
    dataset = RowDataset(rows)
    assert len(dataset) == 1000
    assert torch.equal(dataset[-1], torch.from_numpy(ROWS[-1]))
    assert torch.equal(dataset[3:5], torch.from_numpy(ROWS[3:5]))
    with pytest.raises(IndexError):
        dataset[1000]
    x, y = RowDataset(pairs)[7]
    assert torch.equal(x, torch.from_numpy(ROWS[7]))
    assert y == torch.tensor(7)
    assert repr(dataset) == f"<lowtide.torch.RowDataset rows=1000 of {rows!r}>"
    for data in (dataset, RowDataset(pairs)):
        again = pickle.loads(pickle.dumps(data))
        assert repr(again) == repr(data)
        assert len(pickle.dumps(data)) < 2_000


def test_what_torch_has_no_tensors_for(save, tmp_path):
    with pytest.raises(TypeError, match="torch has no tensors of dtype >f4"):
        RowDataset(lowtide.open(save(ROWS.astype(">f4"), "swapped.npy")))
    (tmp_path / "bf16.bin").write_bytes(
        torch.arange(64).to(torch.bfloat16).view(torch.uint8).numpy().tobytes()
    )
    pytest.importorskip("ml_dtypes")
    rows = RowDataset(lowtide.open(tmp_path / "bf16.bin", dtype="bfloat16", shape=(-1, 4)))
    assert torch.equal(rows[1], torch.arange(4, 8).to(torch.bfloat16))


# Windows


@pytest.mark.parametrize(("workers", "context"), WAYS)
def test_windows_in_a_dataloader(counting, workers, context):
    tokens = counting(50 * 1000 + 1)
    dataset = WindowDataset(tokens, 50)
    assert len(dataset) == 1000
    dataloader = DataLoader(
        dataset, batch_size=30, shuffle=True, num_workers=workers, multiprocessing_context=context
    )
    epochs = [starts(dataloader), starts(dataloader)]
    assert epochs[0] != epochs[1]
    for epoch in epochs:
        assert sorted(flat(epoch)) == list(range(0, 50_000, 50))


def test_one_window(counting):
    tokens = counting(50 * 20 + 49)
    dataset = WindowDataset(tokens, 50)
    assert len(dataset) == 20
    x, y = dataset[-1]
    assert (x.dtype, x.tolist(), y.tolist()) == (torch.int64, list(range(950, 1000)), list(range(951, 1001)))
    assert (
        repr(dataset) == f"<lowtide.torch.WindowDataset windows=20 block_size=50 items=pairs of {tokens!r}>"
    )
    item = WindowDataset(tokens, 50, items="transformers")[2]
    assert item["input_ids"].tolist() == item["labels"].tolist() == list(range(100, 150))
    assert len(list(dataset)) == 20, "it ends where Python asks for one item after another"
    for number in (20, -21):
        with pytest.raises(IndexError, match=f"window {number} is out of range: there are 20"):
            dataset[number]
    for words, says in [
        ({"block_size": 0}, "block_size is 0"),
        ({"block_size": 2000}, "a window is 2000 tokens and the one after them, there are only 1049 tokens"),
        ({"block_size": 50, "items": "dicts"}, "items='dicts' is not known"),
    ]:
        with pytest.raises(ValueError, match=says):
            WindowDataset(tokens, **words)


def test_other_kinds_of_objects_are_refused_by_name(rows, pairs, counting, tmp_path):
    tokens = counting(700)
    returned = r"must be what lowtide\.tokens\(\.\.\.\) returned, not"
    for other in ("train.bin", tmp_path, np.arange(700), rows, None):
        for make in (lambda other: WindowDataset(other, 50), lambda other: TokenDataset(other, 4, 50)):
            with pytest.raises(TypeError, match=f"^tokens {returned} {type(other).__name__}"):
                make(other)
    with pytest.raises(TypeError, match=r"not Array\nhint: .*RowDataset takes arrays"):
        WindowDataset(rows, 50)
    returned = r"lowtide\.open\(\.\.\.\) or lowtide\.zip\(\.\.\.\) returned, not"
    for other in ("rows.npy", tmp_path, ROWS, [rows], tokens, None):
        with pytest.raises(TypeError, match=f"^rows must be what {returned} {type(other).__name__}"):
            RowDataset(other)
    assert len(RowDataset(rows)) == len(RowDataset(pairs)) == 1000


def test_a_block_size_that_is_none_is_named(counting):
    for size in ("4", 4.0, None):
        with pytest.raises(TypeError, match=f"^block_size={size!r} must be a whole number$"):
            WindowDataset(counting(700), size)


# Ready-made batches


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_of_batches_are_refused(counting, workers):
    dataset = TokenDataset(counting(700), 4, 50)
    with pytest.raises(TypeError, match=r"(?s)whole batches.*hint: DataLoader\(dataset, batch_size=None\)"):
        next(iter(DataLoader(dataset, num_workers=workers)))
    stateful = pytest.importorskip("torchdata.stateful_dataloader").StatefulDataLoader
    with pytest.raises(TypeError, match=r"hint: DataLoader\(dataset, batch_size=None\)"):
        next(iter(stateful(dataset, batch_size=2, num_workers=workers)))


def test_who_takes_the_batch_apart_may(counting):
    tokens = counting(700)
    dataloader = DataLoader(TokenDataset(tokens, 4, 50), collate_fn=lambda batches: batches[0])
    assert starts(dataloader) == starts(through(TokenDataset(tokens, 4, 50)))


# Tensors of all of it


@pytest.mark.parametrize("make", [torch.as_tensor, torch.tensor, torch.asarray, torch.from_dlpack])
def test_a_tensor_of_all(rows, counting, make):
    assert torch.equal(make(rows), torch.from_numpy(ROWS))
    assert make(counting(700)).tolist() == list(range(700))


def test_a_tensor_of_more_than_the_budget_is_refused(save, monkeypatch):
    big = lowtide.open(save(np.zeros((3000, 1000), "f4"), "big.npy"), budget="8MiB")
    for make in (torch.as_tensor, torch.tensor, np.asarray):
        with pytest.raises(MemoryError, match=r"would read all .* of it, the budget is 8"):
            make(big)
    with pytest.raises(MemoryError, match="all tokens would take"):
        torch.as_tensor(lowtide.tokens(save(np.zeros(5_000_000, "u2"), "tokens.npy"), budget="8MiB"))

"""``lowtide.torch.TokenDataset``: every batch once and in order, through any DataLoader.

The oracle is ``tokens.loader``, which test_loader.py checks.
"""

from __future__ import annotations

import copy
import itertools
import multiprocessing
import os
import pickle
import time

import numpy as np
import pytest
from token_streams import flat, in_a_forked_child, starts

torch = pytest.importorskip("torch", reason="torch is not installed")
DataLoader = torch.utils.data.DataLoader

from torch_dataloaders import MARKS, through  # noqa: E402 (they need torch)

from lowtide.torch import TokenDataset  # noqa: E402

pytestmark = MARKS


WAYS = [(0, None), (1, None), (2, "fork"), (2, "spawn"), (2, "forkserver"), (3, "fork")]


@pytest.mark.parametrize(("workers", "context"), WAYS)
def test_batches_are_the_loaders_once_and_in_order(counting, workers, context):
    tokens = counting(3_300)
    loader = tokens.loader(4, 50, seed=3)
    dataset = TokenDataset(tokens, 4, 50, seed=3)
    dataloader = through(dataset, workers, context)
    assert len(dataloader) == len(dataset) == len(loader) == 16
    epochs = [starts(dataloader) for _ in range(2)]  # and no warning that there are more than len
    assert epochs == [starts(loader) for _ in range(2)]
    assert len(set(flat(epochs[0]))) == 64


@pytest.mark.parametrize("workers", [0, 2, 5])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"epochs": 2},
        {"epochs": 3, "order": "sequential"},
        {"order": "with_replacement", "dtype": "int32"},
        {"drop_last": False, "prefetch": 0},
    ],
    ids=lambda settings: ",".join(settings) or "default",
)
def test_the_next_iteration_is_the_next_epochs(counting, workers, settings):
    """However the DataLoader comes by its workers, and also where some of them have no batch at all."""
    tokens = counting(700)  # 13 windows: 3 batches, or 4 with the last one
    want = [starts(loader) for loader in [tokens.loader(4, 50, **settings)] * 3]
    assert len({str(epoch) for epoch in want}) == 3
    dataset = TokenDataset(tokens, 4, 50, **settings)
    assert [starts(through(dataset, workers)) for _ in range(3)] == want
    dataset = TokenDataset(tokens, 4, 50, **settings)
    dataloader = through(dataset, workers)
    assert [starts(dataloader) for _ in range(3)] == want
    if workers:
        dataset = TokenDataset(tokens, 4, 50, **settings)
        dataloader = through(dataset, workers, persistent_workers=True)
        assert [starts(dataloader) for _ in range(3)] == want
        assert starts(through(dataset, 2)) == starts(tokens_at(tokens, 3, **settings))


@pytest.mark.parametrize(("workers", "persistent"), [(0, False), (2, False), (2, True)])
def test_exactly_len_batches_of_every_epoch(counting, workers, persistent):
    tokens = counting(700)
    dataset = TokenDataset(tokens, 4, 50)
    dataloader = through(dataset, workers, **({"persistent_workers": True} if persistent else {}))
    for epoch in range(4):
        assert starts(dataloader, len(dataloader)) == starts(tokens.loader(4, 50, epoch=epoch))


@pytest.mark.parametrize(("workers", "persistent"), [(0, False), (1, False), (3, False), (3, True)])
@pytest.mark.parametrize("epochs", [1, 2, None])
def test_repeat_begins_the_same_windows_with_every_iteration(counting, workers, persistent, epochs):
    tokens = counting(700)
    dataset = TokenDataset(tokens, 4, 50, epoch=5, epochs=epochs, repeat=True)
    want = starts(tokens.loader(4, 50, epoch=5, epochs=epochs), 20)
    dataloader = through(dataset, workers, **({"persistent_workers": True} if persistent else {}))
    for count in (20, 2, 1, 20, 3):
        assert starts(dataloader, count) == want[:count]
    # Also where the iterations before were without workers, or with others.
    if not persistent:
        for workers in (0, 2, 0, 1):
            assert starts(through(dataset, workers), 2) == want[:2]
    # A state is gone on from once.
    half = tokens.loader(4, 50, epoch=5, epochs=epochs)
    starts(half, 2)
    dataset = TokenDataset(tokens, 4, 50, epoch=5, epochs=epochs, repeat=True)
    dataset.load_state_dict(half.state_dict())
    for skipped in (2, 0, 0):
        assert starts(through(dataset, workers), 18) == want[skipped : skipped + 18]


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_a_random_seed_is_the_same_in_all_workers(counting, context):
    tokens = counting(700)
    dataset = TokenDataset(tokens, 4, 50, seed=None)
    seed = dataset.state_dict()["seed"]
    assert starts(through(dataset, 2, context)) == starts(tokens.loader(4, 50, seed=seed))
    with pytest.raises(ValueError, match="must have the same"):
        TokenDataset(tokens, 4, 50, seed=None, rank=0, world_size=2)


def tokens_at(tokens, iterations, **settings):
    """A loader that has been iterated over that often."""
    loader = tokens.loader(4, 50, **settings)
    for _ in range(iterations):
        starts(loader)
    return loader


@pytest.mark.parametrize("persistent", [False, True])
def test_who_seeds_torch_before_each_epoch_gets_the_next_one_too(counting, persistent):
    tokens = counting(700)
    loader = tokens.loader(4, 50)
    dataloader = through(TokenDataset(tokens, 4, 50), 2, persistent_workers=persistent)
    for _ in range(4):
        torch.manual_seed(0)  # from which the workers' seeds come
        assert starts(dataloader) == starts(loader)


@pytest.mark.parametrize("slow", [0, 1, 2])
@pytest.mark.parametrize("persistent", [False, True])
def test_workers_that_begin_late_are_in_the_same_epoch(counting, slow, persistent):
    tokens = counting(700)
    loader = tokens.loader(4, 50)
    dataloader = through(
        TokenDataset(tokens, 4, 50),
        3,
        persistent_workers=persistent,
        worker_init_fn=lambda worker: time.sleep(0.3 * (worker == slow)),
    )
    for _ in range(3):
        assert starts(dataloader) == starts(loader)


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("epochs", [1, 2, None])
def test_an_iteration_left_early_is_not_repeated(counting, epochs, persistent):
    tokens = counting(10_050)
    dataloader = through(TokenDataset(tokens, 4, 50, epochs=epochs), 2, persistent_workers=persistent)
    seen = [starts(dataloader, 3) for _ in range(4)]
    span = epochs or 1 << 32
    for i, batches in enumerate(seen):
        loader = tokens.loader(4, 50, epochs=epochs)
        loader.load_state_dict({**loader.state_dict(), "epoch": i * span})
        assert batches == starts(loader, 3)
    # Without workers the iteration is taken up where it was left.
    dataset = TokenDataset(tokens, 4, 50, epochs=epochs)
    parts = [starts(through(dataset), 3) for _ in range(4)]
    assert list(itertools.chain(*parts)) == starts(tokens.loader(4, 50, epochs=epochs), 12)


def test_iterators_at_the_same_time_do_not_repeat_each_other(counting):
    tokens = counting(2_050)
    dataset = TokenDataset(tokens, 4, 50)
    one, two = iter(through(dataset, 2)), iter(through(dataset, 1))
    first, second = starts(one), starts(two)
    loader = tokens.loader(4, 50)
    assert sorted([first, second]) == sorted([starts(loader), starts(loader)])


def test_with_and_without_workers_in_turn(counting):
    tokens = counting(2_050)
    dataset = TokenDataset(tokens, 4, 50, seed=1)
    loader = tokens.loader(4, 50, seed=1)
    assert starts(dataset, 3) == starts(loader, 3)
    assert starts(through(dataset, 2)) == starts(loader)  # the rest of the epoch
    assert starts(dataset) == starts(loader)
    assert starts(through(dataset, 3)) == starts(loader)
    assert starts(through(dataset, 2)) == starts(loader)
    assert starts(dataset, 2) == starts(loader, 2)
    assert dataset.state_dict() == loader.state_dict()


@pytest.mark.parametrize("workers", [0, 2])
def test_endless(counting, workers):
    tokens = counting(700)
    dataset = TokenDataset(tokens, 4, 50, epochs=None, order="with_replacement")
    with pytest.raises(TypeError, match="no end"):
        len(dataset)
    loader = tokens.loader(4, 50, epochs=None, order="with_replacement")
    assert starts(through(dataset, workers), 100) == starts(loader, 100)


@pytest.mark.parametrize("dtype", ["int64", "int32", np.int32, "uint16"])
@pytest.mark.parametrize("workers", [0, 2])
def test_tensors_have_the_dtype_asked_for(counting, dtype, workers):
    for x, y in through(TokenDataset(counting(700), 4, 50, dtype=dtype), workers):
        assert x.dtype == y.dtype == torch.from_numpy(np.empty(0, dtype)).dtype
        assert x.shape == y.shape == (4, 50)


def test_the_last_step_may_be_small(counting):
    tokens = counting(700)
    sizes = [len(x) for x, _ in through(TokenDataset(tokens, 4, 50, drop_last=False), 2)]
    assert sizes == [4, 4, 4, 1]
    assert len(TokenDataset(tokens, 4, 50)) == 3


def test_what_cannot_be_is_said_before_any_worker(counting):
    tokens = counting(700)
    with pytest.raises(ValueError, match="never full"):
        TokenDataset(tokens, 40, 50)
    with pytest.raises(ValueError, match="with_replacement"):
        TokenDataset(tokens, 4, 50, order="random")
    with pytest.raises(ValueError, match="go together"):
        TokenDataset(tokens, 4, 50, rank=0)
    for name in ("repeat", "drop_last"):
        with pytest.raises(TypeError, match=f"^{name}='x' must be True or False$"):
            TokenDataset(tokens, 4, 50, **{name: "x"})
    with pytest.raises(TypeError, match=r"^state=None must be a dict that state_dict\(\) gave$"):
        TokenDataset(tokens, 4, 50).load_state_dict(None)


def test_a_workers_error_comes_through(counting):
    tokens = counting(701)
    dataset = TokenDataset(tokens, 4, 50)
    os.truncate(tokens.files[0], 1024)
    with pytest.raises(OSError, match=r"701-1-000\.bin: the file was cut while"):
        starts(through(dataset, 2))


@pytest.mark.parametrize("workers", [0, 1, 2, 3])
def test_ranks_and_workers_together_are_the_one_stream(counting, workers, monkeypatch):
    tokens = counting(3_000)
    loader = tokens.loader(6, 50, seed=5, rank=0, world_size=1)
    whole = [starts(loader), starts(loader)]
    given = [TokenDataset(tokens, 2, 50, seed=5, rank=r, world_size=3) for r in range(3)]
    for epoch in whole:
        each = [starts(through(dataset, workers)) for dataset in given]
        assert [flat(step) for step in zip(*each, strict=True)] == epoch
    each = []
    for rank in range(3):
        monkeypatch.setenv("RANK", str(rank))
        monkeypatch.setenv("WORLD_SIZE", "3")
        each.append(starts(through(TokenDataset(tokens, 2, 50, seed=5), workers)))
    assert [flat(step) for step in zip(*each, strict=True)] == whole[0]


# Processes


@pytest.mark.parametrize(
    "again", [lambda d: pickle.loads(pickle.dumps(d)), copy.deepcopy], ids=["pickle", "copy"]
)
def test_a_copy_goes_on_by_itself(counting, again):
    tokens = counting(2_050)
    dataset = TokenDataset(tokens, 4, 50, seed=4)
    starts(dataset, 3)
    twin = again(dataset)
    assert len(pickle.dumps(dataset)) < 20_000
    assert twin.state_dict() == dataset.state_dict()
    rest = starts(dataset)
    assert starts(twin) == rest
    # A copy of one that workers have read begins where they do not, and has workers of its own.
    following = starts(through(dataset, 2))
    twin = again(dataset)
    assert starts(through(twin, 2)) == starts(through(dataset, 2)) != following
    assert starts(through(twin, 2)) == starts(dataset)


def test_a_forked_child_goes_on_by_itself(counting):
    dataset = TokenDataset(counting(2_050), 4, 50)
    starts(dataset, 3)
    child = in_a_forked_child(lambda: starts(dataset))
    assert child == starts(dataset)
    assert len(child) == 7


def iterate_with_workers(dataset, results):
    try:
        results.put(starts(through(dataset, 2)))
    except RuntimeError as error:
        results.put(str(error))


def test_workers_of_another_process_than_the_datasets_are_refused(counting):
    """Ranks that share a dataset through fork would take each other's epochs."""
    dataset = TokenDataset(counting(700), 4, 50)
    context = multiprocessing.get_context("fork")
    results = context.SimpleQueue()
    process = context.Process(target=iterate_with_workers, args=(dataset, results))
    process.start()
    assert "hint: make the TokenDataset in the process" in results.get()
    process.join()
    assert len(starts(through(dataset, 2))) == 3

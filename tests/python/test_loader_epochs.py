"""Look-ahead from one epoch into the next, and ``blocks=`` of windows, against windows counted by hand."""

from __future__ import annotations

import itertools
import pickle
import time

import numpy as np
import pytest

import lowtide

TOKENS, BLOCK = 6_000, 10


@pytest.fixture
def tokens(tmp_path):
    """Token i is the number i, so that a window says where it begins."""
    np.arange(TOKENS, dtype="<u2").tofile(tmp_path / "t.bin")
    return lowtide.tokens(tmp_path / "t.bin", dtype="uint16", budget="1MiB")


def starts(batches):
    """Where windows begin, after checking that they are windows."""
    found = []
    for x, y in batches:
        assert (x + 1 == y).all()
        assert (np.diff(x, axis=1) == 1).all()
        found += x[:, 0].tolist()
    return found


BLOCKS = [None, 7, "auto"]


@pytest.mark.parametrize("blocks", BLOCKS)
@pytest.mark.parametrize("drop_last", [True, False])
@pytest.mark.parametrize("order", ["shuffled", "sequential", "with_replacement"])
def test_an_iteration_of_three_epochs_is_three_iterations_of_one(tokens, order, drop_last, blocks):
    if blocks and order != "shuffled":
        with pytest.raises(ValueError, match=f'blocks= is for order="shuffled", this is order="{order}"'):
            tokens.loader(8, BLOCK, order=order, blocks=blocks)
        return
    settings = dict(order=order, seed=3, drop_last=drop_last, blocks=blocks)
    one = tokens.loader(8, BLOCK, **settings)
    three = tokens.loader(8, BLOCK, epochs=3, **settings)
    apart = [starts(one) for _ in range(6)]
    assert len(three) == 3 * len(one)
    assert starts(three) == list(itertools.chain(*apart[:3]))
    assert starts(three) == list(itertools.chain(*apart[3:]))
    endless = tokens.loader(8, BLOCK, epochs=None, **settings)
    assert starts(itertools.islice(endless, 5 * len(one))) == list(itertools.chain(*apart[:5]))
    if order != "with_replacement":
        for epoch in apart:
            phase = min(epoch) % BLOCK
            assert len(set(epoch)) == len(epoch) == len(one) * 8 - (0 if drop_last else -len(epoch) % 8)
            assert {start % BLOCK for start in epoch} == {phase}


@pytest.mark.parametrize("blocks", BLOCKS)
@pytest.mark.parametrize("world_size", [1, 3])
def test_a_state_of_any_epoch_is_gone_on_with_by_any_ranks(tokens, blocks, world_size):
    settings = dict(seed=5, epochs=4, blocks=blocks)
    whole = starts(tokens.loader(12, BLOCK, **settings))
    ranks = [tokens.loader(4, BLOCK, rank=r, world_size=3, **settings) for r in range(3)]
    each = len(ranks[0]) // 4
    for step in (1, each - 1, each, each + 1, 3 * each - 1, 4 * each - 1):
        parts = [tokens.loader(4, BLOCK, rank=r, world_size=3, **settings) for r in range(3)]
        batches = [next(part) for _ in range(step) for part in parts]
        assert starts(batches) == whole[: step * 12]
        state = parts[1].state_dict()
        assert state == parts[0].state_dict()
        assert (state["epoch"], state["position"]) == (step // each, step % each * 12)
        assert state.get("blocks") == (list(parts[0].blocks) if blocks else None)
        rest = [
            tokens.loader(12 // world_size, BLOCK, rank=r, world_size=world_size, epochs=4, blocks=None)
            for r in range(world_size)
        ]
        for part in rest:
            part.load_state_dict(state)
        left = [list(part) for part in rest]
        assert starts(itertools.chain(*zip(*left, strict=True))) == whole[step * 12 :]
        copy = pickle.loads(pickle.dumps(parts[2]))
        assert copy.blocks == parts[2].blocks
        assert starts(copy) == starts(parts[2])


def test_turns_go_on_through_epochs(tokens):
    whole = [starts([batch]) for batch in tokens.loader(7, BLOCK, epochs=3)]
    turns = [tokens.loader(7, BLOCK, epochs=3, _turn=(w, 4)) for w in range(4)]
    assert [len(turn) for turn in turns] == [len(whole[w::4]) for w in range(4)]
    for w, turn in enumerate(turns):
        for k, batch in enumerate(turn):
            assert starts([batch]) == whole[w::4][k]
            # In another process, the very next batch.
            if k in (0, len(whole) // 12 - 1, len(whole) // 12, len(whole) // 6):
                other = tokens.loader(7, BLOCK, epochs=3, _turn=(w, 4))
                other.load_state_dict(turn.state_dict())
                assert starts([next(other)]) == whole[w::4][k + 1]


def test_blocks_are_runs_of_neighbours(tmp_path):
    count = 60_000
    np.arange(count, dtype="<u2").tofile(tmp_path / "t.bin")
    tokens = lowtide.tokens(tmp_path / "t.bin", dtype="uint16", budget="256KiB")
    loader = tokens.loader(10, BLOCK, blocks=20, drop_last=False)
    rows, mixed = loader.blocks
    assert rows == 20
    assert f"blocks=({rows}, {mixed})" in repr(loader)
    windows = np.array(starts(loader))
    windows = (windows - windows.min()) // BLOCK
    assert sorted(windows.tolist()) == list(range(count // BLOCK - 1))
    # A block of neighbours stays inside one mix: nobody is further from its neighbour than a mix is long.
    place = np.argsort(windows)
    assert mixed * rows < len(windows) / 2
    assert np.quantile(np.abs(np.diff(place)), 0.9) < mixed * rows
    assert not (np.diff(windows) == 1).mean() > 0.1
    exact = tokens.loader(10, BLOCK)
    assert exact.blocks is None
    assert exact.predicted_spread == 1.0
    assert tokens.loader(10, BLOCK, blocks=2).predicted_spread < loader.predicted_spread
    for wrong in (0, "some", 1.5, True):
        with pytest.raises(ValueError, match="block"):
            tokens.loader(10, BLOCK, blocks=wrong)
    with pytest.raises(MemoryError, match=r"mixing .*\nhint: smaller blocks, or a larger budget"):
        tokens.loader(10, BLOCK, blocks=5_000)


def test_the_predicted_spread_is_measured(tmp_path):
    """Tokens sorted by class: in batches of a perfect shuffle their shares spread by chance alone."""
    block, batch = 4, 64
    classes = (np.arange(160_000) >= 80_000).astype("<u2")
    classes.tofile(tmp_path / "sorted.bin")
    t = lowtide.tokens(tmp_path / "sorted.bin", dtype="uint16", budget="2MiB")
    loader = t.loader(batch, block, blocks=2_000, epochs=120)
    shares = np.array([x[:, 0].mean() for x, _ in loader])
    by_chance = np.sqrt(0.25 / batch)
    assert loader.predicted_spread > 1.5
    assert shares.std() / by_chance == pytest.approx(loader.predicted_spread, rel=0.15)


def test_the_next_epoch_is_read_before_this_one_is_over(tmp_path):
    """With a thread that reads ahead, the first batch of an epoch waits for nothing."""
    np.arange(3_000, dtype="<u2").tofile(tmp_path / "t.bin")
    t = lowtide.tokens(tmp_path / "t.bin", dtype="uint16", access="read")
    loader = t.loader(4, 8, epochs=None)
    each = len(t.loader(4, 8))
    first, others = [], []
    for k, _ in zip(range(each * 40), loader, strict=False):
        begin = time.perf_counter()
        next(loader)
        (first if (k + 1) % each in (0, 1) else others).append(time.perf_counter() - begin)
    # A new epoch took a millisecond: a thread, a choice, a table. Now it takes what any other batch takes.
    assert np.median(first) < 10 * np.median(others) + 1e-4

"""Loaders: every window once, the same stream under any number of ranks, resumed anywhere.

Token i of the files is the number i, so that a window tells where it began.
"""

from __future__ import annotations

import json
import os
import threading

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from token_streams import flat, in_a_forked_child, starts

ORDERS = ["shuffled", "sequential", "with_replacement"]


@settings(max_examples=80)
@given(
    tokens=st.integers(2, 3000),
    block=st.integers(1, 70),
    seed=st.integers(0, 2**64 - 1),
    order=st.sampled_from(["shuffled", "sequential"]),
    files=st.integers(1, 4),
)
def test_an_epoch_is_every_window_once(counting, tokens, block, seed, order, files):
    windows = (tokens - block) // block
    assume(windows >= 1)
    t = counting(tokens, files)
    loader = t.loader(3, block, order=order, seed=seed, epochs=1, drop_last=False)
    assert len(loader) == -(-windows // 3)
    phases = []
    for _ in range(3):
        got = flat(starts(loader))
        assert len(got) == windows
        first = min(got)
        phases.append(first)
        assert 0 <= first < tokens - windows * block
        assert sorted(got) == [first + k * block for k in range(windows)]  # so no token is a target twice
        assert max(got) + block + 1 <= tokens
        assert tokens - windows * block - 1 < 2 * block  # tokens that are no target in this epoch
        if order == "sequential":
            assert got == sorted(got)
    if tokens - windows * block > 1000:
        assert len(set(phases)) > 1


def test_cuts_move_and_epochs_differ(counting):
    t = counting(50_000)
    loader = t.loader(8, 64, seed=3, epochs=8)
    batches = starts(loader)
    steps = len(batches) // 8
    epochs = [flat(batches[i * steps : (i + 1) * steps]) for i in range(8)]
    assert len({min(e) for e in epochs}) > 4
    assert len({tuple(np.argsort(e)[:10]) for e in epochs}) == 8
    assert starts(t.loader(8, 64, seed=4)) != epochs[0]


def test_draws_are_independent_and_cover_everything(counting):
    t = counting(10_000)
    loader = t.loader(50, 16, order="with_replacement", seed=1, epochs=20)
    got = np.array(flat(starts(loader)))
    assert got.min() >= 0
    assert got.max() <= 10_000 - 17
    assert len(got) == 20 * (len(loader) // 20) * 50
    # The number of different starts among so many draws; its standard deviation is below 50.
    expected = 9_984 * (1 - (1 - 1 / 9_984) ** len(got))
    assert abs(len(set(got.tolist())) - expected) < 5 * 50
    counts = np.bincount(got * 16 // 9_984, minlength=16)
    chi = ((counts - len(got) / 16) ** 2 / (len(got) / 16)).sum()
    assert chi < 56.5  # 15 degrees of freedom, one false alarm in a million


@settings(max_examples=60)
@given(
    order=st.sampled_from(ORDERS),
    windows=st.integers(1, 200),
    batch=st.integers(1, 6),
    ranks=st.integers(1, 5),
    seed=st.integers(0, 9),
)
def test_ranks_share_one_stream(counting, order, windows, batch, ranks, seed):
    block = 7
    t = counting(windows * block + block + 3)
    assume(windows >= batch * ranks)
    alone = starts(t.loader(batch * ranks, block, order=order, seed=seed, rank=0, world_size=1))
    each = [
        starts(t.loader(batch, block, order=order, seed=seed, rank=r, world_size=ranks)) for r in range(ranks)
    ]
    assert {len(e) for e in each} == {len(alone)}
    for step, together in enumerate(alone):
        assert flat(e[step] for e in each) == together


@settings(max_examples=60)
@given(data=st.data())
def test_stopping_anywhere_and_resuming_gives_the_same_rest(counting, data):
    order = data.draw(st.sampled_from(ORDERS))
    windows = data.draw(st.integers(4, 120))
    batch, ranks = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 4))
    other_batch, other_ranks = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 4))
    epochs = data.draw(st.integers(1, 3))
    block, seed = 5, data.draw(st.integers(0, 5))
    assume(windows >= max(batch * ranks, other_batch * other_ranks))
    t = counting(windows * block + block)

    def loader(b, r, w):
        return t.loader(b, block, order=order, seed=seed, epochs=epochs, rank=r, world_size=w)

    everyone = [loader(batch, r, ranks) for r in range(ranks)]
    whole = starts(loader(batch * ranks, 0, 1))
    stop = data.draw(st.integers(0, len(whole)))
    for one in everyone:
        for _ in range(stop):
            next(one)
    states = [json.loads(json.dumps(one.state_dict())) for one in everyone]
    assert all(state == states[0] for state in states)
    state = states[0]
    assert len(json.dumps(state)) < 400
    # The same ranks: exactly the rest, batch by batch. After the end, the next epochs.
    fresh = loader(batch * ranks, 0, 1)
    fresh.load_state_dict(state)
    rest = starts(fresh)
    if stop == len(whole):
        assert state["position"] == 0
        assert state["epoch"] == epochs
        again = loader(batch * ranks, 0, 1)
        assert starts(again) == whole
        assert starts(again) == rest
    else:
        assert rest == whole[stop:]
    # Other ranks and batches: the same windows in the same order, up to what does not fill a step.
    others = [loader(other_batch, r, other_ranks) for r in range(other_ranks)]
    for one in others:
        one.load_state_dict(state)
    each = [starts(one) for one in others]
    assert len({len(e) for e in each}) == 1
    theirs = [flat(e[step] for e in each) for step in range(len(each[0]))]
    this_epoch = t.loader(1, block, order=order, seed=seed, epochs=1, rank=0, world_size=1)
    this_epoch.load_state_dict(state)
    stream = flat(starts(this_epoch))
    step = other_batch * other_ranks
    assert flat(theirs)[: len(stream) // step * step] == stream[: len(stream) // step * step]


def test_the_state_is_what_the_caller_saw_however_far_ahead_was_read(counting):
    t = counting(2_000_000)
    loader = t.loader(4, 100, seed=1)
    seen = []
    for i in range(300):
        x, _ = next(loader)
        seen.append(x[:, 0].tolist())
        assert loader.state_dict()["position"] == (i + 1) * 4
    state = loader.state_dict()
    rest = starts(loader)
    again = t.loader(4, 100, seed=99)
    again.load_state_dict(state)
    assert starts(again) == rest
    assert again.state_dict()["seed"] == 1
    whole = seen + rest
    assert len(set(flat(whole))) == len(flat(whole))


def test_iterating_again_goes_on_with_the_next_epoch(counting):
    t = counting(5_000)
    loader = t.loader(4, 50, seed=2, epochs=2)
    assert len(loader) == 2 * (99 // 4)
    first, second = starts(loader), starts(loader)
    assert len(first) == len(second) == len(loader)
    assert first != second
    assert starts(t.loader(4, 50, seed=2, epochs=4)) == first + second
    # Taken up in the middle of the first of two epochs, an iteration ends with the second.
    one = t.loader(4, 50, seed=2, epochs=2)
    for _ in range(10):
        next(one)
    two = t.loader(4, 50, seed=2, epochs=2)
    two.load_state_dict(one.state_dict())
    assert starts(two) == first[10:]
    assert starts(two) == second


def test_an_endless_loader_has_no_length_and_no_end(counting):
    t = counting(300)
    loader = t.loader(2, 10, epochs=None, order="with_replacement")
    with pytest.raises(TypeError, match="no end"):
        len(loader)
    for _ in range(500):
        next(loader)
    assert loader.state_dict()["epoch"] == 500 // 14


def test_resuming_far_away_is_as_good_as_near(counting):
    t = counting(5_000)
    loader = t.loader(4, 50, epochs=None)
    state = loader.state_dict()
    for epoch, position in [(10**9, 0), (2**63, 40), (5, 96)]:
        loader.load_state_dict({**state, "epoch": epoch, "position": position})
        x, _ = next(loader)
        assert x.shape == (4, 50)


def test_drop_last_false_splits_the_last_step_or_says_that_it_cannot(counting):
    t = counting(10 * 7 + 7)
    each = [starts(t.loader(4, 7, rank=r, world_size=2, drop_last=False)) for r in range(2)]
    assert [len(b) for b in each[0]] == [4, 1]
    assert [len(b) for b in each[1]] == [4, 1]
    assert len(set(flat(each[0]) + flat(each[1]))) == 10
    with pytest.raises(ValueError, match="enough for 1 of 3 ranks"):
        t.loader(3, 7, rank=0, world_size=3, drop_last=False)


def test_what_cannot_be_is_said_at_construction(counting, tmp_path):
    t = counting(500)
    for arguments, error, says in [
        ({"batch_size": 0, "block_size": 8}, ValueError, "batch_size is 0"),
        ({"batch_size": 2, "block_size": 0}, ValueError, "block"),
        ({"batch_size": 2, "block_size": 500}, ValueError, "500 tokens"),
        (
            {"batch_size": 200, "block_size": 8},
            ValueError,
            "a batch of 200 is never full: an epoch has 61 windows of 8 tokens",
        ),
        ({"batch_size": 2, "block_size": 8, "order": "random"}, ValueError, "with_replacement"),
        ({"batch_size": 2, "block_size": 8, "epochs": 0}, ValueError, "epochs is 0"),
        ({"batch_size": 2, "block_size": 8, "dtype": "float32"}, ValueError, "float32"),
        ({"batch_size": 2, "block_size": 8, "rank": 2, "world_size": 2}, ValueError, "out of range"),
        ({"batch_size": 2, "block_size": 8, "rank": 0}, ValueError, "go together"),
    ]:
        with pytest.raises(error, match=says):
            t.loader(**arguments)
    small = counting(500, budget="1KiB")
    with pytest.raises(
        MemoryError, match=r"a batch of 20 windows of 20 tokens needs .*\nhint: batches of .* windows fit"
    ):
        small.loader(20, 20)
    loader = t.loader(2, 8)
    state = loader.state_dict()
    for change, says in [
        ({"fingerprint": "0" * 32}, "other data"),
        ({"block_size": 9}, "block_size"),
        ({"order": "sequential"}, "sequential"),
        ({"version": 2}, "version 2"),
        ({"position": 10**9}, "there are only"),
        ({"turn": [0, 2]}, "readers"),
    ]:
        with pytest.raises(ValueError, match=says):
            loader.load_state_dict({**state, **change})
    with pytest.raises(ValueError, match="other data"):
        counting(501).loader(2, 8).load_state_dict(state)
    with pytest.raises(ValueError, match="other data"):
        counting(500, 2).loader(2, 8).load_state_dict(state)
    loader.load_state_dict(state)
    assert next(loader)[0].shape == (2, 8)


def test_one_window_is_enough_to_draw_from(counting):
    t = counting(9)
    loader = t.loader(1, 8, order="with_replacement", epochs=None)
    for _ in range(3):
        x, y = next(loader)
        assert x.tolist() == [list(range(8))]
        assert y.tolist() == [list(range(1, 9))]
    with pytest.raises(ValueError, match="there are 9"):
        t.loader(1, 8)


@pytest.mark.parametrize("dtype", ["int64", "int32", "uint32", "uint64", np.int32])
def test_batches_come_in_the_integers_asked_for(counting, dtype):
    x, y = next(counting(500).loader(2, 8, dtype=dtype))
    assert x.dtype == y.dtype == np.dtype(dtype)


@pytest.mark.parametrize("prefetch", [0, 1, 2, 7, None])
def test_how_far_is_read_ahead_changes_nothing(counting, prefetch):
    t = counting(100_000, 3)
    assert starts(t.loader(8, 100, prefetch=prefetch)) == starts(t.loader(8, 100))


def test_without_prefetch_there_is_no_thread(counting):
    loader = counting(100_000).loader(8, 100, prefetch=0)
    before = len(os.listdir("/proc/self/task"))
    for _ in range(20):
        next(loader)
    assert len(os.listdir("/proc/self/task")) <= before


def test_every_access_gives_the_same(counting, every_access):
    whole = starts(counting(200_000, 5).loader(16, 200, seed=5, epochs=2))
    for access in every_access:
        for files in (1, 5):
            t = counting(200_000, files, access=access, budget="32MiB")
            loader = t.loader(16, 200, seed=5, epochs=2)
            assert starts(loader) == whole
            if access != "auto":
                assert loader.access == access
            assert loader.why


def test_rank_and_world_size_come_from_torchrun(counting, monkeypatch):
    t = counting(5_000)
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "3")
    assert starts(t.loader(4, 50)) == starts(t.loader(4, 50, rank=1, world_size=3))


def test_several_threads_may_take_batches(counting):
    loader = counting(400_000).loader(4, 100)
    taken, lock = [], threading.Lock()

    def take():
        # Not `for`: an iter() after the last batch would begin the next epoch.
        while (batch := next(loader, None)) is not None:
            with lock:
                taken.extend(batch[0][:, 0].tolist())

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(taken) == len(set(taken)) == len(loader) * 4


def test_a_forked_child_goes_on_by_itself(counting):
    loader = counting(100_000).loader(4, 100)
    next(loader)
    child = in_a_forked_child(lambda: flat(starts(loader))[:50])
    assert child == flat(starts(loader))[:50]


def test_turns_are_workers_batches(counting):
    t = counting(3_000)
    whole = starts(t.loader(4, 50, epochs=3))
    for n in (1, 2, 3, 5):
        each = [starts(t.loader(4, 50, epochs=3, _turn=(w, n))) for w in range(n)]
        for b, batch in enumerate(whole):
            assert each[b % n][b // n] == batch
        assert sum(map(len, each)) == len(whole)


def test_a_damaged_state_names_what_is_wrong(counting):
    loader = counting(500).loader(2, 8)
    state = loader.state_dict()
    for key, value in [("epoch", "x"), ("position", -1), ("seed", None), ("fingerprint", 3), ("turn", "x")]:
        with pytest.raises(ValueError, match=f'the state has "{key}": .*is it from a loader'):
            loader.load_state_dict({**state, key: value})
    loader.load_state_dict(state)

"""Iterators used a second time: exactly ``len`` of them, left half way, after an error, pickled, repeated."""

import copy
import itertools
import json
import multiprocessing
import os
import pickle

import numpy as np
import pytest
from token_streams import flat, starts

import lowtide


@pytest.fixture
def rows(save):
    """107 rows, opened: row i holds i."""
    return lowtide.open(save(np.arange(107)))


def taken(it, count=None):
    """The rows of the next chunks."""
    return [chunk.tolist() for chunk in itertools.islice(it, count)]


def epoch_of(rows, epoch, seed=0):
    return taken(rows.shuffled(10, seed, epoch=epoch))


# Exactly len


@pytest.mark.parametrize("order", ["shuffled", "sequential", "with_replacement"])
@pytest.mark.parametrize("epochs", [1, 2])
@pytest.mark.parametrize("last", [True, False])
def test_exactly_len_batches_are_an_iteration(counting, order, epochs, last):
    t = counting(700)  # 13 windows of 50
    settings = {"order": order, "epochs": epochs, "drop_last": last}
    one, all_of_them = t.loader(4, 50, **settings), t.loader(4, 50, **{**settings, "epochs": None})
    for number in range(4):
        want = starts(all_of_them, len(one))
        assert starts(one, len(one)) == want
        assert next(one, None) is None
        assert next(one, None) is None, "until iter() is called"
        state = one.state_dict()
        assert (state["epoch"], state["position"]) == ((number + 1) * epochs, 0)
        other = t.loader(4, 50, **settings)
        other.load_state_dict(state)
        assert starts(other, len(other)) == starts(copy.copy(all_of_them), len(one))


def test_breaking_at_the_last_batch_or_after_it_is_the_same(counting):
    t = counting(700)
    loader, other = t.loader(4, 50), t.loader(4, 50)
    for _ in range(3):
        for number, _ in enumerate(loader, 1):
            if number == len(loader):
                break
        list(other)
        assert loader.state_dict() == other.state_dict()
    assert starts(loader) == starts(other)


def test_a_resumed_iteration_ends_where_it_would_have_ended(counting):
    t = counting(700)
    for stop in range(7):
        loader, whole = t.loader(4, 50, epochs=2), starts(t.loader(4, 50, epochs=4))
        starts(loader, stop)
        resumed = t.loader(4, 50, epochs=2)
        resumed.load_state_dict(loader.state_dict())
        rest = starts(resumed, len(resumed))
        assert rest == (whole[stop:6] if stop < 6 else whole[6:])
        after = whole[6:] if stop < 6 else starts(t.loader(4, 50, epoch=4, epochs=2))
        assert starts(resumed, len(resumed)) == after


def test_other_ranks_go_on_with_the_next_epoch_where_less_than_a_step_is_left(counting):
    t = counting(700)
    loader = t.loader(4, 50)
    starts(loader, 2)  # 8 of 13 windows: 5 are left
    each = [t.loader(2, 50, rank=r, world_size=3) for r in range(3)]
    for one in each:
        one.load_state_dict(loader.state_dict())
    assert [one.state_dict()["epoch"] for one in each] == [1] * 3
    assert [len(starts(one, len(one))) for one in each] == [2] * 3


def test_a_finished_shuffle_is_the_next_epoch_and_finished_chunks_begin_again(rows):
    shuffled, in_order, both = rows.shuffled(10), rows.chunks(10), lowtide.zip(rows, rows)
    zipped, zipped_in_order = both.shuffled(10), both.chunks(10)
    for epoch in range(4):
        want = epoch_of(rows, epoch)
        count = None if epoch % 2 else 11
        for it in (shuffled, in_order, zipped, zipped_in_order):
            assert len(it) == 11
        assert taken(shuffled, count) == want
        assert [x.tolist() for x, _ in itertools.islice(zipped, count)] == want
        assert flat(taken(in_order, count)) == list(range(107))
        assert len(list(itertools.islice(zipped_in_order, count))) == 11
        for it in (shuffled, in_order, zipped, zipped_in_order):
            assert next(it, None) is None
            assert (it.state_dict()["epoch"], it.state_dict()["position"]) == (epoch + 1, 0)


def test_half_way_is_taken_up(rows):
    shuffled, in_order = rows.shuffled(10), rows.chunks(10)
    assert taken(shuffled, 4) + taken(shuffled) == epoch_of(rows, 0)
    assert flat(taken(in_order, 4) + taken(in_order)) == list(range(107))
    assert len(shuffled) == len(in_order) == 11, "len is of a whole iteration"


@pytest.mark.parametrize("blocks", [None, 8])
def test_blocks_and_ranks_go_on_to_the_next_epoch(rows, blocks):
    words = {"blocks": blocks, "rank": 1, "world_size": 2, "drop_last": True}
    it = rows.shuffled(10, **words)
    for epoch in range(3):
        assert taken(it, len(it)) == taken(rows.shuffled(10, epoch=epoch, **words))


def test_the_first_iteration_begins_at_start(rows):
    for start in (0, 50, 100, 106, 107):
        it = rows.shuffled(10, start=start)
        assert len(it) == 11
        assert flat(taken(it)) == flat(epoch_of(rows, 0))[start:]
        assert taken(it, len(it)) == epoch_of(rows, 1)


def test_no_rows_are_no_chunks(save):
    empty = lowtide.open(save(np.zeros((0, 3))))
    for it in (empty.chunks(4), empty.shuffled(4), empty.shuffled(4, drop_last=True, repeat=True)):
        assert len(it) == 0
        assert [list(it), list(it)] == [[], []]


def test_what_would_never_give_a_chunk_is_refused(rows):
    with pytest.raises(ValueError, match=r"a chunk of 108 is never full: there are 107 rows\nhint: fewer"):
        rows.shuffled(108, drop_last=True)
    with pytest.raises(ValueError, match="a step of 4 ranks with chunks of 30 is never full: there are 107"):
        rows.shuffled(30, rank=0, world_size=4, drop_last=True)
    assert len(rows.shuffled(108)) == 1


def test_after_an_error_the_same_one_is_tried_again(save):
    path = save(np.arange(100_000, dtype="<i8").reshape(-1, 8))
    whole = path.read_bytes()
    it = lowtide.open(path, access="read", budget="300KiB").chunks(1000)
    os.truncate(path, len(whole) // 2)
    seen = []
    with pytest.raises(OSError, match="was cut"):
        seen.extend(it)
    path.write_bytes(whole)
    seen.extend(it)
    assert np.array_equal(np.concatenate(seen).ravel(), np.arange(100_000))
    assert len(list(it)) == len(it) == 13, "and a third time"


# repeat


def test_repeat_begins_the_same_windows_with_every_iter(counting):
    t = counting(700)
    want = starts(t.loader(2, 50, epoch=5))
    loader = t.loader(2, 50, epoch=5, repeat=True)
    for count in (None, 2, 6, 0, 1, None):
        assert starts(loader, count) == want[:count]
    assert (loader.state_dict()["epoch"], loader.state_dict()["position"]) == (5, 0)
    assert next(loader, None) is None
    two = t.loader(2, 50, epoch=5, epochs=2, repeat=True)
    assert starts(two) == starts(two) == want + starts(t.loader(2, 50, epoch=6))
    endless = t.loader(2, 50, epochs=None, repeat=True)
    assert starts(endless, 40) == starts(endless, 40)


def test_an_iterator_of_a_repeated_loader_is_one_iteration(counting):
    loader = counting(700).loader(2, 50, repeat=True)
    whole = starts(loader)
    it = iter(loader)
    first = starts(it, 1)
    assert iter(it) is it
    assert first + starts(it) == whole
    assert starts(it) == []
    old = iter(loader)
    assert starts(iter(loader), 2) == whole[:2]
    assert starts(old, 9) == whole[2:], "they share the loader"


def test_an_iteration_says_of_what_it_is(counting, rows):
    for made in (
        counting(700).loader(2, 50, repeat=True, rank=1, world_size=2),
        rows.shuffled(10, repeat=True, rank=1, world_size=2),
    ):
        it = iter(made)
        assert repr(it) == f"<lowtide.Iteration of {made!r}>"
        assert " repeat=True rank=1 world_size=2 (given) " in repr(it)
        list(it)
        assert repr(it) == f"<lowtide.Iteration of {made!r}, at its end>"


def test_a_loaded_state_is_gone_on_from_once(counting, rows):
    t = counting(700)
    loader, half = t.loader(2, 50, repeat=True), t.loader(2, 50)
    whole = starts(loader)
    starts(half, 2)
    for _ in range(2):
        loader.load_state_dict(half.state_dict())
        iter(loader)  # asking is not taking
        assert starts(loader) == whole[2:]
        assert starts(loader, 3) == whole[:3]
    it, other = rows.shuffled(10, repeat=True), rows.shuffled(10, epoch=3)
    taken(other, 4)
    it.load_state_dict(other.state_dict())
    assert taken(it) == epoch_of(rows, 3)[4:]
    assert taken(it, 2) == epoch_of(rows, 0)[:2]


def test_repeated_rows(rows):
    it = rows.shuffled(10, epoch=2, start=30, repeat=True)
    assert taken(it) == epoch_of(rows, 2)[3:]
    for count in (None, 4, 11, None):
        assert taken(it, count) == epoch_of(rows, 2)[:count]
    assert it.state_dict()["epoch"] == 2
    pairs = lowtide.zip(rows, rows).shuffled(10, repeat=True, with_rows=True)
    for count in (3, 11):
        at = [number for number, _ in itertools.islice(pairs, count)]
        assert np.concatenate(at).tolist() == flat(epoch_of(rows, 0)[:count])


# Copies


def iterators(counting, rows):
    """One of each kind, and what it takes to read one."""
    t, both = counting(700), lowtide.zip(rows, rows)
    numbers = {
        "loader": (t.loader(2, 50, seed=4), starts),
        "two epochs": (t.loader(3, 50, epochs=2, dtype="int32", drop_last=False, prefetch=0), starts),
        "repeat": (t.loader(2, 50, epoch=3, repeat=True), starts),
        "rank": (t.loader(2, 50, rank=1, world_size=2), starts),
        "turn": (t.loader(2, 50, _turn=(1, 2)), starts),
        "draws": (t.loader(2, 50, order="with_replacement", seed=None), starts),
        "chunks": (rows.chunks(10), taken),
        "shuffled": (rows.shuffled(10, 5, epoch=2), taken),
        "repeated rows": (rows.shuffled(10, repeat=True), taken),
        "blocks": (rows.shuffled(10, blocks="auto"), taken),
        "rows of a rank": (rows.shuffled(10, rank=1, world_size=2, drop_last=True), taken),
        "zip": (both.chunks(10), lambda it, n=None: [a.tolist() for a, _ in itertools.islice(it, n)]),
        "with rows": (
            both.shuffled(10, with_rows=True),
            lambda it, n=None: [[a.tolist(), x.tolist()] for a, (x, _) in itertools.islice(it, n)],
        ),
    }
    return numbers.values()


@pytest.mark.parametrize("again", [lambda it: pickle.loads(pickle.dumps(it)), copy.copy, copy.deepcopy])
@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_copy_goes_on_with_the_very_next(counting, rows, again, count):
    for it, read in iterators(counting, rows):
        for _ in range(count):
            next(it)
        twin = again(it)
        assert twin.state_dict() == it.state_dict()
        assert repr(twin).split(" access=")[0] == repr(it).split(" access=")[0]
        assert len(twin) == len(it)
        assert read(iter(twin), 2) == read(iter(it), 2)
        assert read(twin) == read(it)
        assert read(again(it)) == read(it), "one that is over, too"


def test_a_copy_of_one_that_is_over_is_over(counting, rows):
    for it, read in iterators(counting, rows):
        read(it)
        assert next(pickle.loads(pickle.dumps(it)), None) is None


def test_a_spawned_process_goes_on(counting, rows):
    jobs = [it for it, _ in iterators(counting, rows)]
    for it in jobs:
        next(it)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        theirs = pool.map(bytes_of_the_rest, jobs)
    assert theirs == [bytes_of_the_rest(it) for it in jobs]
    assert len(set(theirs)) > 8


def bytes_of_the_rest(it):
    """All that is left, and the first of the next iteration."""
    steps = [*drain(it), next(iter(it))]
    return b"".join(part.tobytes() for step in steps for part in flattened(step))


def drain(it):
    while (step := next(it, None)) is not None:
        yield step


def flattened(step):
    if isinstance(step, tuple):
        return [part for inner in step for part in flattened(inner)]
    return [step]


def test_a_rank_that_was_found_is_sent_and_one_that_was_not_is_asked_for(counting, rows, monkeypatch):
    alone = [pickle.dumps(counting(700).loader(2, 50)), pickle.dumps(rows.shuffled(10))]
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert [len(pickle.loads(sent)) for sent in alone] == [3, 6], "the process has a rank by now"
    found = [pickle.dumps(counting(700).loader(2, 50)), pickle.dumps(rows.shuffled(10))]
    monkeypatch.delenv("RANK")
    monkeypatch.delenv("WORLD_SIZE")
    for sent in found:
        assert "rank=1 world_size=2" in repr(pickle.loads(sent))


def test_an_iteration_with_repeat_pickles_where_it_stands(rows, counting):
    """What ``iter`` gives with ``repeat=True`` is no loader: it goes on, and does not begin again."""
    for made in (rows.shuffled(10, repeat=True), counting(700).loader(3, 10, repeat=True)):
        whole = [np.asarray(item).tolist() for item in made]
        it = iter(made)
        next(it), next(it)
        for other in (pickle.loads(pickle.dumps(it)), copy.deepcopy(it)):
            assert iter(other) is other
            assert [np.asarray(item).tolist() for item in other] == whole[2:]
            assert list(other) == [], "it is over"
        assert [np.asarray(item).tolist() for item in it] == whole[2:]
        assert list(pickle.loads(pickle.dumps(it))) == [], "over stays over"


def test_zips_and_budgets_pickle(rows):
    both = lowtide.zip(rows, rows)
    for again in (pickle.loads(pickle.dumps(both)), copy.deepcopy(both)):
        assert (len(again), len(again.arrays)) == (107, 2)
        assert again[5][1] == 5
    budget = pickle.loads(pickle.dumps(lowtide.Budget("3MiB")))
    assert (budget.limit, budget.used) == (3 << 20, 0)


# Arguments


def test_a_random_seed_is_held_by_the_state(counting, rows):
    t = counting(5_000)
    one, two = t.loader(4, 50, seed=None), t.loader(4, 50, seed=None)
    assert one.state_dict()["seed"] != two.state_dict()["seed"]
    first = starts(one, 5)
    state = json.loads(json.dumps(one.state_dict()))
    assert 0 <= state["seed"] < 2**63
    two.load_state_dict(state)
    assert starts(two) == starts(one)
    assert starts(t.loader(4, 50, seed=state["seed"]), 5) == first
    it = rows.shuffled(10, seed=None)
    assert taken(it) == epoch_of(rows, 0, it.state_dict()["seed"])
    for make in (lambda **w: t.loader(4, 50, seed=None, **w), lambda **w: rows.shuffled(10, seed=None, **w)):
        make(rank=0, world_size=1)
        with pytest.raises(ValueError, match=r"all 2 ranks must have the same\nhint: pass a seed"):
            make(rank=0, world_size=2)


def calls(counting, rows):
    """Each argument that is a whole number, and a call that takes it."""
    t, both = counting(700), lowtide.zip(rows, rows)
    for name in ("seed", "epoch", "start"):
        yield name, lambda n, name=name: rows.shuffled(10, **{name: n})
        yield name, lambda n, name=name: both.shuffled(10, **{name: n})
    for name in ("seed", "epoch", "epochs", "prefetch"):
        yield name, lambda n, name=name: t.loader(4, 50, **{name: n})
    for make in (lambda **w: t.loader(4, 50, **w), lambda **w: rows.shuffled(10, **w)):
        yield "rank", lambda n, make=make: make(rank=n, world_size=2)
        yield "world_size", lambda n, make=make: make(rank=0, world_size=n)
    for make in (rows.chunks, rows.shuffled, both.chunks, both.shuffled):
        yield "rows", make
    yield "batch_size", lambda n: t.loader(n, 50)
    yield "block_size", lambda n: t.loader(4, n)
    yield "block_size", lambda n: t.windows([0], n)
    yield "offset", lambda n: lowtide.open(rows.path, dtype="u1", offset=n)
    yield "end_of_text", lambda n: lowtide.tokens(t.files[0], end_of_text=n)


def test_numbers_out_of_range_are_refused_by_name(counting, rows):
    for name, call in calls(counting, rows):
        least = 1 if name in ("rows", "batch_size", "block_size", "epochs", "world_size") else 0
        for wrong in (-1, np.int64(-7), 2**64, -(2**70)):
            says = rf"^{name} is {int(wrong)}: it must be a whole number from {least} to 2\*\*64 - 1"
            with pytest.raises(ValueError, match=says):
                call(wrong)
        with pytest.raises(ValueError, match=f"^{name} is far above"):
            call(10**5000)  # longer than Python prints
        with pytest.raises(ValueError, match=f"^{name} is far below 0"):
            call(-(10**50))
        for wrong, shown in ((1.5, r"1\.5 \(float\)"), ("7", r"'7' \(str\)"), ([1], r"\[1\] \(list\)")):
            with pytest.raises(TypeError, match=f"^{name} must be a whole number, not {shown}"):
                call(wrong)
        call(np.uint8(1))


def test_chunks_say_what_they_are(rows, save):
    it = rows.shuffled(10, seed=3, epoch=2)
    next(it)
    said = f'<lowtide.Chunks "{rows.path}" rows=10 order=shuffled seed=3 rank=0 world_size=1 ('
    assert repr(it).startswith(said)
    assert ") epoch=2 position=10 access=" in repr(it)
    assert repr(rows.chunks(7)).startswith(
        f'<lowtide.Chunks "{rows.path}" rows=7 order=sequential epoch=0 position=0 access='
    )
    other = lowtide.open(save(np.arange(107), "other.npy"))
    said = repr(lowtide.zip(rows, other).shuffled(8, blocks=16, repeat=True, rank=1, world_size=2))
    assert said.startswith(
        f'<lowtide.Chunks "{rows.path}", "{other.path}" rows=8 order=shuffled seed=0 blocks='
    )
    assert ") repeat=True rank=1 world_size=2 (given) epoch=0 position=0 access=" in said
    list(it)
    assert " epoch=3 position=0 " in repr(it)


@pytest.mark.parametrize(
    ("key", "value"), [("epoch", "x"), ("position", -1), ("seed", None), ("fingerprint", 3), ("blocks", 4)]
)
def test_a_damaged_state_names_what_is_wrong(rows, key, value):
    it = rows.shuffled(10)
    with pytest.raises(ValueError, match=f'the state has "{key}": .*is it from an array'):
        it.load_state_dict({**it.state_dict(), key: value})

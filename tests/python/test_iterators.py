"""``chunks``, ``shuffled`` and ``zip``: every row exactly once, from anywhere, in any number of ranks."""

import gc
import itertools
import json
import logging
import os
import re
import threading
from pathlib import Path

import numpy as np
import pytest

import lowtide


def numbered(n, width=4, dtype="<i4"):
    """Row i holds i in every place (as far as the type can count)."""
    return np.repeat(np.arange(n).astype(dtype)[:, None], width, axis=1)


@pytest.fixture
def rows(save, least):
    """10,007 numbered rows of 16 bytes, opened."""
    with lowtide.open(save(numbered(10_007)), budget=least) as array:
        yield array


def numbers(chunks):
    """The row numbers that the chunks hold, after a look at every place of every row."""
    out = []
    for chunk in chunks:
        assert (chunk == chunk[:, :1]).all()
        out.extend(chunk[:, 0].tolist())
    return out


# Every row exactly once


@pytest.mark.parametrize("n", [0, 1, 2, 63, 64, 65, 127, 128, 129, 65_535, 65_536, 65_537])
def test_every_row_once_at_every_length(save, every_access, least, n):
    path = save(numbered(n))
    for access in every_access:
        with lowtide.open(path, access=access, budget=least) as a:
            assert numbers(a.chunks(64)) == list(range(n))
            it = a.shuffled(64, seed=5)
            assert len(it) == -(-n // 64)
            order = numbers(it)
            assert sorted(order) == list(range(n))
            assert n < 10 or order != list(range(n))
            assert len(it) == -(-n // 64)
            assert next(it, None) is None


@pytest.mark.parametrize(
    "shape", [(1,), (), (3,), (8,), (511,), (512,), (4096,), (5000,), (70_000,), (0,), (3, 0, 2), (2, 3, 5)]
)
def test_every_row_size(save, access, least, shape):
    n = max(7, min(3000, (6 << 20) // (int(np.prod(shape)) or 1)))
    array = np.random.default_rng(3).integers(0, 256, (n, *shape), np.uint8)
    with lowtide.open(save(array), access=access, budget=least) as a:
        for size in (1, n - 1, n, n + 1, 100) if n < 200 else (100, n + 1):
            got = list(a.chunks(size))
            assert [len(c) for c in got] == [size] * (n // size) + [n % size] * (n % size > 0)
            assert (np.concatenate(got) == array).all()
            seen = np.zeros(n, int)
            for at, chunk in a.shuffled(size, seed=1, with_rows=True):
                assert at.dtype == np.int64
                assert chunk.shape == (len(at), *shape)
                assert (chunk == array[at]).all()
                seen[at] += 1
            assert (seen == 1).all()


@pytest.mark.parametrize("budget", ["300KiB", "1MiB", "3MiB"])
def test_a_small_budget_is_many_look_aheads(save, budget):
    array = numbered(200_000, 8)  # 6.4 MB
    a = lowtide.open(save(array), access="read", budget=budget)
    it = a.shuffled(1000, seed=2)
    order = []
    for chunk in it:
        assert a.budget.used <= a.budget.limit
        order += chunk[:, 0].tolist()
    assert sorted(order) == list(range(200_000))
    large = lowtide.open(a.path, access="read", budget="200MiB")
    assert numbers(large.shuffled(1000, seed=2)) == order, "the budget is no part of the order"


def test_every_access_gives_the_same_order(save, every_access, least):
    path = save(numbered(70_000))
    orders = [numbers(lowtide.open(path, access=w, budget=least).shuffled(999, seed=9)) for w in every_access]
    assert all(order == orders[0] for order in orders)


def test_fortran_order(save, access, least):
    array = np.asfortranarray(np.random.default_rng(0).random((3000, 7)))
    with lowtide.open(save(array), access=access, budget=least) as a:
        for rows in (500, 10, 3000):
            assert (np.concatenate(list(a.chunks(rows))) == array).all()
        shuffled = a.shuffled(500, seed=1, with_rows=True)
        assert shuffled.why.startswith("the file is in Fortran order and small: it was read into memory once")
        state = None
        for i, (at, chunk) in enumerate(shuffled):
            assert (chunk == array[at]).all()
            assert a.budget.limit >= a.budget.used >= array.nbytes
            state = shuffled.state_dict() if i == 2 else state
        again = a.shuffled(500, seed=1, with_rows=True)
        again.load_state_dict(state)
        numbers = lowtide.open(save(np.arange(3000), "numbers.npy"))
        assert (next(again)[0] == next(numbers.shuffled(500, seed=1, start=1500))).all()
        held = a.shuffled(500)
        a.close()
        with pytest.raises(ValueError, match="closed"):
            next(held)


@pytest.mark.parametrize("shape", [(40, 3, 5), (7, 2, 3, 4), (100_000, 2), (2, 50_000), (5, 0), (1, 1, 1)])
def test_fortran_order_in_memory_is_the_same_array(save, shape):
    array = np.asfortranarray(np.random.default_rng(0).integers(0, 1 << 30, shape, "i4"))
    a = lowtide.open(save(array), budget="16MiB")
    got = [chunk for at, chunk in a.shuffled(3000, with_rows=True) if (chunk == array[at]).all()]
    assert sum(map(len, got)) == len(array)
    assert (np.concatenate(list(a.chunks(1 if len(array) < 1000 else 77))) == array).all()


def test_a_large_file_in_fortran_order_is_refused(save):
    array = np.asfortranarray(np.random.default_rng(0).random((30_000, 7)))  # 1.6 MiB
    a = lowtide.open(save(array), budget="3MiB")
    assert (np.concatenate(list(a.chunks(500))) == array).all()
    for refuse, hint in (
        (lambda: a.chunks(10), "take chunks of 64 rows or more"),
        (lambda: a.shuffled(500), r"chunks\(\) reads it in file order"),
    ):
        with pytest.raises(NotImplementedError, match=rf"Fortran.*\nhint: {hint}; with budget=") as refused:
            refuse()
        assert str(refused.value).endswith('lowtide.convert(IN, OUT, order="C"), writes it in C order')
    enough = re.search(r'budget="(\w+)"', str(refused.value))[1]
    assert len(list(lowtide.open(a.path, budget=enough).shuffled(500))) == 60


def test_seed_and_epoch_change_the_order(rows):
    orders = [
        tuple(numbers(rows.shuffled(1000, s, epoch=e)))
        for s, e in itertools.product((0, 1, 2**64 - 1), (0, 1))
    ]
    assert len(set(orders)) == len(orders)
    assert tuple(numbers(rows.shuffled(333, seed=1, epoch=1))) == orders[3], (
        "the chunk's size is no part of the order"
    )
    end = rows.shuffled(10_007, epoch=2**64 - 1)
    list(end)
    assert end.state_dict()["epoch"] == 0, "epochs wrap"


# Ranks


def dealt(a, size, world, **words):
    return [list(a.shuffled(size, seed=4, rank=r, world_size=world, **words)) for r in range(world)]


@pytest.mark.parametrize("world", [1, 2, 3, 5, 8])
def test_ranks_share_an_epoch(rows, world):
    ranks = dealt(rows, 100, world)
    assert len({len(r) for r in ranks}) == 1, "equally many chunks"
    assert sorted(itertools.chain(*map(numbers, ranks))) == list(range(10_007))
    whole = numbers(rows.shuffled(1, seed=4))
    stream = [n for step in zip(*ranks, strict=True) for chunk in step for n in chunk[:, 0].tolist()]
    assert stream == whole, "one global stream, whatever the number of ranks"
    dropped = dealt(rows, 100, world, drop_last=True)
    assert all(len(c) == 100 for r in dropped for c in r)
    assert len(numbers(itertools.chain(*dropped))) == 10_007 // (100 * world) * 100 * world


def test_ranks_come_from_torchruns_environment(rows, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "3")
    assert numbers(rows.shuffled(10, 4)) == numbers(rows.shuffled(10, 4, rank=1, world_size=3))
    assert numbers(rows.shuffled(10, 4, rank=0, world_size=1)) == numbers(dealt(rows, 10, 1)[0])
    monkeypatch.setenv("RANK", "one")
    with pytest.raises(ValueError, match='RANK="one", which is not a number'):
        rows.shuffled(10)
    monkeypatch.delenv("RANK")
    monkeypatch.delenv("WORLD_SIZE")
    assert len(rows.shuffled(10)) == 1001


def test_ranks_that_make_no_sense(rows):
    for words, says in [
        ({"rank": 0}, "go together"),
        ({"world_size": 2}, "go together"),
        ({"rank": 2, "world_size": 2}, "rank 2 is out of range for a world_size of 2"),
        ({"rank": 0, "world_size": 0}, "world_size is 0"),
        ({"rank": 0, "world_size": 5000}, "hint: drop the last step"),
        (
            {"start": 10_008},
            "start=10008 is behind the last row: there are 10007\nhint: it counts the rows of all",
        ),
    ]:
        with pytest.raises(ValueError, match=says):
            rows.shuffled(2, **words)
    with pytest.raises(ValueError, match="chunk of 0 rows"):
        rows.shuffled(0)
    with pytest.raises(ValueError, match="chunk of 0 rows"):
        rows.chunks(0)
    with pytest.raises(ValueError, match="hint: "):
        rows.shuffled(10, blocks="some")


# State


@pytest.mark.parametrize("taken", [0, 1, 2, 50, 99, 100])
def test_a_pass_goes_on_where_it_stood(rows, taken):
    whole = numbers(rows.shuffled(1, seed=6, epoch=3))
    it = rows.shuffled(100, seed=6, epoch=3)
    first = numbers(itertools.islice(it, taken))
    state = json.loads(json.dumps(it.state_dict()))
    assert (state["position"], state["epoch"], state["seed"]) == (100 * taken, 3, 6)
    assert len(json.dumps(state)) < 500
    rest = numbers(it)
    assert first + rest == whole
    again = rows.shuffled(100)
    next(again)  # what it did before does not matter
    again.load_state_dict(state)
    assert again.state_dict() == state
    assert numbers(again) == rest
    assert numbers(rows.shuffled(100, seed=6, epoch=3, start=100 * taken)) == rest
    assert numbers(rows.shuffled(100, seed=6, epoch=3, start=100 * taken + 7)) == rest[7:]


def test_after_the_last_chunk_the_state_is_the_next_epoch(rows):
    it = rows.shuffled(1000, seed=6)
    list(it)
    state = it.state_dict()
    assert (state["epoch"], state["position"]) == (1, 0)
    it.load_state_dict(state)
    assert numbers(it) == numbers(rows.shuffled(1000, seed=6, epoch=1))
    assert it.state_dict()["epoch"] == 2


@pytest.mark.parametrize(("world", "size"), [(2, 60), (4, 30), (1, 120), (3, 40), (5, 7)])
def test_a_state_loads_under_another_world_size(rows, world, size):
    whole = numbers(rows.shuffled(1, seed=4))
    before = [rows.shuffled(60, seed=4, rank=r, world_size=2) for r in range(2)]
    taken = [next(it) for _ in range(11) for it in before]
    states = [it.state_dict() for it in before]
    assert states[0] == states[1], "the state is global"
    after = [rows.shuffled(size, rank=r, world_size=world) for r in range(world)]
    for it in after:
        it.load_state_dict(states[0])
    steps = list(zip(*map(list, after), strict=True))
    assert numbers(taken) + numbers(itertools.chain(*steps)) == whole
    if world * size == 120:  # the same global batch: each step is the same rows
        assert sorted(numbers(steps[0])) == sorted(whole[1320:1440])


def test_a_state_of_other_data_is_refused(rows, save):
    state = rows.shuffled(10).state_dict()
    for other in [numbered(10_007) + 1, numbered(10_008), numbered(10_007, dtype="<u4")]:
        with pytest.raises(ValueError, match=r"the state is of other data: .*\nhint: "):
            lowtide.open(save(other, "other.npy")).shuffled(10).load_state_dict(state)
    it = rows.shuffled(10)
    for wrong, says in [
        ({}, "the state has no"),
        ({**state, "version": 2}, "has version 2, this Lowtide knows version 1"),
        ({**state, "position": 10_008}, "there are only 10007"),
    ]:
        with pytest.raises(ValueError, match=says):
            it.load_state_dict(wrong)
    with pytest.raises(TypeError):
        it.load_state_dict([])
    assert numbers(it) == numbers(rows.shuffled(10)), "a refused state changes nothing"


def test_chunks_in_file_order_have_a_state_too(rows):
    it = rows.chunks(1000)
    next(it)
    again = rows.chunks(500)
    again.load_state_dict(it.state_dict())
    assert numbers(again) == list(range(1000, 10_007))


# Several arrays


def test_zip_takes_the_same_rows(save, access, least):
    x, y = numbered(10_007), np.arange(10_007) * 3
    z = np.asfortranarray(numbered(10_007, 2))
    shared = lowtide.Budget(2 * least)
    a, b, c = (
        lowtide.open(save(v, f"{i}.npy"), access=access, budget=shared) for i, v in enumerate((x, y, z))
    )
    pair = lowtide.zip(a, b)
    assert (len(pair), pair.arrays) == (10_007, (a, b))
    seen = []
    for at, (rows, labels) in pair.shuffled(100, seed=3, with_rows=True):
        assert (rows[:, 0] * 3 == labels).all()
        assert (at == rows[:, 0]).all()
        assert shared.used <= shared.limit
        seen += at.tolist()
    assert sorted(seen) == list(range(10_007))
    assert seen == numbers(a.shuffled(100, seed=3)), "the same order as one array alone"
    for p, q, r in lowtide.zip(a, b, c).chunks(1000):
        assert (p[:, 0] * 3 == q).all()
        assert (r[:, 0] == p[:, 0]).all()
    assert [v.tolist() for v in pair[5]] == [x[5].tolist(), 15]
    assert [v.tolist() for v in pair.take([1, 2])] == [x[1:3].tolist(), [3, 6]]
    it = pair.shuffled(100, seed=3)
    next(it)
    again = pair.shuffled(100)
    again.load_state_dict(it.state_dict())
    assert (next(again)[1] == next(it)[1]).all()
    with pytest.raises(ValueError, match="other data"):
        a.shuffled(100).load_state_dict(it.state_dict())


def test_zip_refuses_what_does_not_belong_together(rows, save):
    short = lowtide.open(save(numbered(10), "short.npy"))
    with pytest.raises(
        ValueError, match=r"different lengths: .*rows.npy has 10007 rows, .*short.npy has 10\n"
    ):
        lowtide.zip(rows, short)
    with pytest.raises(ValueError, match="at least one"):
        lowtide.zip()
    for wrong in [np.arange(10_007), "rows.npy", None]:
        with pytest.raises(TypeError, match=r"lowtide\.zip takes arrays that lowtide\.open returned"):
            lowtide.zip(rows, wrong)
    empty = lowtide.open(save(np.array(1), "single.npy"))
    with pytest.raises(ValueError, match="no rows"):
        lowtide.zip(empty)


# How iterators are used


def test_left_half_way_and_nested(rows):
    want = numbers(rows.shuffled(100, seed=1))
    outer = rows.shuffled(100, seed=1)
    got = []
    for i, chunk in enumerate(outer):
        inner = rows.shuffled(50, seed=i) if i % 2 else rows.chunks(70)
        next(inner)
        next(inner)  # and left
        got += chunk[:, 0].tolist()
    assert got == want
    del outer, inner, chunk
    assert rows.budget.used <= rows.budget.limit


def test_many_iterators_hold_look_ahead_in_one_budget(save):
    a = lowtide.open(save(numbered(100_000)), access="read", budget="2MiB")
    its = [a.shuffled(1000, seed=s) for s in range(12)]
    orders = [[] for _ in its]
    for step in zip(*its, strict=True):
        assert a.budget.used <= a.budget.limit
        for order, chunk in zip(orders, step, strict=True):
            order += chunk[:, 0].tolist()
    assert all(sorted(order) == list(range(100_000)) for order in orders)


def test_several_threads_share_an_iterator(save, access, least):
    array = numbered(200_000)
    with lowtide.open(save(array), access=access, budget=least) as a:
        it = a.shuffled(500, seed=8, with_rows=True)
        parts = [[] for _ in range(6)]

        def work(part):
            # Not `for`: an iter() after the last chunk would begin the next epoch.
            while (step := next(it, None)) is not None:
                at, chunk = step
                assert (chunk[:, 0] == at).all()
                part += at.tolist()

        threads = [threading.Thread(target=work, args=(p,)) for p in parts]
        [t.start() for t in threads]
        [t.join() for t in threads]
        assert sorted(itertools.chain(*parts)) == list(range(200_000))
        assert next(it, None) is None


def test_several_threads_use_an_array(save, access, least):
    array = numbered(100_000, 16)
    failed = []
    with lowtide.open(save(array), access=access, budget=least) as a:

        def work(seed):
            try:
                rng = np.random.default_rng(seed)
                for _ in range(15):
                    at = rng.integers(0, 100_000, 300)
                    assert (a[at] == array[at]).all()
                order = numbers(itertools.islice(a.shuffled(5000, seed=seed), 10))
                assert len(set(order)) == 50_000
                assert (a[seed::7] == array[seed::7]).all()
            except BaseException as error:
                failed.append(error)

        threads = [threading.Thread(target=work, args=(i,)) for i in range(5)]
        [t.start() for t in threads]
        [t.join() for t in threads]
    assert not failed


def test_chunks_that_are_held_are_never_reused(save, access, least):
    array = numbered(60_000, 256)  # 61 MB, far more than the budget
    with lowtide.open(save(array), access=access, budget=least) as a:
        held = list(itertools.islice(a.shuffled(1000, seed=1, with_rows=True), 50))
        held += [
            (np.arange(i, i + 1000), c) for i, c in zip(range(0, 9000, 1000), a.chunks(1000), strict=False)
        ]
        places = {c.ctypes.data for _, c in held}
        assert len(places) == len(held)
        a.close()
        for at, chunk in held:
            assert (chunk == array[at]).all()
            assert chunk.flags.writeable


def test_dropped_memory_comes_back_newest_first(save):
    a = lowtide.open(save(numbered(10_000, 64)), access="read", budget="64MiB")
    first, second = a[:1000], a[1000:2000]
    old, new = first.ctypes.data, second.ctypes.data
    assert old != new
    view = second[5:7]
    del first, second
    third = a[2000:3000]
    assert third.ctypes.data == old, "a view keeps the memory"
    assert (view[:, 0] == [1005, 1006]).all()
    del view
    fourth = a[3000:4000]
    assert fourth.ctypes.data == new
    del third
    del fourth
    assert a[:1000].ctypes.data == new, "the newest first"


def test_a_chunk_larger_than_the_budget_is_refused_with_one_that_fits(save):
    path = save(numbered(100_000, 1024))  # 4 KiB a row
    for budget in [4_096_000, "1MiB", "3MiB", 5000]:
        a = lowtide.open(path, access="read", budget=budget)
        for make in (a.chunks, a.shuffled):
            with pytest.raises(MemoryError) as refused:
                make(50_000)
            text = str(refused.value)
            assert text.startswith("a chunk of 50000 rows needs "), text
            fits = int(text.split("hint: chunks of ")[1].split(" rows fit")[0])
            assert fits >= 0.8 * a.budget.limit / 4096 - 1
            assert len(next(make(fits))) == fits
            with pytest.raises(MemoryError):
                make(fits + 1)
    with pytest.raises(MemoryError, match="hint: one row takes 4 KiB; open with a larger budget="):
        lowtide.open(path, access="read", budget=1000).chunks(1)


def test_close_ends_what_was_made_from_it(save, access, least):
    path = save(numbered(50_000))
    a = lowtide.open(path, access=access, budget=least)
    its = [a.chunks(100), a.shuffled(100), lowtide.zip(a).shuffled(100)]
    held = [next(it) for it in its]
    a.close()
    for it in its:
        for _ in range(2):
            with pytest.raises(ValueError, match=r"rows\.npy: this has been closed"):
                next(it)
    assert (held[0][:, 0] == np.arange(100)).all()
    assert a.budget.used <= a.budget.limit


def descriptors(path):
    links = (Path("/proc/self/fd", fd) for fd in os.listdir("/proc/self/fd"))
    return sum(link.is_symlink() and os.readlink(link) == str(path) for link in links)


def test_close_gives_descriptors_and_maps_back(save, access, least):
    path = save(numbered(500_000))
    assert descriptors(path) == 0
    with lowtide.open(path, access=access, budget=least) as a:
        it = a.shuffled(1000)
        next(it)
        assert descriptors(path) >= 1
        if access in ("map", "advise"):
            assert str(path) in Path("/proc/self/maps").read_text()
    assert descriptors(path) == 0
    assert str(path) not in Path("/proc/self/maps").read_text()
    b = lowtide.open(path, access=access, budget=least)
    b[5], next(b.chunks(5))
    del b, a, it
    gc.collect()
    assert descriptors(path) == 0
    assert str(path) not in Path("/proc/self/maps").read_text()


def test_memory_of_a_closed_array_goes_back(save, memory):
    path = save(np.zeros((200_000, 64)))  # 102 MB
    before = memory()["RssAnon"]
    for _ in range(3):
        a = lowtide.open(path, access="read", budget="64MiB")
        list(a.shuffled(1000))
        del a
        gc.collect()
    assert memory()["RssAnon"] - before < 16 << 20


def exhaust(it):
    for at, chunk in it:
        assert (chunk == at[:, None]).all()


def test_a_file_that_is_cut_is_an_error_never_a_crash(save, access, least):
    path = save(numbered(500_000, 8))  # 16 MB
    a = lowtide.open(path, access=access, budget=least)
    its = [a.shuffled(1000, with_rows=True), a.shuffled(7, seed=1, with_rows=True)]
    for it in its:
        next(it)
    in_order = a.chunks(1000)
    next(in_order)
    os.truncate(path, 1 << 20)
    for it in its:
        with pytest.raises(OSError, match=f"{path}: the file was cut while it was being read") as refused:
            exhaust(it)
        assert refused.value.errno == 5
        assert refused.value.filename == str(path)
    with pytest.raises(OSError, match="the file was cut"):
        list(in_order)
    with pytest.raises(OSError, match="the file was cut"):
        a[-1]
    assert (a[:100] == numbered(100, 8)).all(), "what is still there can be read"
    # A file that has grown back is read again, and the iterators go on where they stood.
    np.save(path.with_name("again.npy"), numbered(500_000, 8))
    with path.open("r+b") as file:
        file.write(path.with_name("again.npy").read_bytes())
    left = numbers(in_order)
    assert left == list(range(500_000 - len(left), 500_000))
    assert len(left) > 400_000
    exhaust(its[0])
    assert a[-1, 0] == 499_999


@pytest.mark.parametrize("access", ["read", "direct", "auto"])
@pytest.mark.parametrize("blocks", [None, 100])
def test_the_chunks_before_one_that_is_cut_off_still_come(save, access, blocks, least):
    """Chunks are read in groups, with blocks one may lie in two of them; an error is of one chunk."""
    array = numbered(100_000, 128)  # 51 MB
    path = save(array)

    def rows():
        a = lowtide.open(path, access=access, cache="drop", budget=least)
        return a.shuffled(3000, blocks=blocks, seed=1, with_rows=True)

    whole = [at for at, _ in rows()]
    it = rows()
    taken = [next(it)[0]]

    def take():
        for at, chunk in it:
            assert (chunk == at[:, None]).all()
            taken.append(at)

    there = len(array) - 5
    os.truncate(path, path.stat().st_size - (len(array) - there) * 512)
    with pytest.raises(OSError, match="the file was cut"):
        take()
    # What was read before the cut may hold rows that are gone since; nothing that is still there is missing.
    lost = next((i for i, at in enumerate(whole) if (at >= there).any()), len(whole))
    assert lost <= len(taken) < len(whole)
    assert all((a == b).all() for a, b in zip(whole, taken, strict=False))
    assert (whole[len(taken)] >= there).any()
    with pytest.raises(OSError, match="the file was cut"):
        next(it)


def test_auto_says_what_it_took_and_why(rows, caplog):
    with caplog.at_level(logging.DEBUG, "lowtide"):
        it = rows.shuffled(100)
    assert it.access in ("read", "direct", "advise")
    assert len(it.why) > 10
    assert any(it.why in r.getMessage() and it.access in r.getMessage() for r in caplog.records)
    forced = lowtide.open(rows.path, access="advise").shuffled(10)
    assert forced.access == "advise"
    assert forced.why == 'access="advise" was asked for; rank 0 of 1: no launcher seen'


def test_a_state_belongs_to_its_kind_of_pass(rows):
    with pytest.raises(ValueError, match="the state is of a shuffled pass, this one is sequential"):
        rows.chunks(10).load_state_dict(rows.shuffled(10).state_dict())
    with pytest.raises(ValueError, match="the state is of a sequential pass"):
        rows.shuffled(10).load_state_dict(rows.chunks(10).state_dict())

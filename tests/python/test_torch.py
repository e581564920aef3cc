"""``lowtide.torch``: nanoGPT's batches bit for bit, and every batch once through any DataLoader.

The oracles are nanoGPT's own function, written out here, and ``tokens.loader``, which test_loader.py checks.
"""

from __future__ import annotations

import copy
import itertools
import json
import multiprocessing
import os
import pickle
import time
import warnings

import numpy as np
import pytest

import lowtide

torch = pytest.importorskip("torch", reason="torch is not installed")
DataLoader = torch.utils.data.DataLoader

import lowtide.torch  # noqa: E402 (it needs torch)
from lowtide.torch import TokenDataset, get_batch  # noqa: E402

pytestmark = [
    pytest.mark.heavy,
    pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning"),  # than it has cores
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),  # threads here, from CPython 3.12 on
    pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning"),  # torchdata calls it
]


def nanogpt(path, dtype, batch_size, block_size, generator=None):
    """What nanoGPT's train.py has, with the name of the file, its dtype and the generator as arguments."""
    data = np.memmap(path, dtype=dtype, mode="r")
    ix = torch.randint(len(data) - block_size, (batch_size,), generator=generator)
    x = torch.stack([torch.from_numpy((data[i : i + block_size]).astype(np.int64)) for i in ix])
    y = torch.stack([torch.from_numpy((data[i + 1 : i + 1 + block_size]).astype(np.int64)) for i in ix])
    return x, y


def equal(got, want) -> bool:
    """Shape, dtype, device, layout and every token."""
    return all(
        torch.equal(a, b) and a.dtype == b.dtype and a.device == b.device and a.stride() == b.stride()
        for a, b in zip(got, want, strict=True)
    )


@pytest.fixture(scope="module")
def train(tmp_path_factory):
    """A nanoGPT file of 300,000 tokens."""
    path = tmp_path_factory.mktemp("torch") / "train.bin"
    np.random.default_rng(7).integers(0, 50257, 300_000).astype("<u2").tofile(path)
    return path


@pytest.fixture(scope="module")
def shards(tmp_path_factory, train):
    """The same tokens in llm.c's shards of awkward sizes."""
    folder = tmp_path_factory.mktemp("shards")
    tokens = np.fromfile(train, "<u2")
    for i, (start, end) in enumerate(itertools.pairwise([0, 1, 90_000, 90_007, 200_001, 300_000])):
        header = np.zeros(256, "<i4")
        header[:3] = 20240520, 1, end - start
        (folder / f"{i:03}.bin").write_bytes(header.tobytes() + tokens[start:end].tobytes())
    return folder


# get_batch


@pytest.mark.parametrize("source", ["train", "shards"])
@pytest.mark.parametrize(
    ("batch", "block"), [(12, 1024), (64, 256), (1, 1), (3, 7), (2, 299_999)], ids=lambda n: str(n)
)
def test_a_thousand_batches_are_nanogpts(train, source, batch, block, request):
    tokens = lowtide.tokens(request.getfixturevalue(source))
    batches = 1000 if batch * block < 100_000 else 20
    torch.manual_seed(1337)
    want = [nanogpt(train, np.uint16, batch, block) for _ in range(batches)]
    after = torch.random.get_rng_state()
    torch.manual_seed(1337)
    assert all(equal(get_batch(tokens, batch, block), pair) for pair in want)
    assert torch.equal(torch.random.get_rng_state(), after)  # so that the rest of a training is the same too


def test_an_explicit_generator_is_the_only_one_used(train):
    tokens = lowtide.tokens(train)
    ours, theirs = torch.Generator().manual_seed(5), torch.Generator().manual_seed(5)
    before = torch.random.get_rng_state()
    for _ in range(1000):
        got = get_batch(tokens, 4, 100, generator=ours)
        assert equal(got, nanogpt(train, np.uint16, 4, 100, theirs))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert torch.equal(ours.get_state(), theirs.get_state())


@pytest.mark.parametrize("access", ["map", "remap", "advise", "read", "direct"])
def test_nanogpts_by_every_access(train, access):
    tokens = lowtide.tokens(train, access=access)
    ours, theirs = torch.Generator().manual_seed(5), torch.Generator().manual_seed(5)
    for _ in range(50):
        assert equal(get_batch(tokens, 12, 1024, generator=ours), nanogpt(train, np.uint16, 12, 1024, theirs))


@pytest.mark.parametrize("dtype", [np.uint16, np.uint32])
@pytest.mark.parametrize("choices", [2**28 - 1, 2**28, 2**32, 2**32 + 12_345])
def test_nanogpts_where_randint_takes_other_words(tmp_path, dtype, choices):
    """torch.randint takes 32 random bits below some range and 64 above; the file has holes, but not there."""
    block, path = 64, tmp_path / "train.bin"
    draws = torch.Generator().manual_seed(1)
    random = np.random.default_rng(1)
    with open(path, "wb") as file:
        file.truncate((choices + block) * np.dtype(dtype).itemsize)
        for start in torch.randint(choices, (1000, 2), generator=draws).flatten().tolist():
            file.seek(start * np.dtype(dtype).itemsize)
            file.write(random.integers(1, np.iinfo(dtype).max, block + 1).astype(dtype).tobytes())
    tokens = lowtide.tokens(path, dtype=dtype)
    ours, theirs = torch.Generator().manual_seed(1), torch.Generator().manual_seed(1)
    for _ in range(1000):
        got = get_batch(tokens, 2, block, generator=ours)
        assert got[0].all()
        assert equal(got, nanogpt(path, dtype, 2, block, theirs))


def test_what_cannot_be_drawn_is_said_and_draws_nothing(train):
    tokens = lowtide.tokens(train)
    before = torch.random.get_rng_state()
    for block in (300_000, 300_001, 10**12):
        with pytest.raises(IndexError, match=f"{block} tokens and the one after.*only 300000 tokens\nhint"):
            get_batch(tokens, 2, block)
    with pytest.raises(RuntimeError, match="device"):
        get_batch(tokens, 2, 8, device="gpu")
    assert torch.equal(torch.random.get_rng_state(), before)
    with pytest.raises(ValueError, match="0 tokens"):
        get_batch(tokens, 2, 0)
    assert get_batch(tokens, 0, 8)[0].shape == (0, 8)
    tokens.close()
    with pytest.raises(ValueError, match="closed"):
        get_batch(tokens, 2, 8)


@pytest.mark.parametrize("device", ["cpu", torch.device("cpu"), "cpu:0", "meta", torch.device("meta")])
def test_any_word_for_a_device(train, device):
    tokens = lowtide.tokens(train)
    x, y = get_batch(tokens, 4, 32, device=device, generator=torch.Generator().manual_seed(3))
    assert x.device.type == y.device.type == torch.device(device).type
    assert x.shape == y.shape == (4, 32)
    if x.device.type == "cpu":
        want = nanogpt(train, np.uint16, 4, 32, torch.Generator().manual_seed(3))
        assert all(torch.equal(a, b) for a, b in zip((x, y), want, strict=True))
        assert torch.equal(y[:, :-1], x[:, 1:])


def test_a_default_device_changes_nothing(train):
    tokens = lowtide.tokens(train)
    want = nanogpt(train, np.uint16, 4, 32, torch.Generator().manual_seed(3))
    with torch.device("meta"):
        got = get_batch(tokens, 4, 32, generator=torch.Generator("cpu").manual_seed(3))
        assert equal(got, want)
        assert equal(next(iter(TokenDataset(tokens, 4, 32))), next(iter(TokenDataset(tokens, 4, 32))))


def test_on_cuda_pinned_tensors_are_filled_and_copied(train, monkeypatch):
    """What can be seen without a GPU: that what torch is asked to pin is what is filled and copied."""
    pinned, copied = [], []
    empty, to = torch.empty, torch.Tensor.to

    def fake_empty(*shape, pin_memory=False, **settings):
        tensor = empty(*shape, **settings).fill_(-1)
        if pin_memory:
            pinned.append(tensor.data_ptr())
        return tensor

    def fake_to(tensor, device, **settings):
        copied.append((tensor.data_ptr(), device, settings))
        return to(tensor, "cpu")

    monkeypatch.setattr(torch, "empty", fake_empty)
    monkeypatch.setattr(torch.Tensor, "to", fake_to)
    got = get_batch(lowtide.tokens(train), 5, 64, device="cuda:1", generator=torch.Generator().manual_seed(3))
    assert len(pinned) == 2
    assert copied == [(pointer, torch.device("cuda:1"), {"non_blocking": True}) for pointer in pinned]
    assert equal(got, nanogpt(train, np.uint16, 5, 64, torch.Generator().manual_seed(3)))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here")
def test_on_cuda(train):
    tokens = lowtide.tokens(train)
    ours, theirs = torch.Generator().manual_seed(3), torch.Generator().manual_seed(3)
    for _ in range(100):
        x, y = get_batch(tokens, 12, 1024, device="cuda", generator=ours)
        assert x.device.type == y.device.type == "cuda"
        assert equal((x.cpu(), y.cpu()), nanogpt(train, np.uint16, 12, 1024, theirs))


# Memory


def test_tensors_are_our_arrays(train, monkeypatch):
    """No second copy: torch looks at the memory of the very arrays that windows() and the loader gave."""
    given = []
    original = torch.from_numpy
    monkeypatch.setattr(torch, "from_numpy", lambda array: given.append(array) or original(array))
    tokens = lowtide.tokens(train)
    pairs = [get_batch(tokens, 3, 100), *TokenDataset(tokens, 30, 1000)]
    assert len(pairs) > 5
    for tensor, array in zip(itertools.chain(*pairs), given, strict=True):
        assert tensor.data_ptr() == array.ctypes.data
        assert tensor.is_contiguous()
        assert array.flags.writeable
        tensor.fill_(-7)  # it is the caller's
        assert (array == -7).all()


def test_out_takes_views_of_tensors(train):
    tokens = lowtide.tokens(train)
    x, y = torch.zeros(2, 50, dtype=torch.int32), torch.zeros(2, 50, dtype=torch.int32)
    tokens.windows(torch.tensor([5, 100]).numpy(), 50, out=(x.numpy(), y.numpy()))
    stream = torch.from_numpy(np.fromfile(train, "<u2").astype(np.int32))
    assert torch.equal(x, torch.stack([stream[5:55], stream[100:150]]))
    assert torch.equal(y, torch.stack([stream[6:56], stream[101:151]]))


def test_what_is_held_is_never_reused(train):
    tokens = lowtide.tokens(train)
    torch.manual_seed(0)
    held = [get_batch(tokens, 4, 64) for _ in range(1000)]
    loaded = list(TokenDataset(tokens, 4, 64, prefetch=2))
    pointers = {tensor.data_ptr() for pair in held + loaded for tensor in pair}
    assert len(pointers) == 2 * len(held + loaded)
    for _ in range(100):
        get_batch(tokens, 4, 64)
    torch.manual_seed(0)
    assert all(equal(pair, nanogpt(train, np.uint16, 4, 64)) for pair in held)
    for pair, arrays in zip(loaded, tokens.loader(4, 64), strict=True):
        assert equal(pair, map(torch.from_numpy, arrays))


FLAT = """
import re, sys
import torch, lowtide
from lowtide.torch import TokenDataset, get_batch

def anon():
    with open("/proc/self/status") as status:
        return int(re.search(r"RssAnon:\\s+(\\d+) kB", status.read())[1]) << 10

tokens = lowtide.tokens(sys.argv[1], budget="32MiB")
batches = iter(TokenDataset(tokens, 12, 1024, epochs=None))
for step in range(11_000):
    x, y = get_batch(tokens, 12, 1024) if sys.argv[2] == "get_batch" else next(batches)
    if step == 1_000:
        before = anon()
print(anon() - before)
"""


@pytest.mark.parametrize("way", ["get_batch", "dataset"])
def test_memory_goes_back_to_the_pool(python, train, way):
    """10,000 batches are 2 GB: RssAnon, by the kernel's count, stays where the first thousand left it."""
    assert int(python(FLAT, train, way, timeout=300)) < 1 << 20


# TokenDataset

WAYS = [(0, None), (1, None), (2, "fork"), (2, "spawn"), (2, "forkserver"), (3, "fork")]


@pytest.fixture(scope="module")
def counting(tmp_path_factory):
    """A function from a number of tokens to a stream of the numbers from 0 on."""
    folder = tmp_path_factory.mktemp("counting")

    def make(tokens: int):
        path = folder / f"{tokens}.bin"
        header = np.zeros(256, "<i4")
        header[:3] = 20240801, 7, tokens
        path.write_bytes(header.tobytes() + np.arange(tokens, dtype="<u4").tobytes())
        return lowtide.tokens(path)

    return make


def through(dataset, workers=0, context=None, **settings):
    """A DataLoader over the dataset."""
    return DataLoader(
        dataset, batch_size=None, num_workers=workers, multiprocessing_context=context, **settings
    )


def starts(batches, count=None) -> list[list[int]]:
    """Where each window of each batch began, after checking that it is one."""
    out = []
    for x, y in itertools.islice(batches, count):
        x, y = torch.as_tensor(x), torch.as_tensor(y)
        assert (x.diff(dim=1) == 1).all()
        assert torch.equal(y, x + 1)
        out.append(x[:, 0].tolist())
    return out


def flat(batches):
    return [start for batch in batches for start in batch]


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


def test_a_workers_error_comes_through(counting):
    tokens = counting(701)
    dataset = TokenDataset(tokens, 4, 50)
    os.truncate(tokens.files[0], 1024)
    with pytest.raises(OSError, match=r"701\.bin"):
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


# State


@pytest.mark.parametrize("workers", [0, 2, 3])
@pytest.mark.parametrize("epochs", [1, 2])
def test_a_state_taken_without_workers_is_good_at_any_batch(counting, epochs, workers):
    tokens = counting(550)
    whole = [starts(loader) for loader in [tokens.loader(2, 50, epochs=epochs)] * 3]
    for stop in range(len(whole[0]) + 1):
        dataset = TokenDataset(tokens, 2, 50, epochs=epochs)
        seen = starts(through(dataset), stop)
        state = json.loads(json.dumps(dataset.state_dict()))
        resumed = TokenDataset(tokens, 2, 50, epochs=epochs, seed=99)
        resumed.load_state_dict(state)
        rest = starts(through(resumed, workers))
        following = starts(through(resumed, workers))
        if stop < len(whole[0]):
            assert [seen + rest, following] == whole[:2]
        else:  # after the last batch it stands at the next epochs
            assert [seen, rest, following] == whole


def test_the_parents_copy_does_not_know_where_workers_are(counting):
    tokens = counting(2_050)
    dataset = TokenDataset(tokens, 4, 50)
    beginning = dataset.state_dict()
    dataloader = through(dataset, 2)
    iterator = iter(dataloader)
    next(iterator)
    with pytest.raises(RuntimeError, match="StatefulDataLoader"):
        dataset.state_dict()
    first = starts(iterator)
    with pytest.raises(RuntimeError, match="StatefulDataLoader"):
        dataset.state_dict()
    assert starts(dataloader)[1:] != first
    dataset.load_state_dict(beginning)  # now it is known again
    assert dataset.state_dict() == beginning
    assert starts(dataloader)[1:] == first
    starts(dataset)
    assert dataset.state_dict()["epoch"] == 2


@pytest.mark.parametrize("workers", [1, 2])
def test_spawned_workers_are_known_to_the_parent_too(counting, workers):
    dataset = TokenDataset(counting(700), 4, 50)
    next(iter(through(dataset, workers, "spawn")))
    with pytest.raises(RuntimeError, match="StatefulDataLoader"):
        dataset.state_dict()


def test_persistent_workers_say_that_they_do_not_see_a_state_loaded_elsewhere(counting, capfd):
    dataset = TokenDataset(counting(700), 4, 50)
    state = dataset.state_dict()
    dataloader = through(dataset, 2, persistent_workers=True)
    starts(dataloader)
    dataset.load_state_dict(state)
    with pytest.raises(RuntimeError):  # torch's own, that a worker ended
        starts(dataloader)
    assert "hint: make a new DataLoader after load_state_dict" in capfd.readouterr().err


def test_a_wrong_state_is_refused_and_changes_nothing(counting):
    dataset = TokenDataset(counting(700), 4, 50)
    state = dataset.state_dict()
    for change in ({"fingerprint": "0" * 32}, {"turn": [0, 2]}, {"position": 10**9}):
        with pytest.raises(ValueError, match="hint"):
            dataset.load_state_dict({**state, **change})
    assert dataset.state_dict() == state
    assert len(starts(through(dataset, 2))) == 3


@pytest.fixture(scope="module")
def stateful():
    """torchdata's StatefulDataLoader, over a dataset."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = pytest.importorskip("torchdata.stateful_dataloader", reason="torchdata is not installed")

    def make(dataset, workers=0, **settings):
        return module.StatefulDataLoader(dataset, batch_size=None, num_workers=workers, **settings)

    return make


@pytest.mark.parametrize(
    ("workers", "epochs", "settings"),
    [
        (0, 1, {}),
        (1, 1, {}),
        (2, 1, {}),
        (2, 1, {"persistent_workers": True}),
        (2, 2, {"snapshot_every_n_steps": 3}),
        (3, 2, {"persistent_workers": True}),
    ],
)
def test_a_stateful_dataloader_stops_and_resumes_anywhere(counting, stateful, workers, epochs, settings):
    tokens = counting(400)  # 7 windows an epoch

    def fresh():
        return stateful(TokenDataset(tokens, 1, 50, epochs=epochs), workers, **settings)

    loader = tokens.loader(1, 50, epochs=epochs)
    whole = [starts(loader) for _ in range(3)]
    for stop in range(7 * epochs + 1):
        dataloader = fresh()
        iterator = iter(dataloader)
        assert starts(iterator, stop) == whole[0][:stop]
        state = pickle.loads(pickle.dumps(dataloader.state_dict()))
        assert starts(iterator) == whole[0][stop:]  # taking a state disturbs nothing
        assert starts(dataloader) == whole[1]
        resumed = fresh()
        resumed.load_state_dict(state)
        rest = [starts(resumed) for _ in range(2)]
        if workers or stop < 7 * epochs:
            assert rest == [whole[0][stop:], whole[1]]
        else:
            assert rest == whole[1:]  # without workers the last batch's state is the next epoch's


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("persistent", [False, True])
def test_a_stateful_dataloader_between_epochs(counting, stateful, workers, persistent):
    tokens = counting(400)
    persist = {"persistent_workers": True} if persistent and workers else {}
    loader = tokens.loader(1, 50)
    whole = [starts(loader) for _ in range(5)]
    dataloader = stateful(TokenDataset(tokens, 1, 50), workers, **persist)
    early = dataloader.state_dict()  # before the first batch
    assert [starts(dataloader), starts(dataloader)] == whole[:2]
    ended = dataloader.state_dict()
    resumed = stateful(TokenDataset(tokens, 1, 50), workers, **persist)
    resumed.load_state_dict(ended)
    assert [starts(resumed), starts(resumed)] == whole[2:4]
    # A resumed one can be stopped again, in the first epoch that it saw and in a later one.
    again = stateful(TokenDataset(tokens, 1, 50), workers, **persist)
    again.load_state_dict(resumed.state_dict())
    iterator = iter(again)
    assert starts(iterator, 3) == whole[4][:3]
    last = stateful(TokenDataset(tokens, 1, 50), workers, **persist)
    last.load_state_dict(again.state_dict())
    assert starts(last) == whole[4][3:]
    # The same one can be taken back, and goes on from there.
    dataloader.load_state_dict(early)
    assert [starts(dataloader), starts(dataloader)] == whole[:2]


def test_a_stateful_dataloader_that_never_ends(counting, stateful):
    tokens = counting(400)
    dataloader = stateful(TokenDataset(tokens, 1, 50, epochs=None), 2)
    whole = starts(tokens.loader(1, 50, epochs=None), 60)
    assert starts(dataloader, 33) == whole[:33]
    resumed = stateful(TokenDataset(tokens, 1, 50, epochs=None), 2)
    resumed.load_state_dict(dataloader.state_dict())
    assert starts(resumed, 27) == whole[33:]


@pytest.mark.parametrize(
    ("workers", "settings", "says"),
    [
        (3, {}, "as many workers as there were"),
        (2, {"seed": 8}, "another seed or other epochs"),
        (2, {"epochs": 2}, "another seed or other epochs"),
    ],
)
def test_a_state_of_other_workers_or_of_another_dataset_is_refused(
    counting, stateful, workers, settings, says
):
    tokens = counting(400)
    dataloader = stateful(TokenDataset(tokens, 1, 50), 2)
    next(iter(dataloader))
    resumed = stateful(TokenDataset(tokens, 1, 50, **settings), workers)
    resumed.load_state_dict(dataloader.state_dict())
    with pytest.raises(ValueError, match=says):
        starts(resumed)


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
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(write, json.dumps(starts(dataset)).encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        child = json.loads(pipe.read())
    os.waitpid(pid, 0)
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

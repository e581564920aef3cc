"""``lowtide.torch.get_batch``: nanoGPT's batches bit for bit, in memory that is ours.

The oracle is nanoGPT's own function, written out here.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from token_streams import llmc

import lowtide

torch = pytest.importorskip("torch", reason="torch is not installed")

import lowtide.torch  # noqa: E402 (it needs torch)
from lowtide.torch import TokenDataset, get_batch  # noqa: E402

pytestmark = pytest.mark.heavy


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
        llmc(folder / f"{i:03}.bin", tokens[start:end])
    return folder


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
    tokens.close()
    with pytest.raises(ValueError, match="closed"):
        get_batch(tokens, 2, 8)


def test_a_wrong_argument_is_named_and_draws_nothing(train, tmp_path):
    tokens, before = lowtide.tokens(train), torch.random.get_rng_state()
    np.save(tmp_path / "rows.npy", np.arange(1000))
    others = [np.arange(1000), str(train), train, lowtide.open(tmp_path / "rows.npy"), None]
    for other in others:
        kind = type(other).__name__
        with pytest.raises(
            TypeError, match=rf"^tokens must be what lowtide\.tokens\(\.\.\.\) returned, not {kind}"
        ):
            get_batch(other, 4, 64)
    for size in (0, -1, np.int64(-1)):
        with pytest.raises(ValueError, match=f"^batch_size is {size}\nhint: a batch has one window or more"):
            get_batch(tokens, size, 64)
    for size in ("4", 4.0, None):
        with pytest.raises(TypeError, match=f"^batch_size={size!r} must be a whole number"):
            get_batch(tokens, size, 64)
        with pytest.raises(TypeError, match=f"^block_size={size!r} must be a whole number"):
            get_batch(tokens, 4, size)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert get_batch(tokens, np.int64(4), np.int64(64))[0].shape == (4, 64)


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
    # On a busy machine more batches are ready at one look than at the other: alone 0.07 MB, five at once 3.4,
    # beside the linters 4.2. One batch lost in a hundred would be 20 MB.
    assert int(python(FLAT, train, way, timeout=300)) < 8 << 20

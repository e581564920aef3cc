"""What ``get_batch`` reads before it is asked for never shows: nanoGPT's own function is the oracle."""

from __future__ import annotations

import os
import threading

import numpy as np
import pytest
from test_torch_batch import equal, nanogpt

import lowtide

torch = pytest.importorskip("torch", reason="torch is not installed")

from lowtide.torch import get_batch  # noqa: E402 (it needs torch)

pytestmark = pytest.mark.heavy


@pytest.fixture(scope="module")
def train(tmp_path_factory):
    path = tmp_path_factory.mktemp("foresight") / "train.bin"
    np.random.default_rng(7).integers(0, 50257, 300_000).astype("<u2").tofile(path)
    return path


def foreseen(tokens) -> bool:
    """Whether windows are being read ahead now."""
    return tokens._foresight._foreseen is not None


def many(tokens):
    for _ in range(100):
        get_batch(tokens, 4, 32)


def compare(train, between, calls=600, seed=3):
    """``get_batch`` beside nanoGPT's, with ``between(call)`` after every call on both sides."""
    tokens = lowtide.tokens(train)
    torch.manual_seed(seed)
    want = []
    for call in range(calls):
        want.append(nanogpt(train, np.uint16, 4, 32))
        between(call)
    torch.manual_seed(seed)
    ahead = 0
    for call in range(calls):
        assert equal(get_batch(tokens, 4, 32), want[call]), call
        ahead += foreseen(tokens)
        between(call)
    return ahead


def test_whoever_draws_alone_is_read_ahead(train):
    assert compare(train, lambda call: None) >= 598


def test_whoever_shares_the_generator_gets_his_own_windows_and_little_is_guessed(train, monkeypatch):
    guesses = 0
    draw = lowtide.torch.Foresight._draw_next

    def counted(self, count):
        nonlocal guesses
        guesses += 1
        return draw(self, count)

    monkeypatch.setattr(lowtide.torch.Foresight, "_draw_next", counted)
    assert compare(train, lambda call: torch.rand(1)) == 0
    assert guesses <= 12  # of 600: twice as rarely each time


def test_draws_now_and_then_are_noticed_and_got_over(train):
    assert compare(train, lambda call: torch.rand(1) if call % 100 == 99 else None) >= 500


def test_a_new_seed_in_between(train):
    assert compare(train, lambda call: torch.manual_seed(call) if call % 50 == 49 else None) >= 400


def test_train_and_val_by_turns_as_in_nanogpt(train):
    """estimate_loss: many batches of one split, many of the other, from one generator."""
    splits = [lowtide.tokens(train), lowtide.tokens(train)]
    turns = [split for _ in range(6) for split in (0, 1) for _ in range(40)]
    torch.manual_seed(1)
    want = [nanogpt(train, np.uint16, 4, 32) for _ in turns]
    torch.manual_seed(1)
    assert all(equal(get_batch(splits[split], 4, 32), pair) for split, pair in zip(turns, want, strict=True))


def test_other_sizes_and_other_generators_in_between(train):
    tokens, own = lowtide.tokens(train), torch.Generator().manual_seed(9)
    same = torch.Generator().manual_seed(9)
    torch.manual_seed(1)
    state = torch.random.get_rng_state()
    for call in range(200):
        batch, block = [(4, 32), (3, 7)][call // 20 % 2]
        generator, theirs = [(None, None), (own, same)][call // 10 % 2]
        if theirs is None:
            torch.random.set_rng_state(state)
        want = nanogpt(train, np.uint16, batch, block, theirs)
        after = torch.random.get_rng_state()
        if theirs is None:
            torch.random.set_rng_state(state)
        assert equal(get_batch(tokens, batch, block, generator=generator), want)
        state = after


def test_several_threads_at_once(train):
    """Each has its generator; they share the tokens, and so what is foreseen."""
    tokens, wrong = lowtide.tokens(train), []

    def run(seed):
        ours, theirs = torch.Generator().manual_seed(seed), torch.Generator().manual_seed(seed)
        for _ in range(300):
            if not equal(get_batch(tokens, 4, 32, generator=ours), nanogpt(train, np.uint16, 4, 32, theirs)):
                wrong.append(seed)

    threads = [threading.Thread(target=run, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not wrong
    assert not any(thread.is_alive() for thread in threads)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_goes_on_by_itself(train):
    tokens = lowtide.tokens(train)
    generator, same = torch.Generator().manual_seed(2), torch.Generator().manual_seed(2)
    for _ in range(50):
        assert equal(get_batch(tokens, 4, 32, generator=generator), nanogpt(train, np.uint16, 4, 32, same))
    assert foreseen(tokens)
    child = os.fork()
    right = all(
        equal(get_batch(tokens, 4, 32, generator=generator), nanogpt(train, np.uint16, 4, 32, same))
        for _ in range(50)
    )
    if child == 0:
        os._exit(0 if right else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert right


def test_a_file_that_is_cut_is_the_callers_error(tmp_path):
    path = tmp_path / "train.bin"
    np.arange(60_000, dtype="<u2").tofile(path)
    tokens = lowtide.tokens(path, access="read", cache="drop")
    for _ in range(5):
        get_batch(tokens, 4, 32)
    os.truncate(path, 100)
    with pytest.raises(OSError, match=r"train\.bin"):
        many(tokens)


def test_closing_ends_it(train):
    tokens = lowtide.tokens(train)
    for _ in range(20):
        get_batch(tokens, 4, 32)
    tokens.close()
    with pytest.raises(ValueError, match="closed"):
        many(tokens)


def test_what_is_read_ahead_lies_in_the_budget(tmp_path):
    path = tmp_path / "train.bin"
    np.zeros(40_000_000, "<u2").tofile(path)
    tokens = lowtide.tokens(path, budget="8MiB")
    held = [get_batch(tokens, 12, 1024) for _ in range(50)]
    assert foreseen(tokens)
    assert 0 < tokens.budget.used <= 8 << 20
    del held
    small = lowtide.tokens(path, budget="100KiB")
    for _ in range(20):
        get_batch(small, 12, 1024)
    assert not foreseen(small)  # there is no room for it

"""One side of a token benchmark, in a process of its own: as bench/side.py, for bench/tokens.py.

What is imported and drawn before the word is no part of the measurement; opening is, but where it is said.
"""

from __future__ import annotations

import json
import sys
import time

import numpy as np
from harness import go, tell


class Clock:
    """Counts batches until there are enough of them, or the time is over."""

    def __init__(self, settings: dict) -> None:
        self.batches, self.seconds = settings.get("batches", 1 << 62), settings.get("seconds", 1e9)
        self.done, self.began = 0, go()

    def more(self) -> bool:
        return self.done < self.batches and time.perf_counter() - self.began < self.seconds

    def tell(self, **more) -> None:
        tell(self.began, self.done, "batch/s", batches=self.done, **more)


def nanogpt(path, settings):
    """nanoGPT's train.py, its get_batch word for word."""
    import torch

    batch_size, block_size, device, device_type = settings["batch"], settings["block"], "cpu", "cpu"

    def get_batch():
        # We recreate np.memmap every batch to avoid a memory leak, as per
        # https://stackoverflow.com/questions/45132940/numpy-memmap-memory-usage-want-to-iterate-once/61472122#61472122
        data = np.memmap(path, dtype=np.uint16, mode="r")
        ix = torch.randint(len(data) - block_size, (batch_size,))
        x = torch.stack([torch.from_numpy((data[i : i + block_size]).astype(np.int64)) for i in ix])
        y = torch.stack([torch.from_numpy((data[i + 1 : i + 1 + block_size]).astype(np.int64)) for i in ix])
        if device_type == "cuda":
            # pin arrays x,y, which allows us to move them to GPU asynchronously (non_blocking=True)
            x, y = (
                x.pin_memory().to(device, non_blocking=True),
                y.pin_memory().to(device, non_blocking=True),
            )
        else:
            x, y = x.to(device), y.to(device)
        return x, y

    torch.manual_seed(settings["seed"])
    clock = Clock(settings)
    while clock.more():
        x, y = get_batch()
        clock.done += 1
    assert torch.equal(x[:, 1:], y[:, :-1])
    clock.tell()


def opened(path, settings):
    import lowtide

    return lowtide.tokens(path, **{k: settings[k] for k in ("access", "cache", "budget") if k in settings})


def get_batch(path, settings):
    """lowtide.torch.get_batch: fresh tensors every time."""
    import torch

    import lowtide.torch

    torch.manual_seed(settings["seed"])
    clock = Clock(settings)
    tokens = opened(path, settings)
    while clock.more():
        x, y = lowtide.torch.get_batch(tokens, settings["batch"], settings["block"])
        clock.done += 1
    assert torch.equal(x[:, 1:], y[:, :-1])
    clock.tell()


def loader(path, settings):
    """Our loader, in the order and for the epochs that were asked for; opening it is in the time."""
    import lowtide  # noqa: F401 - before the clock starts

    clock = Clock(settings)
    batches = opened(path, settings).loader(
        settings["batch"],
        settings["block"],
        order=settings["order"],
        seed=settings["seed"],
        epochs=settings.get("epochs"),
        blocks=settings.get("blocks"),
    )
    first = None
    for pair in batches:
        x, y = pair
        first = first or time.perf_counter() - clock.began
        clock.done += 1
        if not clock.more():
            break
    assert np.array_equal(x[:, 1:], y[:, :-1])
    clock.tell(note=batches.access, first=first)


def dataloader(path, settings):
    """torch's DataLoader as people write it. The clock starts after the first batch: neither the workers' start nor
    the sampler's permutation is in the time.
    """
    import torch
    from torch.utils.data import DataLoader, Dataset, RandomSampler

    block = settings["block"]

    class Windows(Dataset):
        def __init__(self):
            self.data = np.memmap(path, dtype=np.uint16, mode="r")

        def __len__(self):
            return (len(self.data) - 1) // block

        def __getitem__(self, i):
            window = torch.from_numpy(self.data[i * block : (i + 1) * block + 1].astype(np.int64))
            return window[:-1], window[1:]

    torch.manual_seed(settings["seed"])
    windows = Windows()
    sampler = RandomSampler(windows)
    batches = DataLoader(
        windows, batch_size=settings["batch"], sampler=sampler, num_workers=settings["workers"]
    )
    of, batches = len(batches), iter(batches)
    next(batches)
    clock = Clock(settings)
    for pair in batches:
        x, y = pair
        clock.done += 1
        if not clock.more():
            break
    assert torch.equal(x[:, 1:], y[:, :-1])
    clock.tell(note=f"{clock.done:,} of {of:,} batches")


def first(path, settings):
    """Open many shards, and take the first batch of a loader, or windows anywhere."""
    import lowtide

    starts = np.random.default_rng(settings["seed"])
    began = go()
    tokens = lowtide.tokens(path)
    opened = time.perf_counter() - began
    if settings["what"] == "loader":
        next(iter(tokens.loader(12, 1024, seed=settings["seed"])))
    elif settings["what"] == "windows":
        tokens.windows(starts.integers(0, len(tokens) - 1024, 12), 1024)
    tell(began, 1, "opens/s", opened=opened, tokens=len(tokens))


def resume(path, settings):
    """Take up a run again: load_state_dict and the first batch. Opening is not in the time."""
    import lowtide

    loader = lowtide.tokens(path).loader(
        settings["batch"], settings["block"], order=settings["order"], epochs=None, seed=settings["seed"]
    )
    state = loader.state_dict()
    state["position"] = settings["step"] * settings["batch"]
    began = go()
    loader.load_state_dict(state)
    next(iter(loader))
    seconds = time.perf_counter() - began
    after = loader.state_dict()
    assert after["epoch"] == 0, "the stream is too short for this step"
    assert after["position"] == state["position"] + settings["batch"]
    tell(began, 1, "resumes/s", took=seconds)


SIDES = [nanogpt, get_batch, loader, dataloader, first, resume]


if __name__ == "__main__":
    {side.__name__: side for side in SIDES}[sys.argv[1]](sys.argv[2], json.loads(sys.argv[3]))

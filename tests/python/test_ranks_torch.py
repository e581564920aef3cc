"""Ranks that only torch.distributed knows: real process groups, by spawn and by fork.

The oracle is arithmetic: an epoch of N tokens has ⌊(N − T) / T⌋ windows that lie T apart, and each comes once
over all ranks.
"""

from __future__ import annotations

import json
import os

import pytest
from token_streams import flat, starts

import lowtide

torch = pytest.importorskip("torch", reason="torch is not installed")

from torch_dataloaders import MARKS, through  # noqa: E402 (they need torch)

from lowtide.torch import TokenDataset  # noqa: E402

pytestmark = [*MARKS, pytest.mark.usefixtures("no_launcher")]

TOKENS, BLOCK, RANKS = 4_050, 50, 2
WINDOWS = (TOKENS - BLOCK) // BLOCK


@pytest.fixture
def no_launcher(monkeypatch):
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)


def every_window_once(windows):
    """80 windows, which lie 50 tokens apart."""
    assert len(windows) == WINDOWS == 80
    first = min(windows)
    assert first < 2 * BLOCK
    assert sorted(windows) == list(range(first, first + WINDOWS * BLOCK, BLOCK))


def join(rank, folder):
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/group", rank=rank, world_size=RANKS
    )


def write(rank, folder, windows):
    torch.distributed.destroy_process_group()
    (folder / f"{rank}.json").write_text(json.dumps(windows))


def run(program, folder, *args, start="spawn"):
    """Runs a program on every rank, and gives what each has written."""
    torch.multiprocessing.start_processes(
        program, (folder, *args), nprocs=RANKS, start_method=start, join=True
    )
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(RANKS)]


def made_before_the_group(rank, folder, paths, workers, context):
    tokens = lowtide.tokens(paths)
    made = {
        "loader": tokens.loader(4, BLOCK),
        "dataset": through(TokenDataset(tokens, 4, BLOCK), workers, context),
    }
    join(rank, folder)
    assert {name: len(it) for name, it in made.items()} == {"loader": 10, "dataset": 10}
    windows = {name: [flat(starts(it)) for _ in range(2)] for name, it in made.items()}
    assert f"rank={rank} world_size=2 (torch.distributed)" in repr(made["loader"])
    assert f"rank={rank} world_size=2 (torch.distributed)" in repr(made["dataset"].dataset)
    assert made["loader"].why.endswith(f"; rank {rank} of 2: torch.distributed")
    write(rank, folder, windows)


@pytest.mark.parametrize(("workers", "context"), [(0, None), (2, "fork"), (2, "spawn")])
def test_made_before_the_process_group(counting, tmp_path, workers, context):
    ranks = run(made_before_the_group, tmp_path, counting(TOKENS).files, workers, context)
    for name in ("loader", "dataset"):
        epochs = [[window for rank in ranks for window in rank[name][epoch]] for epoch in range(2)]
        every_window_once(epochs[0])
        every_window_once(epochs[1])
        assert sorted(epochs[0]) != sorted(epochs[1]), "another phase"


def dataset_of_the_parent(rank, folder, dataset):
    join(rank, folder)
    write(rank, folder, flat(starts(through(dataset))))


@pytest.mark.parametrize("start", ["spawn", "fork"])
def test_a_dataset_that_was_made_before_the_processes(counting, tmp_path, start):
    ranks = run(dataset_of_the_parent, tmp_path, TokenDataset(counting(TOKENS), 4, BLOCK), start=start)
    every_window_once([window for rank in ranks for window in rank])


def loaders_of_the_parent(rank, folder, loader, chunks):
    join(rank, folder)
    write(rank, folder, [flat(starts(loader)), [row for chunk in chunks for row in chunk.tolist()]])


def test_loaders_that_were_made_before_a_fork(counting, tmp_path, save):
    import numpy as np

    chunks = lowtide.open(save(np.arange(1000))).shuffled(10)
    loader = counting(TOKENS).loader(4, BLOCK)
    ranks = run(loaders_of_the_parent, tmp_path, loader, chunks, start="fork")
    every_window_once([window for windows, _ in ranks for window in windows])
    assert sorted(row for _, rows in ranks for row in rows) == list(range(1000))


def told_two_things(rank, folder, paths):
    loader = lowtide.tokens(paths).loader(4, BLOCK)
    os.environ.update(RANK=str(rank), WORLD_SIZE="4")
    join(rank, folder)
    said = []
    for _ in range(2):
        try:
            next(iter(loader))
        except ValueError as error:
            said.append(str(error))
    os.environ["WORLD_SIZE"] = "2"
    write(rank, folder, [said, flat(starts(loader))])


def test_two_that_disagree(counting, tmp_path):
    ranks = run(told_two_things, tmp_path, counting(TOKENS).files)
    for rank, (said, _) in enumerate(ranks):
        assert len(said) == 2
        says = f"torch.distributed says rank {rank} of 2, RANK and WORLD_SIZE says rank {rank} of 4"
        assert all(message.startswith(says) for message in said)
        assert all("hint: " in message for message in said)
    every_window_once([window for _, windows in ranks for window in windows])

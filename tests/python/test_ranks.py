"""Which rank a process is: who is asked, in which order, and when. Fresh interpreters, without torch."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest
from token_streams import flat, in_a_forked_child, starts

import lowtide

LAUNCHERS = [
    "RANK",
    "WORLD_SIZE",
    "SLURM_PROCID",
    "SLURM_NTASKS",
    "SLURM_STEP_NUM_TASKS",
    "SLURM_JOB_ID",
    "SLURM_STEP_ID",
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_SIZE",
    "PMI_RANK",
    "PMI_SIZE",
]


@pytest.fixture(autouse=True)
def nobody_says_anything(monkeypatch):
    for name in LAUNCHERS:
        monkeypatch.delenv(name, raising=False)


def torchrun(rank, ranks):
    return {"RANK": str(rank), "WORLD_SIZE": str(ranks)}


def slurm(rank, ranks, **more):
    return {"SLURM_PROCID": str(rank), "SLURM_NTASKS": str(ranks), **more}


def open_mpi(rank, ranks):
    return {"OMPI_COMM_WORLD_RANK": str(rank), "OMPI_COMM_WORLD_SIZE": str(ranks)}


def pmi(rank, ranks):
    return {"PMI_RANK": str(rank), "PMI_SIZE": str(ranks)}


OPEN_MPI = "OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE"
STEP = {"SLURM_JOB_ID": "77", "SLURM_STEP_ID": "0"}

# What the environment has, and what a process makes of it.
ENVIRONMENTS = [
    ({}, (0, 1, "no launcher seen")),
    (torchrun(1, 3), (1, 3, "RANK and WORLD_SIZE")),
    (slurm(2, 3), (2, 3, "SLURM_PROCID and SLURM_NTASKS")),
    (slurm(0, 3, **STEP), (0, 3, "SLURM_PROCID and SLURM_NTASKS")),
    (slurm(1, 8, SLURM_STEP_NUM_TASKS="2", **STEP), (1, 2, "SLURM_PROCID and SLURM_NTASKS")),
    (open_mpi(1, 2), (1, 2, OPEN_MPI)),
    (pmi(3, 4), (3, 4, "PMI_RANK and PMI_SIZE")),
    # A batch script is no task of its own, whatever it asks for; nor is the shell of salloc.
    (slurm(0, 8, SLURM_JOB_ID="77"), (0, 1, "no launcher seen")),
    ({"SLURM_NTASKS": "8", "SLURM_JOB_ID": "77"}, (0, 1, "no launcher seen")),
    (
        slurm(0, 8, SLURM_JOB_ID="77") | open_mpi(5, 8),
        (5, 8, OPEN_MPI),
    ),
    # torchrun in one Slurm task for each node, and in an interactive one.
    (torchrun(9, 16) | slurm(1, 2, **STEP), (9, 16, "RANK and WORLD_SIZE")),
    (torchrun(3, 8) | slurm(0, 1, **STEP), (3, 8, "RANK and WORLD_SIZE")),
    (torchrun(0, 1) | slurm(1, 2) | open_mpi(3, 4) | pmi(5, 6), (0, 1, "RANK and WORLD_SIZE")),
    # mpirun in a single Slurm task; Slurm that speaks PMI too.
    (slurm(0, 1, **STEP) | open_mpi(3, 4), (3, 4, OPEN_MPI)),
    (slurm(3, 4, **STEP) | pmi(3, 4), (3, 4, "SLURM_PROCID and SLURM_NTASKS")),
    (slurm(0, 1, **STEP) | pmi(0, 1), (0, 1, "SLURM_PROCID and SLURM_NTASKS")),
    # What Lightning's "ddp" sets before it makes the process group is no answer.
    ({"WORLD_SIZE": "1"}, (0, 1, "no launcher seen")),
    ({"WORLD_SIZE": "2", "LOCAL_RANK": "1"} | slurm(1, 2), (1, 2, "SLURM_PROCID and SLURM_NTASKS")),
    # Nor is a number of a task without a step, or a size alone.
    ({"SLURM_PROCID": "3"}, (0, 1, "no launcher seen")),
    ({"SLURM_PROCID": "3", "SLURM_JOB_ID": "77"}, (0, 1, "no launcher seen")),
    ({"SLURM_NTASKS": "8"}, (0, 1, "no launcher seen")),
    ({"SLURM_NTASKS": "8", **STEP}, (0, 1, "no launcher seen")),
    ({"PMI_SIZE": "8", "OMPI_COMM_WORLD_SIZE": "8"}, (0, 1, "no launcher seen")),
    # Half an answer is none where somebody else has a whole one.
    ({"PMI_RANK": "1"} | open_mpi(1, 2), (1, 2, OPEN_MPI)),
    ({"SLURM_PROCID": "1", **STEP} | pmi(0, 1), (0, 1, "PMI_RANK and PMI_SIZE")),
]

# One process that makes everything, takes a first batch of each, and says what they are.
REPORT = """
import json, sys, lowtide
tokens, rows = lowtide.tokens(sys.argv[1]), lowtide.open(sys.argv[2])
made = [tokens.loader(2, 50), *(a.shuffled(2, drop_last=True) for a in (rows, lowtide.zip(rows, rows)))]
first = [next(it) for it in made]
assert "torch" not in sys.modules
print(json.dumps([
    [[it.rank, it.world_size, it.why.rsplit(": ")[-1]] for it in made],
    [repr(it) for it in made],
    [first[0][0][:, 0].tolist(), first[1].tolist(), first[2][0].tolist()],
]))
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    np.save(folder / "rows.npy", np.arange(1000))
    np.arange(10_000, dtype="<u2").tofile(folder / "train.bin")
    return folder / "train.bin", folder / "rows.npy"


@pytest.mark.parametrize(("environment", "want"), ENVIRONMENTS)
def test_who_is_asked_first(files, python, environment, want):
    ranks, reprs, first = json.loads(python(REPORT, *files, **environment))
    assert ranks == [list(want)] * 3
    rank, ranks, origin = want
    for text in reprs:
        assert f"rank={rank} world_size={ranks} ({origin})" in text
    tokens, rows = lowtide.tokens(files[0]), lowtide.open(files[1])
    x, _ = next(tokens.loader(2, 50, rank=rank, world_size=ranks))
    shuffled = next(rows.shuffled(2, drop_last=True, rank=rank, world_size=ranks)).tolist()
    assert first == [x[:, 0].tolist(), shuffled, shuffled]


@pytest.mark.parametrize(
    ("environment", "says"),
    [
        (
            slurm(1, 2) | open_mpi(1, 4),
            "SLURM_PROCID and SLURM_NTASKS says rank 1 of 2, "
            "OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE says rank 1 of 4",
        ),
        (open_mpi(0, 2) | pmi(1, 2), "says rank 0 of 2, PMI_RANK and PMI_SIZE says rank 1 of 2"),
        (torchrun(3, 2), "RANK and WORLD_SIZE: rank 3 is out of range for a world_size of 2"),
        ({"SLURM_PROCID": "a", "SLURM_NTASKS": "2"}, 'SLURM_PROCID="a", which is not a number'),
        (torchrun(-1, 2), 'RANK="-1", which is not a number'),
    ],
)
def test_what_contradicts_itself_is_refused_where_it_is_made(files, python, environment, says):
    code = """
import sys, lowtide
tokens, rows = lowtide.tokens(sys.argv[1]), lowtide.open(sys.argv[2])
for make in (lambda: tokens.loader(2, 50), lambda: rows.shuffled(2)):
    try:
        print(make())
    except ValueError as error:
        print(error)
lowtide.tokens(sys.argv[1]).loader(2, 50, rank=0, world_size=1)  # who says it is not asked
"""
    assert python(code, *files, **environment).count(says) == 2


HALVES = [
    {"WORLD_SIZE": "2"},
    {"RANK": "1"},
    {"OMPI_COMM_WORLD_RANK": "1"},
    {"PMI_RANK": "1"},
    {"SLURM_PROCID": "1", "SLURM_STEP_ID": "0"},
    {"SLURM_PROCID": "1", **STEP},
]


@pytest.mark.parametrize("half", HALVES)
def test_half_an_answer_is_refused_at_the_first_batch(files, monkeypatch, half):
    """Lightning's "ddp" sets WORLD_SIZE, makes the process group later, and then knows the rank."""
    for name, value in half.items():
        monkeypatch.setenv(name, value)
    made = [lowtide.tokens(files[0]).loader(2, 50), lowtide.open(files[1]).shuffled(2)]
    name, value = next(iter(half.items()))
    for it in made:
        assert len(it) > 0
        assert "rank=0 world_size=1 (for now: only half of it is known)" in repr(it)
        assert it.why.endswith("; rank 0 of 1: for now: only half of it is known")
        for _ in range(2):
            with pytest.raises(
                ValueError, match=f"has {name}={value} but no .*\nhint: initialise torch.dist"
            ):
                next(it)
    for name, value in torchrun(1, 2).items():
        monkeypatch.setenv(name, value)
    for it in made:
        assert it.world_size == 2
        next(it)


def test_the_rank_is_asked_again_until_the_first_batch(counting, monkeypatch):
    tokens = counting(5_000)
    loader = tokens.loader(4, 50, seed=2)
    alone = len(loader)
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    want = tokens.loader(4, 50, seed=2, rank=1, world_size=2)
    assert len(loader) == len(want) < alone
    assert (loader.rank, loader.world_size) == (1, 2)
    assert starts(loader, 5) == starts(want, 5)
    # Not within an iteration; and the next one goes on from where all ranks stand.
    iterator = iter(loader)
    next(iterator), next(want)
    monkeypatch.setenv("RANK", "0")
    assert starts([next(iterator)]) == starts([next(want)])
    state, other = loader.state_dict(), tokens.loader(4, 50, rank=0, world_size=2)
    other.load_state_dict(state)
    assert starts(loader) == starts(other)
    # A rank stays what it was when nobody says otherwise any more.
    monkeypatch.delenv("RANK")
    monkeypatch.delenv("WORLD_SIZE")
    assert starts(loader) == starts(other)
    assert "rank=0 world_size=2 (RANK and WORLD_SIZE)" in repr(loader)


@pytest.mark.parametrize("taken", [0, 3])
def test_ranks_that_are_forked_from_a_process_with_a_loader(counting, files, taken):
    """Each takes its share of what was left, of tokens and of rows."""
    tokens, ranks = counting(5_000), 3
    loader, chunks = tokens.loader(2, 50, drop_last=False), lowtide.open(files[1]).shuffled(10)
    seen = flat(starts(loader, taken)) + flat(next(chunks).reshape(-1, 1).tolist() for _ in range(taken))

    def share():
        return flat(starts(loader)) + flat(chunk.reshape(-1, 1).tolist() for chunk in chunks)

    def child(rank):
        os.environ.update(torchrun(rank, ranks))
        return share()

    shares = [in_a_forked_child(lambda rank=rank: child(rank)) for rank in range(ranks)]
    whole = tokens.loader(2, 50, drop_last=False)
    rows = [[row] for row in range(1000)]
    everything = sorted(map(str, flat(starts(whole)) + rows))
    assert sorted(map(str, seen + [item for share in shares for item in share])) == everything
    assert len(share()) == len(everything) - len(seen), "the parent is still alone"


def test_a_share_that_is_never_full_is_said_when_the_ranks_are_known(counting, monkeypatch):
    loader = counting(700).loader(4, 50)
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "8")
    with pytest.raises(ValueError, match="a step of 8 ranks with batches of 4 is never full"):
        next(loader)
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert len(starts(loader)) == 1

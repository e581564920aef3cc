"""The programs of docs/trainers.md with the real trainers, on one process and two: every window comes once.

The oracle does not use our loader. Token i of the file is the number i, and an embedding writes down with
which token each window begins, in every process.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from test_readme import blocks, is_program

pytest.importorskip("torch", reason="torch is not installed")
pytestmark = pytest.mark.heavy

ROOT = Path(__file__).parents[2]
BLOCK, WINDOWS = 64, 80
TOKENS = BLOCK * (WINDOWS + 1)
PROGRAMS = {
    code.split("\n")[0].removeprefix("# "): code
    for page in ("tokens.md", "trainers.md")
    for _, code in blocks(ROOT / "docs" / page, "python")
    if is_program(code)
}

# Python runs it in every process before the program; where torch is imported, its embedding gets a witness.
RECORD = """
import importlib.abc, importlib.util, os, sys

class Witness(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name != "torch.nn.modules.sparse":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        load = spec.loader.exec_module
        def exec_module(module):
            load(module)
            embed = module.Embedding.forward
            def forward(self, tokens):
                if self.num_embeddings == TOKENS:
                    with open(os.path.join(os.environ["SEEN"], str(os.getpid())), "a") as file:
                        file.writelines(f"{start}\\n" for start in tokens[:, 0].tolist())
                return embed(self, tokens)
            module.Embedding.forward = forward
        spec.loader.exec_module = exec_module
        return spec

sys.meta_path.insert(0, Witness())
"""


@pytest.fixture
def run(tmp_path):
    """Runs a program of a page, and gives the windows that each process has seen."""
    np.arange(TOKENS, dtype="<u2").tofile(tmp_path / "train.bin")
    (tmp_path / "sitecustomize.py").write_text(RECORD.replace("TOKENS", str(TOKENS)))
    (tmp_path / "seen").mkdir()

    def run(program, *arguments, torchrun=None, code=None, says=None):
        # A vocabulary of the tokens that there are: a softmax over 50,304 takes most of the time.
        (tmp_path / program).write_text((code or PROGRAMS[program]).replace("50304", str(TOKENS)))
        command = [program, *map(str, arguments)]
        if torchrun is not None:
            command = [
                "-m",
                "torch.distributed.run",
                "--standalone",
                f"--nproc-per-node={torchrun}",
                *command,
            ]
        environment = {
            name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE")
        }
        environment |= {
            "PYTHONPATH": str(tmp_path),
            "SEEN": str(tmp_path / "seen"),
            "OMP_NUM_THREADS": "1",
            "HOME": str(tmp_path),
        }
        done = subprocess.run(
            [sys.executable, *command],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=600,
            env=environment,
        )
        if says is not None:
            assert done.returncode != 0
            assert says in done.stderr
        else:
            assert done.returncode == 0, done.stderr[-4000:]
        seen = [file.read_text().split() for file in sorted((tmp_path / "seen").iterdir())]
        return [list(map(int, windows)) for windows in seen]

    return run


def each_once(seen, ranks):
    """Every window once, over as many processes, each with its share."""
    assert [len(windows) for windows in seen] == [WINDOWS // ranks] * ranks
    together = sorted(window for windows in seen for window in windows)
    first = together[0]
    assert 0 <= first < 2 * BLOCK
    assert together == list(range(first, first + WINDOWS * BLOCK, BLOCK))


def test_the_pages_have_the_programs():
    assert sorted(PROGRAMS) == [
        "train.py",
        "train_accelerate.py",
        "train_lightning.py",
        "train_mesh.py",
        "train_ray.py",
        "train_transformers.py",
    ]


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize(
    "program", ["train.py", "train_accelerate.py", "train_mesh.py", "train_transformers.py"]
)
def test_under_torchrun(run, program, ranks):
    pytest.importorskip("transformers" if "transformers" in program else "accelerate")
    code = PROGRAMS[program].replace("    if step == 9:\n        break\n", "")  # all of the epoch
    each_once(run(program, torchrun=ranks, code=code), ranks)


@pytest.mark.parametrize(
    ("devices", "strategy"), [(1, "auto"), (2, "ddp"), (2, "ddp_spawn"), (2, "ddp_fork")]
)
def test_lightning(run, devices, strategy):
    pytest.importorskip("lightning")
    each_once(run("train_lightning.py", devices, strategy), devices)


@pytest.mark.parametrize("workers", [1, 2])
def test_ray(run, tmp_path, workers):
    pytest.importorskip("ray.train.torch", reason="Ray is not installed")
    each_once(run("train_ray.py", workers, tmp_path / "train.bin"), workers)


# What loses data elsewhere is refused.

PREPARED = """
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader
import lowtide, lowtide.torch

accelerator = Accelerator(cpu=True, **{settings})
net = torch.nn.Embedding(50304, 8)
dataset = lowtide.torch.TokenDataset(lowtide.tokens("train.bin"), 4, 64{ranks})
batches = accelerator.prepare(DataLoader(dataset, batch_size={batch_size}, num_workers={workers}))
for x, y in batches:
    net(x.reshape(-1, 64))
accelerator.end_training()
"""
DISPATCHED = {"batch_size": None, "settings": "{}", "ranks": "", "workers": 0}


@pytest.mark.parametrize("workers", [0, 2])
def test_accelerates_prepare_is_refused_on_two_ranks(run, workers):
    pytest.importorskip("accelerate")
    says = "Accelerate's DataLoaderDispatcher would deal out again what is only the share of one rank of 2"
    code = PREPARED.format(**DISPATCHED | {"workers": workers})
    assert run("prepared.py", torchrun=2, code=code, says=says) == []


def test_accelerates_shard_is_refused_on_two_ranks(run):
    pytest.importorskip("accelerate")
    config = (
        "dict(dataloader_config=__import__('accelerate').DataLoaderConfiguration(dispatch_batches=False))"
    )
    code = PREPARED.format(**DISPATCHED | {"settings": config, "batch_size": 1})
    says = "Accelerate's IterableDatasetShard would deal out again what is only the share of one rank of 2"
    assert run("prepared.py", torchrun=2, code=code, says=says) == []


@pytest.mark.parametrize(("ranks", "given"), [(1, ""), (2, ", rank=0, world_size=1")])
def test_what_loses_nothing_is_not(run, ranks, given):
    """One rank; and rank 0 that reads for all."""
    pytest.importorskip("accelerate")
    each_once(
        run("prepared.py", torchrun=ranks, code=PREPARED.format(**DISPATCHED | {"ranks": given})), ranks
    )


def test_trainer_with_ready_made_batches_is_refused(run):
    pytest.importorskip("transformers")
    code = PROGRAMS["train_transformers.py"].replace(
        'WindowDataset(lowtide.tokens("train.bin"), 64, items="transformers")',
        'TokenDataset(lowtide.tokens("train.bin"), 4, 64)',
    )
    assert (
        run("trainer.py", code=code, says="hint: DataLoader(dataset, batch_size=None); for a trainer") == []
    )


# Going on from a checkpoint.


def test_accelerate_goes_on_from_its_checkpoint(run, tmp_path):
    pytest.importorskip("accelerate")
    code = PROGRAMS["train_accelerate.py"]
    loop = "for x, y in loader:\n"
    half = code.replace(loop, "from itertools import islice\nfor x, y in islice(loader, 5):\n")
    rest = code.replace(loop, 'accelerator.load_state("checkpoint")\n' + loop)
    assert half != code != rest
    run("half.py", torchrun=2, code=half)
    seen = run("rest.py", torchrun=2, code=rest)
    assert sorted(map(len, seen)) == [5 * 4] * 4
    together = sorted(window for windows in seen for window in windows)
    assert together == list(range(together[0], together[0] + WINDOWS * BLOCK, BLOCK))


def test_trainer_goes_on_from_its_checkpoint(run):
    pytest.importorskip("transformers")
    code = PROGRAMS["train_transformers.py"]
    saving = code.replace('save_strategy="no"', 'save_strategy="steps", save_steps=5, max_steps=5')
    resumed = code.replace(".train()", ".train(resume_from_checkpoint=True)")
    resumed = resumed.replace('save_strategy="no"', 'save_strategy="no", max_steps=-1')
    run("half.py", torchrun=2, code=saving)
    seen = run("rest.py", torchrun=2, code=resumed)
    together = sorted(window for windows in seen for window in windows)
    assert together == list(range(0, WINDOWS * BLOCK, BLOCK))

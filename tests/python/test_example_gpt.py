"""examples/gpt: a model that learns, and takes the same steps when it is killed and resumed.

Built with cargo. What it says is compared with itself uninterrupted, and with the same model in NumPy.
"""

import json
import math
import os
import signal
import subprocess
import sysconfig
import time
from pathlib import Path

import numpy as np
import pytest

import lowtide

pytestmark = pytest.mark.heavy

ROOT = Path(__file__).parents[2]
STEPS, BATCH, BLOCK = 40, 8, 64
TINY = ["--layers", 2, "--heads", 2, "--width", 32, "--batch", BATCH, "--block", BLOCK, "--steps", STEPS]


@pytest.fixture(scope="module")
def gpt():
    """Runs lowtide-gpt, or starts it."""
    subprocess.run(
        ["cargo", "build", "--release", "--quiet", "--package", "lowtide-gpt"], cwd=ROOT, check=True
    )
    binary = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release" / "lowtide-gpt"

    def run(*arguments, start=False):
        command = [str(binary), *map(str, arguments)]
        if start:
            return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return subprocess.run(command, capture_output=True, text=True, timeout=120)

    return run


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A few modules of Python's standard library, by the name of a tokenizer."""
    folder = tmp_path_factory.mktemp("gpt")
    sources = sorted(Path(sysconfig.get_path("stdlib")).glob("[a-d]*.py"))
    for tokenizer in ("bytes", "chars", "gpt2"):
        lowtide.prepare([str(path) for path in sources], folder / tokenizer, tokenizer=tokenizer, val=0.2)
    return folder


def lines(log, kind):
    """The lines of a kind; a kill may leave the last one without its end."""
    whole = log.read_text().rpartition("\n")[0].splitlines() if log.exists() else []
    return [line for line in map(json.loads, whole) if line["kind"] == kind]


@pytest.fixture(scope="module")
def uninterrupted(gpt, data, tmp_path_factory):
    """A run from beginning to end."""
    out = tmp_path_factory.mktemp("run")
    done = gpt(
        "train", data / "bytes", *TINY, "--every", 3, "--out", out / "model", "--log", out / "log.jsonl"
    )
    assert done.returncode == 0, done.stderr
    return out, done


def test_killed_again_and_again_it_takes_the_same_steps(gpt, data, uninterrupted, tmp_path):
    whole, _ = uninterrupted
    log = tmp_path / "log.jsonl"
    command = ["train", data / "bytes", *TINY, "--every", 3, "--out", tmp_path / "model", "--log", log]
    for kill_after in (8, 17, 26):
        resume = ["--resume"] if lines(log, "step") else []
        with gpt(*command, *resume, start=True) as child:
            while all(line["step"] < kill_after for line in lines(log, "step")):
                assert child.poll() is None, "it ended before it was killed"
                time.sleep(0.001)
            child.send_signal(signal.SIGKILL)
        assert child.returncode == -signal.SIGKILL
    done = gpt(*command, "--resume")
    assert done.returncode == 0, done.stderr

    starts = [line["step"] for line in lines(log, "start")]
    assert starts[0] == 0
    assert all(6 <= start <= 30 for start in starts[1:]), starts
    want = {line["step"]: (line["loss"], line["rate"]) for line in lines(whole / "log.jsonl", "step")}
    got = [(line["step"], (line["loss"], line["rate"])) for line in lines(log, "step")]
    assert {step for step, _ in got} == set(want) == set(range(STEPS))
    assert all(said == want[step] for step, said in got), "the very same numbers, also of steps taken twice"
    measured = [
        {(line["step"], line["loss"]) for line in lines(run, "eval")} for run in (whole / "log.jsonl", log)
    ]
    assert measured[0] == measured[1]
    assert lines(whole / "log.jsonl", "end")[0]["sample"] == lines(log, "end")[0]["sample"]
    # Every weight, every average of the optimizer, and where the loader stands.
    checkpoints = [(run / "model" / "checkpoint.safetensors").read_bytes() for run in (whole, tmp_path)]
    assert checkpoints[0] == checkpoints[1]


def load(checkpoint):
    """What safetensors says of its format: a length, a JSON header, numbers."""
    raw = checkpoint.read_bytes()
    size = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + size])
    run = json.loads(header.pop("__metadata__")["lowtide-gpt"])
    tensors = {}
    for name, info in header.items():
        start, end = (8 + size + at for at in info["data_offsets"])
        tensors[name] = np.frombuffer(raw[start:end], "<f4").reshape(info["shape"]).astype("f8")
    return run, tensors


def loss_of(x, y, weight, layers, heads):
    """The model of examples/gpt/src/model.rs, written down again."""

    def norm(h, name):
        return h / np.sqrt((h * h).mean(-1, keepdims=True) + 1e-5) * weight[name]

    def split(h):
        return h.reshape(*h.shape[:2], heads, -1).transpose(0, 2, 1, 3)

    h = weight["tokens"][x] + weight["positions"][: x.shape[1]]
    for n in range(layers):
        seen = norm(h, f"layer{n}.attention_norm")
        q, k, v = (split(seen @ weight[f"layer{n}.{part}"].T) for part in ("query", "key", "value"))
        fits = q @ k.transpose(0, 1, 3, 2) / math.sqrt(q.shape[-1])
        fits[..., *np.triu_indices(x.shape[1], 1)] = -np.inf
        chance = np.exp(fits - fits.max(-1, keepdims=True))
        gathered = (chance / chance.sum(-1, keepdims=True) @ v).transpose(0, 2, 1, 3).reshape(h.shape)
        h = h + gathered @ weight[f"layer{n}.project"].T
        inner = np.maximum(norm(h, f"layer{n}.mlp_norm") @ weight[f"layer{n}.up"].T, 0)
        h = h + inner @ weight[f"layer{n}.down"].T
    scores = norm(h, "last") @ weight["tokens"].T
    scores -= scores.max(-1, keepdims=True)
    scores -= np.log(np.exp(scores).sum(-1, keepdims=True))
    return -np.take_along_axis(scores, y[..., None], -1).mean()


def test_the_loss_is_what_numpy_makes_of_the_checkpoint(data, uninterrupted):
    out, _ = uninterrupted
    run, weight = load(out / "model" / "checkpoint.safetensors")
    assert run["step"] == STEPS
    assert run["loader"]["position"] + run["loader"]["epoch"] * 10**9 == STEPS * BATCH, "all that was taken"
    val = lowtide.tokens(data / "bytes", split="val").loader(BATCH, BLOCK, repeat=True, drop_last=False)
    losses = [loss_of(x, y, weight, 2, 2) for (x, y), _ in zip(val, range(8), strict=False)]
    last = lines(out / "log.jsonl", "eval")[-1]
    assert last["step"] == STEPS
    assert last["loss"] == pytest.approx(np.mean(losses), abs=1e-4)


def test_what_is_said_of_a_run(data, uninterrupted):
    out, done = uninterrupted
    (start,) = lines(out / "log.jsonl", "start")
    tokens = len(lowtide.tokens(data / "bytes"))
    parameters = 257 * 32 + BLOCK * 32 + 2 * (12 * 32 * 32 + 2 * 32) + 32
    assert start == {
        "kind": "start", "parameters": parameters, "tokens": tokens, "vocabulary": 257, "batch": BATCH,
        "block": BLOCK, "steps": STEPS, "step": 0,
    }  # fmt: skip
    for line in lines(out / "log.jsonl", "step"):
        assert 0 < line["loader_seconds"] < line["step_seconds"]
        assert line["tokens_per_second"] == pytest.approx(BATCH * BLOCK / line["step_seconds"])
        assert line["rss_anon"] > 1 << 20
        assert line["rss_file"] > 1 << 20
        assert line["cache"] is None or line["cache"] > 0
    evals = [(line["step"], line["loss"]) for line in lines(out / "log.jsonl", "eval")]
    assert [step for step, _ in evals] == [*range(0, STEPS, 3), STEPS]
    assert evals[0][1] == pytest.approx(math.log(257), abs=0.3)
    assert evals[-1][1] < 4, "it learns"
    (end,) = lines(out / "log.jsonl", "end")
    assert end["sample"] in done.stdout
    assert len(end["sample"].encode()) >= 300
    assert f"loader      {100 * end['loader_share']:.3f} %" in done.stderr
    assert Path(end["checkpoint"]) == out / "model" / "checkpoint.safetensors"


@pytest.mark.parametrize("tokenizer", ["chars", "gpt2"])
def test_text_goes_on_from_a_prompt_wherever_the_data_is(gpt, data, tmp_path, tokenizer):
    small = ["--layers", 1, "--heads", 1, "--width", 8, "--batch", 2, "--block", 16, "--steps", 2]
    folder = data / tokenizer
    done = gpt("train", folder, *small, "--out", tmp_path / "model")
    assert done.returncode == 0, done.stderr
    hidden = folder.rename(folder.with_suffix(".hidden"))
    try:
        said = [
            gpt("sample", "--from", tmp_path / "model", "--prompt", "import os", "--tokens", 20) for _ in "12"
        ]
    finally:
        hidden.rename(folder)
    assert said[0].returncode == 0, said[0].stderr
    assert said[0].stdout.startswith("import os")
    assert len(said[0].stdout) > len("import os") + 10
    assert said[0].stdout == said[1].stdout, "the same seed, the same text"


def test_a_run_can_be_made_longer_with_another_batch(gpt, data, uninterrupted, tmp_path):
    """What the loader has given is counted in windows: the batch size may change on the way."""
    out, _ = uninterrupted
    (tmp_path / "checkpoint.safetensors").write_bytes((out / "model" / "checkpoint.safetensors").read_bytes())
    done = gpt("train", data / "bytes", "--out", tmp_path, "--resume", "--batch", 5, "--steps", STEPS + 2)
    assert done.returncode == 0, done.stderr
    run, _ = load(tmp_path / "checkpoint.safetensors")
    assert (run["step"], run["batch"]) == (STEPS + 2, 5)
    assert run["loader"]["position"] + run["loader"]["epoch"] * 10**9 == STEPS * BATCH + 2 * 5


def test_what_is_wrong_is_said_with_what_to_do(gpt, data, uninterrupted, tmp_path):
    model = uninterrupted[0] / "model"

    def refused(*arguments, code, says, hint):
        done = gpt(*arguments)
        assert done.returncode == code, done.stderr
        assert says in done.stderr
        assert hint in done.stderr.partition("\nhint: ")[2], done.stderr
        assert "panicked" not in done.stderr

    new = ["--out", tmp_path / "new"]
    refused("train", tmp_path / "none", *new, code=1, says="No such file", hint="lowtide prepare")
    (tmp_path / "bare").mkdir()
    np.arange(10_000, dtype="<u2").tofile(tmp_path / "bare" / "train.bin")
    refused("train", tmp_path / "bare", *new, code=2, says="which tokenizer", hint="lowtide prepare")
    refused(
        "train",
        data / "bytes",
        "--width",
        30,
        *new,
        code=2,
        says="among 4 heads",
        hint="a multiple of --heads",
    )
    assert not (tmp_path / "new").exists(), "nothing was made"

    refused("train", data / "bytes", "--resume", *new, code=1, says="checkpoint", hint="no model was trained")
    refused("sample", "--from", tmp_path, code=1, says="checkpoint", hint="no model was trained")
    resume = ["--out", model, "--resume"]
    refused("train", data / "bytes", "--out", model, code=2, says="already", hint="--resume")
    refused(
        "train",
        data / "chars",
        *resume,
        code=2,
        says="of other data",
        hint="files that the state was taken from",
    )
    refused(
        "train",
        data / "bytes",
        *resume,
        "--width",
        64,
        code=2,
        says="--width is 64",
        hint="leave --width out",
    )
    refused(
        "train", data / "bytes", *resume, "--seed", 1, code=2, says="made with 0", hint="leave --seed out"
    )
    (tmp_path / "damaged").mkdir()
    whole = (model / "checkpoint.safetensors").read_bytes()
    (tmp_path / "damaged" / "checkpoint.safetensors").write_bytes(whole[: len(whole) // 2])
    refused("sample", "--from", tmp_path / "damaged", code=2, says="no whole checkpoint", hint="train again")

    lowtide.prepare(__file__, tmp_path / "wrong", tokenizer="bytes")
    tokens = np.memmap(tmp_path / "wrong" / "train.bin", dtype="<u2", mode="r+")
    tokens[len(tokens) // 2] = 60_000
    tokens.flush()
    small = ["--layers", 1, "--width", 8, "--batch", 4, "--block", 16, "--steps", 10_000]
    refused("train", tmp_path / "wrong", *small, *new, code=2, says="the token 60000", hint="lowtide verify")
    assert not lowtide.verify(tmp_path / "wrong").ok, "the hint is right"

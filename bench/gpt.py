"""examples/gpt under ``lowtide watch``: what it learns, what the loader takes, and whether memory stays flat.

    python bench/gpt.py FOLDER           makes the data in FOLDER, unless it is there; keeps bench/runs/DATE-gpt
    python bench/gpt.py FOLDER --make    makes the data, and no more

Two runs of 300 steps with the default settings: ``learns`` from Python's standard library with nothing in the way,
``limited`` from a file that has it many times over, from a cold page cache, in a control group of a tenth of the file.
"""

import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

from harness import cgroup, forget, read_ahead_kb
from picture import without_paths

ROOT = Path(__file__).resolve().parent.parent
GPT = ROOT / "target" / "release" / "lowtide-gpt"
LOWTIDE = [sys.executable, "-m", "lowtide"]
SEPARATOR = "\n# ---- the next file ----\n"


def prepare(folder: Path, size: int) -> None:
    """Python's standard library as tokens, as often as it takes for ``size`` bytes of them, two for each byte."""
    if (folder / "lowtide.json").exists():
        return
    stdlib = Path(sysconfig.get_path("stdlib"))
    files = [path for path in sorted(stdlib.rglob("*.py")) if "site-packages" not in path.parts]
    text = SEPARATOR.join(path.read_text(errors="replace") for path in files).encode()
    command = [*LOWTIDE, "prepare", "-", "--input", "text", "--separator", repr(SEPARATOR)[1:-1]]
    command += ["--tokenizer", "bytes", "--val", "0.05", "--output", str(folder), "--quiet"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as child:
        assert child.stdin is not None
        for _ in range(max(1, size // (2 * len(text)))):
            child.stdin.write(text + SEPARATOR.encode())
        child.stdin.close()
    if child.returncode:
        sys.exit(child.returncode)


def train(name: str, data: Path, keep: Path, group: Path | None, steps: int) -> dict:
    """One run, watched; what it said of itself."""
    with tempfile.TemporaryDirectory(dir=data.parent) as out:
        command = ["sh", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"', str(group)] if group else []
        command += [
            *LOWTIDE,
            "watch",
            "--quiet",
            "--file",
            str(data),
            "--json",
            str(keep / f"{name}.json"),
            "--",
        ]
        command += [str(GPT), "train", str(data), "--steps", str(steps), "--out", f"{out}/model"]
        command += ["--log", f"{out}/log.jsonl"]
        print(f"{name} ...", flush=True)
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        log = Path(out, "log.jsonl").read_text()
        names = {Path(out): "OUT", data: "DATA", ROOT: "."}
        (keep / f"{name}.jsonl").write_text(without_paths(log, names))
        report = keep / f"{name}.json"
        report.write_text(without_paths(report.read_text(), names))
    lines = [json.loads(line) for line in log.splitlines()]
    watched = json.loads((keep / f"{name}.json").read_text())
    took = sorted(line["step_seconds"] for line in lines if line["kind"] == "step")
    losses = [line["loss"] for line in lines if line["kind"] == "eval"]
    return {
        "seconds": round(lines[-1]["seconds"], 1),
        "median_step_seconds": round(took[len(took) // 2], 4),
        "validation_loss": [round(loss, 4) for loss in losses],
        "loader_share": lines[-1]["loader_share"],
        "file_bytes": sum(path.stat().st_size for path in data.glob("*.bin")),
        "verdict": watched["verdict"],
        "sentence": watched["sentence"],
        "peak_anon_bytes": watched["peak_anon_bytes"],
        "peak_file_bytes": watched["peak_file_bytes"],
        "peak_cache_bytes": watched["peak_cache_bytes"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--gib", type=float, default=4.0, help="the size of the large file")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--make", action="store_true")
    args = parser.parse_args()
    small, large = args.folder / "small", args.folder / "large"
    prepare(small, 0)
    prepare(large, int(args.gib * (1 << 30)))
    if args.make:
        return
    keep = ROOT / "bench" / "runs" / f"{datetime.date.today()}-gpt"
    keep.mkdir(parents=True, exist_ok=True)
    runs = {"learns": train("learns", small, keep, None, args.steps)}
    for path in large.glob("*.bin"):
        forget(path)
    limit = sum(path.stat().st_size for path in large.glob("*.bin")) // 10
    with cgroup(limit) as group:
        if group is None:
            sys.exit("a control group is needed, and cannot be made here")
        runs["limited"] = train("limited", large, keep, group, args.steps) | {"limit_bytes": limit}
    machine = {
        "command": f"python bench/gpt.py FOLDER --gib {args.gib:g} --steps {args.steps}",
        "kernel": platform.release(),
        "cores": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        "read_ahead_kb": read_ahead_kb(args.folder),
        "load": round(os.getloadavg()[0], 1),
    }
    (keep / "machine.json").write_text(json.dumps(machine, indent=1) + "\n")
    (keep / "summary.json").write_text(json.dumps(runs, indent=1) + "\n")
    print(json.dumps(runs, indent=1))


if __name__ == "__main__":
    main()

"""The README's picture: np.memmap, nanoGPT's way and Lowtide at the same job, as ``lowtide watch`` saw them.

    python bench/picture.py        runs the three, keeps them in bench/runs/DATE-watch, draws docs/memory.svg
    python bench/picture.py RUN    draws again from a run that was kept

The job: rows of 512 bytes of a file, in random order, 256 at a time, from a cold page cache, as far as each side
comes in its time, in a control group of half the file's size, page cache included. Lowtide has its default settings.
"""

import argparse
import datetime
import html
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from harness import cgroup

ROOT = Path(__file__).resolve().parent.parent
GIB = 1 << 30
MIB = 1 << 20

START = """
import json, sys, time
path, seconds = sys.argv[1], float(sys.argv[2])
begin = time.monotonic()
def over():
    return time.monotonic() - begin > seconds
done, why = 0, "np.memmap"
"""
HELD = """
import numpy as np
rows = np.memmap(path, np.float32, "r").reshape(-1, 128)
random = np.random.default_rng(0)
while not over():
    done += len(rows[random.integers(0, len(rows), 256)].copy())
"""
RECREATED = """
import numpy as np
random = np.random.default_rng(0)
while not over():
    rows = np.memmap(path, np.float32, "r").reshape(-1, 128)
    done += len(rows[random.integers(0, len(rows), 256)].copy())
"""
LOWTIDE = """
import lowtide
rows = lowtide.open(path, dtype="float32", shape=(-1, 128))
epoch = 0
while not over():
    it = rows.shuffled(256, seed=0, epoch=epoch)
    why = f"access={it.access}: {it.why}"
    for chunk in it:
        done += len(chunk)
        if over():
            break
    epoch += 1
"""
END = """
print(json.dumps({"rows": done, "seconds": time.monotonic() - begin, "why": why}))
"""
SIDES = [
    ("memmap", "np.memmap, held", HELD),
    ("recreated", "a new np.memmap per batch", RECREATED),
    ("lowtide", "Lowtide, default settings", LOWTIDE),
]


def make_file(path: Path, size: int) -> None:
    """Write ``size`` bytes that no filesystem can fold."""
    block = os.urandom(8 * MIB)
    with path.open("wb") as file:
        for _ in range(size // len(block)):
            file.write(block)
        file.flush()
        os.fsync(file.fileno())


def drop(path: Path) -> None:
    """Empty the page cache of the file."""
    fd = os.open(path, os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


def run(folder: Path, size: int, seconds: float, where: str | None) -> None:
    """Run the three sides, and keep what was seen."""
    folder.mkdir(parents=True)
    said = {}
    with tempfile.TemporaryDirectory(dir=where) as name, cgroup(size // 2) as group:
        if group is None:
            sys.exit("a control group is needed, and cannot be made here")
        data = Path(name) / "rows.bin"
        make_file(data, size)
        for side, _, program in SIDES:
            script = folder / f"{side}_program.py"
            script.write_text(START + program + END)
            drop(data)
            command = ["sh", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"', str(group)]
            command += [sys.executable, "-m", "lowtide", "watch", "--quiet", "--file", str(data)]
            command += ["--json", str(folder / f"{side}.json")]
            command += ["--", sys.executable, str(script), str(data), str(seconds)]
            lines = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
            said[side] = json.loads(next(line for line in lines if line.startswith("{")))
            report = folder / f"{side}.json"
            report.write_text(without_paths(report.read_text(), {folder: ".", data.parent: "."}))
    device = {"read_ahead_kb": read_ahead(Path(where or tempfile.gettempdir()))}
    machine = {
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cores": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        "python": platform.python_version(),
        "file_bytes": size,
        "limit_bytes": size // 2,
        "seconds": seconds,
        "command": f"python bench/picture.py --gib {size / GIB:g} --seconds {seconds:g}",
        "sides": said,
        **device,
    }
    (folder / "machine.json").write_text(json.dumps(machine, indent=1) + "\n")


def without_paths(text: str, names: dict[Path, str]) -> str:
    """What is kept says nothing about where it was made."""
    for path, name in names.items():
        text = text.replace(str(path.resolve()), name)
    text = re.sub(r"/[^ \"]*/(python)[0-9.]*", r"\1", text)
    return re.sub(r"/sys/fs/cgroup[^ \":,]*", "/sys/fs/cgroup", text)


def read_ahead(folder: Path) -> int | None:
    """The read_ahead_kb of the device under a folder."""
    device = os.stat(folder).st_dev
    for name in ("queue", "../queue"):
        path = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/{name}/read_ahead_kb")
        if path.exists():
            return int(path.read_text())
    return None


def human(size: float) -> str:
    """A size for people."""
    return f"{size / GIB:.1f} GiB" if size >= GIB else f"{size / MIB:.0f} MiB"


STYLE = """
  text { font: 13px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; fill: #1b2230 }
  .muted { fill: #5b6577; font-size: 12px } .title { font-weight: 650; font-size: 15px }
  .rows { font-size: 14px }
  .limit { stroke: #c02a33; stroke-dasharray: 5 4 }
  .grid { stroke: #e3e7ee } .card { fill: #ffffff }
  .anon { fill: #2f6fde } .file { fill: #e2972c } .cache { fill: #3aa79b } path { fill-opacity: .85 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6eaf2 } .muted { fill: #98a3b6 } .grid { stroke: #2a3342 } .card { fill: #0d1117 }
    .limit { stroke: #ff7a80 }
    .anon { fill: #5b93f5 } .file { fill: #eeb04f } .cache { fill: #4fc4b6 }
  }
"""


def draw(folder: Path) -> str:
    """Three stacked charts with one scale."""
    reports = [json.loads((folder / f"{side}.json").read_text()) for side, _, _ in SIDES]
    machine = json.loads((folder / "machine.json").read_text())
    width, height, left, gap, top = 1000, 378, 62, 26, 90
    plot_width, plot_height = (width - left - 12 - 2 * gap) / 3, 190

    def stack(sample):
        rest = max(0, (sample["cache_bytes"] or 0) - sample["file_bytes"])
        return [("anon", sample["anon_bytes"]), ("file", sample["file_bytes"]), ("cache", rest)]

    limit = machine["limit_bytes"]
    tallest = max(sum(v for _, v in stack(sample)) for report in reports for sample in report["samples"])
    highest = max(limit, tallest)
    end = max(report["seconds"] for report in reports)
    step = next(step * GIB for step in (0.25, 0.5, 1, 2, 4, 8, 16) if highest / (step * GIB) <= 5)
    scale = plot_height / (highest * 1.04)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">',
        f"<title>Memory of three ways to read random rows of a {human(machine['file_bytes'])} file</title>",
        f'<style>{STYLE}</style><rect class="card" width="{width}" height="{height}" rx="8"/>',
    ]
    x = left
    for kind, name in (
        ("anon", "anonymous: heap"),
        ("file", "mapped: RssFile"),
        ("cache", "page cache of the file"),
    ):
        out.append(f'<rect class="{kind}" x="{x}" y="16" width="12" height="12" rx="3"/>')
        out.append(f'<text x="{x + 18}" y="27">{name}</text>')
        x += 40 + 7 * len(name)
    out.append(f'<line class="limit" x1="{x}" x2="{x + 22}" y1="22" y2="22"/>')
    out.append(f'<text x="{x + 28}" y="27">limit, page cache included: {human(limit)}</text>')
    level = 0.0
    base = top + plot_height
    while level <= highest * 1.04:
        y = base - level * scale
        out.append(f'<line class="grid" x1="{left}" x2="{width - 12}" y1="{y:.1f}" y2="{y:.1f}"/>')
        label = "0" if level == 0 else human(level)
        out.append(f'<text class="muted" x="{left - 8}" y="{y + 4:.1f}" text-anchor="end">{label}</text>')
        level += step
    for number, ((side, title, _), report) in enumerate(zip(SIDES, reports, strict=True)):
        x0 = left + number * (plot_width + gap)
        points = [(x0 + sample["seconds"] / end * plot_width, stack(sample)) for sample in report["samples"]]
        lower = [0.0] * len(points)
        for index, kind in enumerate(("anon", "file", "cache")):
            upper = [low + values[index][1] for low, (_, values) in zip(lower, points, strict=True)]
            there = " ".join(
                f"{x:.1f},{base - v * scale:.1f}" for (x, _), v in zip(points, upper, strict=True)
            )
            back = [f"{x:.1f},{base - v * scale:.1f}" for (x, _), v in zip(points, lower, strict=True)]
            out.append(f'<path class="{kind}" d="M{there.replace(" ", "L")}L{"L".join(reversed(back))}Z"/>')
            lower = upper
        out.append(f'<text class="title" x="{x0:.0f}" y="{top - 27}">{html.escape(title)}</text>')
        told = machine["sides"][side]
        count = f"{told['rows']:,} rows in {told['seconds']:.0f} s"
        out.append(f'<text class="rows" x="{x0:.0f}" y="{top - 6}">{count}</text>')
        caption = f"anonymous {human(report['peak_anon_bytes'])} · mapped {human(report['peak_file_bytes'])}"
        out.append(f'<text class="muted" x="{x0:.0f}" y="{base + 36}">peaks: {caption}</text>')
        out.append(f'<text class="muted" x="{x0:.0f}" y="{base + 18}">0 s</text>')
        x1, y = f"{x0 + plot_width:.0f}", base + 18
        out.append(f'<text class="muted" x="{x1}" y="{y}" text-anchor="end">{end:.0f} s</text>')
        cache = human(report["peak_cache_bytes"] or 0)
        told = f"page cache {cache} · verdict: {report['verdict']}"
        out.append(f'<text class="muted" x="{x0:.0f}" y="{base + 54}">{told}</text>')
    y = base - limit * scale
    out.append(f'<line class="limit" x1="{left}" x2="{width - 12}" y1="{y:.1f}" y2="{y:.1f}"/>')
    facts = f"{human(machine['file_bytes'])} file in {human(limit)} of memory, cold page cache"
    facts += "; random rows of 512 bytes, 256 at a time"
    facts += f"; read_ahead_kb {machine['read_ahead_kb']}"
    out.append(
        f'<text class="muted" x="{left}" y="{height - 14}">{facts}. Run: bench/runs/{folder.name}</text>'
    )
    out.append("</svg>\n")
    return "\n".join(out)


def main() -> None:
    """Run, keep and draw."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", nargs="?", type=Path, help="a folder of bench/runs to draw again")
    parser.add_argument("--gib", type=float, default=4)
    parser.add_argument("--seconds", type=float, default=16)
    parser.add_argument("--where", help="a folder on the disk to read from")
    arguments = parser.parse_args()
    folder = arguments.run or ROOT / "bench" / "runs" / f"{datetime.date.today()}-watch"
    if arguments.run is None:
        shutil.rmtree(folder, ignore_errors=True)
        run(folder, int(arguments.gib * GIB), arguments.seconds, arguments.where)
    (ROOT / "docs").mkdir(exist_ok=True)
    (ROOT / "docs" / "memory.svg").write_text(draw(folder))


if __name__ == "__main__":
    main()

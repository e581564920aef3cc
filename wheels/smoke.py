"""Uses an installed Lowtide as a user would, with numpy beside it and nothing else.

python -I wheels/smoke.py VERSION
"""

import importlib.metadata
import platform
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import lowtide


def command(*words: object) -> str:
    """What the command says."""
    return subprocess.run(
        ["lowtide", *map(str, words)], check=True, capture_output=True, text=True, timeout=60
    ).stdout


def smoke(folder: Path) -> None:
    """Read an array and a token file in every way that there is, and look at our own memory."""
    rows = np.arange(50_000 * 32, dtype=np.float32).reshape(-1, 32)
    np.save(folder / "rows.npy", rows)
    for access in ("auto", "map", "remap", "advise", "read"):
        a = lowtide.open(folder / "rows.npy", access=access, budget="32MiB")
        np.testing.assert_array_equal(a[[3, 1, -1]], rows[[3, 1, -1]])
        np.testing.assert_array_equal(a[5:900:7, :4], rows[5:900:7, :4])
        np.testing.assert_array_equal(np.concatenate(list(a.chunks(4096))), rows)
        shuffled = np.concatenate(list(a.shuffled(4096, seed=1)))
        assert not np.array_equal(shuffled, rows)
        np.testing.assert_array_equal(np.sort(shuffled[:, 0]), rows[:, 0])
    adopted = np.load(folder / "rows.npy", mmap_mode="r")
    lowtide.release(adopted)
    np.testing.assert_array_equal(lowtide.open(adopted)[7], adopted[7])

    ids = (np.arange(100_000) % 50_257).astype(np.uint16)
    ids.tofile(folder / "train.bin")
    tokens = lowtide.tokens(folder / "train.bin")
    x, y = tokens.windows([0, 500], 64)
    np.testing.assert_array_equal(x[1], ids[500:564])
    np.testing.assert_array_equal(y[1], ids[501:565])
    loader = tokens.loader(batch_size=12, block_size=64, seed=0)
    assert sum(1 for _ in loader) == len(loader) > 100

    (folder / "story.txt").write_text("hello world\nhello\n")
    made = lowtide.prepare(folder / "story.txt", folder / "data", split_lines=True)
    assert lowtide.tokens(folder / "data")[:].tolist() == [31373, 995, 50256, 31373, 50256]
    assert (made.documents, lowtide.tokens(folder / "data").text(0)) == (2, "hello world")
    assert "hello world" in command("info", "--show", 1, folder / "data")
    assert "well" in command("verify", folder / "data")
    assert "story.txt" in command("prepare", folder / "story.txt", "-o", folder / "again", "--json")

    with lowtide.watch(files=[str(folder / "rows.npy")]) as watched:
        lowtide.open(folder / "rows.npy")[:]
    assert watched.report.peak_anon_bytes > 0

    assert "float32" in command("info", folder / "rows.npy")
    assert "uint16" in command("info", folder / "train.bin")


version = sys.argv[1]
assert lowtide.__version__ == importlib.metadata.version("lowtide") == version, lowtide.__version__
assert Path(lowtide.__file__).is_relative_to(sys.prefix), f"not the installed one: {lowtide.__file__}"
expected = {"lowtide", "numpy", "pip", "setuptools"}
others = {each.name for each in importlib.metadata.distributions()} - expected
assert not others, f"a clean environment would not have {others}"
assert command("--version").split() == ["lowtide", version]
with TemporaryDirectory() as place:
    smoke(Path(place))
here = f"CPython {platform.python_version()}, numpy {np.__version__}, {platform.machine()}"
print(f"lowtide {version} works: {here}")

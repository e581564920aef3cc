"""Has NumPy write .npy files, and say what is in them: the oracle for our own parser.

The files and NumPy's answers (npy.txt: file, dtype, shape, order, where the data begins) are checked
in; this says how they were made. Needs NumPy: python3 make_npy.py
"""

from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
KINDS = ["b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16"]


def write(name, array, version=None):
    path = HERE / "npy" / f"{name}.npy"
    with open(path, "wb") as file:
        np.lib.format.write_array(file, array, version=version, allow_pickle=False)
    return path


def answer(path):
    """What NumPy itself says about the file: a memory map of it is no copy, so it knows the offset."""
    loaded = np.load(path, allow_pickle=False)
    if loaded.size and loaded.ndim:
        offset = np.load(path, mmap_mode="r").offset
    else:  # cannot be mapped
        offset = path.stat().st_size - loaded.nbytes
    order = "C" if loaded.flags.c_contiguous else "F"
    return "\t".join([path.name, loaded.dtype.str, str(loaded.shape), order, str(offset)])


def files():
    rng = np.random.default_rng(0)
    for kind in KINDS:
        for name, mark in [("little", "<"), ("big", ">")]:
            if kind[1:] == "1" and mark == ">":
                continue
            array = rng.integers(0, 2, (2, 3)).astype(mark + kind)
            yield write(f"{kind}-{name}-c", array)
            yield write(f"{kind}-{name}-f", np.asfortranarray(array))
    counting = np.arange(24, dtype="<i4")
    for version in [(1, 0), (2, 0), (3, 0)]:
        yield write(f"version-{version[0]}-c", counting.reshape(2, 3, 4), version)
        yield write(f"version-{version[0]}-f", np.asfortranarray(counting.reshape(2, 3, 4)), version)
    yield write("0-d", np.array(7.5))
    yield write("0-d-big", np.array(7, ">u2"))
    yield write("empty", np.empty(0, "<f4"))
    yield write("empty-rows", np.empty((5, 0, 3), "<f8"))
    yield write("empty-f", np.empty((0, 3, 4), "<u2", order="F"))
    yield write("1-d", counting)
    yield write("one-column-f", np.asfortranarray(counting.reshape(24, 1)))
    yield write("one-row-f", np.asfortranarray(counting.reshape(1, 24)))
    yield write("axes-64", np.zeros((1,) * 63 + (2,), "|u1"))
    yield write("axes-32-f", np.zeros((2, 2) + (1,) * 30, "|u1", order="F"))


if __name__ == "__main__":
    (HERE / "npy").mkdir(exist_ok=True)
    for old in (HERE / "npy").glob("*.npy"):
        old.unlink()
    answers = [answer(path) for path in files()]
    (HERE / "npy.txt").write_text("\n".join(sorted(answers)) + "\n")
    print(f"{len(answers)} files by NumPy {np.__version__}")

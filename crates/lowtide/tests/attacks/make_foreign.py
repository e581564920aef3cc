"""Writes files that are no tokens and no arrays beside this script, by the programs whose files they are.

The files are checked in; this says how each was made. Needs torch, safetensors, h5py, pyarrow, zarr,
zstandard, lz4 and scipy: python3 make_foreign.py. All are called .bin, as people call
them: pytorch_model.bin, train.bin. What Lowtide answers to each is in foreign.txt for tokens and in
foreign-arrays.txt for arrays.
"""

import bz2
import collections
import gzip
import io
import json
import lzma
import pickle
import shutil
import sqlite3
import struct
import tarfile
import zipfile
from pathlib import Path

import h5py
import lz4.frame
import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.ipc
import pyarrow.parquet
import safetensors.numpy
import scipy.io
import torch
import zarr
import zstandard

HERE = Path(__file__).parent / "foreign"
TOKENS = (np.arange(300) * 7919 % 50257).astype("<u2")
TEXT = "".join(f"Line {i} of a text with words, commas and a few “quotes”.\n" for i in range(20))
LINES = "".join(json.dumps({"id": i, "text": "a document"}) + "\n" for i in range(20))


def written(write):
    """What a function writes into a file."""
    file = io.BytesIO()
    write(file)
    return file.getvalue()


def zipped(**members):
    def write(file):
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in members.items():
                archive.writestr(zipfile.ZipInfo(name.replace("_", ".")), content)

    return written(write)


def tarred(name, content):
    def write(file):
        with tarfile.open(fileobj=file, mode="w") as archive:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))

    return written(write)


def llmc(magic, version):
    return np.array([magic, version, 1024, 50257, *[0] * 252], "<i4").tobytes() + bytes(512)


def arrow(new):
    table = pa.table({"input_ids": [TOKENS.tolist()]})

    def write(file):
        with new(file, table.schema) as writer:
            writer.write_table(table)

    return written(write)


def hdf5(file):
    with h5py.File(file, "w") as f:
        f["tokens"] = TOKENS


def netcdf(path):
    with scipy.io.netcdf_file(path, "w") as f:
        f.createDimension("token", len(TOKENS))
        f.createVariable("x", "i4", ("token",))[:] = TOKENS


def database(path):
    connection = sqlite3.connect(path)
    connection.execute("create table tokens (id integer)")
    connection.commit()
    connection.close()


BIN = {
    "npz": written(lambda f: np.savez(f, x=TOKENS)),
    "npz-compressed": written(lambda f: np.savez_compressed(f, x=TOKENS)),
    "pytorch_model": written(lambda f: torch.save({"weight": torch.zeros(4, 4)}, f)),
    "pytorch_model-before-1.6": written(
        lambda f: torch.save({"weight": torch.zeros(4, 4)}, f, _use_new_zipfile_serialization=False)
    ),
    "zip": zipped(readme_txt="words"),
    "zip-of-nothing": zipped(),
    "gzip": gzip.compress(TOKENS.tobytes(), mtime=0),
    "gzip-with-a-name": written(
        lambda f: gzip.GzipFile("train.bin", "wb", fileobj=f, mtime=1).write(b"text " * 99)
    ),
    "zstd": zstandard.compress(TOKENS.tobytes()),
    "bzip2": bz2.compress(TOKENS.tobytes()),
    "xz": lzma.compress(TOKENS.tobytes()),
    "lz4": lz4.frame.compress(TOKENS.tobytes()),
    "tar": tarred("train.txt", TEXT.encode()),
    "safetensors": safetensors.numpy.save({"weight": np.zeros((4, 4), "f4")}),
    "safetensors-of-nothing": safetensors.numpy.save({}),
    **{f"pickle-of-a-list-{p}": pickle.dumps(TOKENS.tolist(), protocol=p) for p in (0, 2, 3, 4, 5)},
    **{f"pickle-of-a-dict-{p}": pickle.dumps({"stoi": {"a": 1}}, protocol=p) for p in (0, 2, 3, 4, 5)},
    "pickle-of-a-class-0": pickle.dumps(collections.OrderedDict(stoi={"a": 1}), protocol=0),
    **{f"pickle-of-an-array-{p}": pickle.dumps(TOKENS, protocol=p) for p in (2, 3, 4, 5)},
    "parquet": written(lambda f: pa.parquet.write_table(pa.table({"text": ["a", "b"]}), f)),
    "arrow-file": arrow(pa.ipc.new_file),
    "arrow-stream": arrow(pa.ipc.new_stream),
    "feather": written(lambda f: pa.feather.write_feather(pa.table({"x": [1, 2]}), f)),
    "hdf5": written(hdf5),
    "matlab": written(lambda f: scipy.io.savemat(f, {"x": TOKENS})),
    "gguf": b"GGUF" + struct.pack("<IQQ", 3, 0, 0) + bytes(8),
    "llmc-weights": llmc(20240326, 3),
    "llmc-debug-state": llmc(20240327, 2),
    "llmc-tokenizer": llmc(20240328, 2),
    "llmc-evaluation": llmc(20240522, 1),
    "llmc-training-state": llmc(20240527, 1),
    "llmc-weights-of-llama": llmc(20240803, 5),
    "text": TEXT.encode(),
    "text-in-japanese": ("吾輩は猫である。名前はまだ無い。どこで生れたかとんと見当がつかぬ。" * 9).encode(),
    "text-in-latin-1": ("Früher gab es im Café Flöße, Äpfel und Öl.\n" * 40).encode("latin1"),
    "text-in-utf-16": (TEXT * 4).encode("utf-16"),
    "text-in-utf-16-of-japanese": ("吾輩は猫である。名前はまだ無い。" * 40).encode("utf-16"),
    "text-in-utf-16-big-endian": b"\xfe\xff" + TEXT.encode("utf-16-be"),
    "text-in-colors": (TEXT.replace("words", "\x1b[1mwords\x1b[0m") * 7).encode(),
    "json-of-few-letters": b'{"a": 1}' * 100,
    "json-of-few-letters-and-longer": b'{"a": 1}\n' * 1000,
    "json": json.dumps({"tokens": TOKENS.tolist()}).encode(),
    "jsonl": LINES.encode(),
    "csv": "".join(f"{i},{i * i},{i / 7:.3f}\n" for i in range(60)).encode(),
}

if __name__ == "__main__":
    shutil.rmtree(HERE, ignore_errors=True)
    HERE.mkdir()
    for name, content in BIN.items():
        (HERE / f"{name}.bin").write_bytes(content)
    netcdf(HERE / "netcdf.bin")
    database(HERE / "sqlite.bin")
    for version in (2, 3):
        zarr.save_array(HERE / f"zarr-{version}.bin", TOKENS.reshape(20, 15), zarr_format=version)

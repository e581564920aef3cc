"""Has the peers write token files, and say what is in them: the oracle for our own parsers.

The files and the peers' answers (tokens.txt: name, format, dtype, documents) are checked in; this says how
they were made. A document is its tokens, joined by commas; "-" is an empty one. Formats that know no
documents have one line of tokens. Needs NumPy, torch, megatron-core and datatrove: python3 make_tokens.py
"""

import logging
import shutil
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from datatrove.io import get_datafolder
from datatrove.pipeline.tokens.megatron_tokenizer import MegatronTokenizedFile
from datatrove.pipeline.tokens.merger import load_doc_ends
from datatrove.pipeline.tokens.tokenizer import TokenizedFile
from datatrove.utils.dataset import DatatroveFileDataset
from megatron.core.datasets.indexed_dataset import IndexedDataset, IndexedDatasetBuilder

HERE = Path(__file__).parent
RNG = np.random.default_rng(0)


def documents(dtype, lengths=(5, 1, 9, 3)):
    """Tokens of every size that the type has; the last of each document is its largest."""
    top = np.iinfo(dtype).max
    for n in lengths:
        tokens = RNG.integers(0, min(top, 1 << 40), n, dtype=dtype, endpoint=True)
        if n:
            tokens[-1] = top
        yield tokens


# Megatron


def megatron(folder, name, dtype, sequences, modes=None):
    """`sequences`: for each document a list of arrays."""
    prefix = str(folder / name)
    builder = IndexedDatasetBuilder(f"{prefix}.bin", dtype=dtype, multimodal=modes is not None)
    for document in sequences:
        for sequence in document:
            builder.add_item(torch.from_numpy(sequence.astype(np.int64)), mode=modes or 0)
        builder.end_document()
    builder.finalize(f"{prefix}.idx")
    return ask_megatron(prefix, modes is not None)


def ask_megatron(prefix, multimodal=False):
    dataset = IndexedDataset(prefix, multimodal=multimodal, mmap=False)  # an empty file cannot be mapped
    ends = dataset.document_indices
    answers = []
    for start, end in pairwise(ends):
        parts = [dataset.get(i) for i in range(start, end)]
        parts = [part[0] if multimodal else part for part in parts]
        answers.append(np.concatenate(parts) if parts else np.empty(0, dataset.index.dtype))
    return "megatron", np.dtype(dataset.index.dtype), answers


def by_megatron(folder):
    for dtype in [np.uint8, np.int8, np.int16, np.int32, np.int64, np.uint16]:
        name = np.dtype(dtype).name
        yield f"{name}.bin", megatron(folder, name, dtype, [[d] for d in documents(dtype)])
    parts = [list(documents(np.uint16, lengths)) for lengths in [(3, 4), (7,), (2, 0, 5)]]
    yield "sequences.bin", megatron(folder, "sequences", np.uint16, parts)
    yield "modes.bin", megatron(folder, "modes", np.uint16, parts, modes=3)
    empty = [list(documents(np.int32, lengths)) for lengths in [(), (4,), (), (), (0,), (2,), ()]]
    yield "empty-documents.bin", megatron(folder, "empty-documents", np.int32, empty)
    yield "empty.bin", megatron(folder, "empty", np.int32, [])
    merged = IndexedDatasetBuilder(str(folder / "merged.bin"), dtype=np.uint16)
    for name in ["sequences", "uint16"]:
        merged.add_index(str(folder / name))
    merged.finalize(str(folder / "merged.idx"))
    yield "merged.bin", ask_megatron(str(folder / "merged"))
    for size in [2, 4]:
        file = MegatronTokenizedFile(str(folder), f"by-datatrove-{size}", token_size=size)
        for tokens in documents(np.uint16 if size == 2 else np.int32):
            file.write(tokens.tolist())
        file.close()
        yield f"by-datatrove-{size}.bin", ask_megatron(str(folder / f"by-datatrove-{size}"))


# datatrove


def ask_datatrove(folder, name, size):
    path = folder / name
    count = path.stat().st_size // size
    tokens = np.empty(0, np.uint64)
    if count:
        window = DatatroveFileDataset(str(path), seq_len=count - 1, token_size=size)
        tokens = window[0]["input_ids"].numpy()
    dtype = np.dtype(f"<u{size}")
    if not (folder / f"{name}.index").exists():
        return "datatrove", dtype, [tokens]
    ends = load_doc_ends(get_datafolder(str(folder)).open(f"{name}.index", "rb")).tolist()
    return "datatrove", dtype, [tokens[a:b] for a, b in pairwise([0, *ends])]


def by_datatrove(folder):
    for size, dtype in [(2, np.uint16), (4, np.uint32)]:
        settings = {"token_size": size, "save_final_metadata": True, "tokenizer_name_or_path": "gpt|2"}
        file = TokenizedFile(str(folder), f"u{size}.ds", **settings)
        for tokens in documents(dtype):
            file.write(tokens.tolist(), None)
        file.close()
        yield f"u{size}.ds", ask_datatrove(folder, f"u{size}.ds", size)
        shuffled = file.copy(f"shuffled-{size}", np.array([2, 0, 3, 1]))
        yield shuffled.filename, ask_datatrove(folder, shuffled.filename, size)
        # Without metadata the width follows from the index; without an index the metadata says it.
        for name, index in [(f"no-metadata-{size}.ds", True), (f"no-index-{size}.ds", False)]:
            keep = {"save_index": index, "save_final_metadata": not index}
            file = TokenizedFile(str(folder), name, **settings | keep)
            for tokens in documents(dtype):
                file.write(tokens.tolist(), None)
            file.close()
            yield name, ask_datatrove(folder, name, size)
    file = TokenizedFile(str(folder), "no-tokenizer.ds", save_final_metadata=True)
    for tokens in documents(np.uint16, (0, 3, 0, 0)):
        file.write(tokens.tolist(), None)
    file.close()
    yield "no-tokenizer.ds", ask_datatrove(folder, "no-tokenizer.ds", 2)
    TokenizedFile(str(folder), "empty.ds", save_final_metadata=True).close()
    yield "empty.ds", ask_datatrove(folder, "empty.ds", 2)


# llm.c: no package, so its dev/data/data_common.py (write_datafile) and modded-nanogpt's reader, written out.


def by_llmc(folder):
    for magic, version_, dtype in [(20240520, 1, np.uint16), (20240801, 7, np.uint32)]:
        for count in [0, 600]:
            header = np.zeros(256, dtype=np.int32)
            header[0], header[1], header[2] = magic, version_, count
            tokens = np.array([t for d in documents(dtype, (count,)) for t in d], dtype=dtype)
            name = f"{np.dtype(dtype).name}-{count}.bin"
            with open(folder / name, "wb") as f:
                f.write(header.tobytes())
                f.write(tokens.tobytes())
            header = torch.from_file(str(folder / name), False, 256, dtype=torch.int32)
            with (folder / name).open("rb", buffering=0) as f:
                read = torch.empty(int(header[2]), dtype=getattr(torch, np.dtype(dtype).name))
                f.seek(256 * 4)
                assert f.readinto(read.numpy()) == np.dtype(dtype).itemsize * int(header[2])
            yield name, ("llmc", np.dtype(dtype), [read.numpy()])


# NumPy: nanoGPT's memmap, and .npy.


def by_numpy(folder):
    tokens = next(documents(np.uint16, (300,)))
    written = np.memmap(folder / "train.bin", dtype=np.uint16, mode="w+", shape=(300,))
    written[:] = tokens
    written.flush()
    read = np.memmap(folder / "train.bin", dtype=np.uint16, mode="r")
    yield "train.bin", ("nanogpt", np.dtype("<u2"), [read])
    for kind in ["u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8"]:
        for order, mark in [("little", "<"), ("big", ">")] if kind[1] != "1" else [("one", "|")]:
            tokens = next(documents(np.dtype(kind).type, (40,))).astype(mark + kind)
            name = f"{order}-{kind}.npy"
            np.save(folder / name, tokens)
            yield name, ("npy", np.dtype(mark + kind), [np.load(folder / name, mmap_mode="r")])
    np.save(folder / "empty.npy", np.empty(0, np.uint16))
    yield "empty.npy", ("npy", np.dtype("<u2"), [np.load(folder / "empty.npy")])


def line(name, answer):
    kind, dtype, found = answer
    shown = [",".join(str(int(token)) for token in tokens) or "-" for tokens in found]
    return "\t".join([name, kind, dtype.str, " ".join(shown)])


PEERS = {"megatron": by_megatron, "datatrove": by_datatrove, "llmc": by_llmc, "numpy": by_numpy}

if __name__ == "__main__":
    logging.disable()
    shutil.rmtree(HERE / "tokens", ignore_errors=True)
    peers = " ".join(f"{name} {version(name)}," for name in ["megatron-core", "datatrove", "torch", "numpy"])
    lines = [f"# by {peers[:-1]}"]
    for name, write in PEERS.items():
        folder = HERE / "tokens" / name
        folder.mkdir(parents=True)
        lines += [line(f"{name}/{file}", answer) for file, answer in write(folder)]
    (HERE / "tokens.txt").write_text("\n".join(lines) + "\n")
    print(f"{len(lines) - 1} files {lines[0][2:]}")

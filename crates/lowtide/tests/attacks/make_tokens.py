"""Writes the attacks on the token formats beside this script, each a file (or a few) with one thing wrong.

The files are checked in; this says how each was made. Needs only Python: python3 make_tokens.py
What Lowtide answers to each is in llmc.txt, megatron.txt, datatrove.txt and headerless.txt. Attacks called
forced-… are opened with format= the name of their folder, all others without a word.
"""

import shutil
import struct
from pathlib import Path

HERE = Path(__file__).parent
BIG = 1 << 62


# llm.c: 1,024 bytes of header, then tokens.


def llmc(magic=20240520, version=1, count=4, data=bytes(8), rest=bytes(1012)):
    return {".bin": struct.pack("<3i", magic, version, count) + rest + data}


LLMC = {
    "cut-after-magic": {".bin": llmc()[".bin"][:4]},
    "cut-in-header": {".bin": llmc()[".bin"][:1020]},
    "cut-before-tokens": llmc(data=b""),
    "cut-in-tokens": llmc(data=bytes(6)),
    "cut-in-a-token": llmc(data=bytes(7)),
    "cut-in-tokens-uint32": llmc(20240801, 7, 4, bytes(12)),
    "more-tokens": llmc(data=bytes(10)),
    "two-shards-in-one-file": {".bin": 2 * llmc()[".bin"]},
    "tokens-of-uint32": llmc(data=bytes(16)),
    "count-negative": llmc(count=-4),
    "count-least": llmc(count=-(1 << 31)),
    "count-most": llmc(count=(1 << 31) - 1),
    "version-0": llmc(version=0),
    "version-of-the-other": llmc(version=7),
    "version-of-the-other-uint32": llmc(20240801, 1, 4, bytes(16)),
    "not-called-bin": {".tokens": llmc(count=5)[".bin"]},
    "forced-empty": {".bin": b""},
    "forced-cut-in-magic": {".bin": b"\x88\xd8"},
    "forced-raw": {".bin": bytes(range(256)) * 8},
    "forced-big-endian": {".bin": struct.pack(">3i", 20240520, 1, 4) + bytes(1020)},
    "forced-cut-in-tokens": llmc(data=bytes(6)),
}


# Megatron: an index of three arrays, and the tokens.


def megatron(
    lengths=(3, 2, 4),
    pointers=None,
    ends=(0, 1, 3),
    code=8,
    version=1,
    magic=b"MMIDIDX\0\0",
    sequences=None,
    entries=None,
    data=bytes(18),
    after=b"",
    cut=None,
):
    """`sequences` and `entries` lie about the lengths of the arrays."""
    if pointers is None:
        pointers = [2 * sum(lengths[:i]) for i in range(len(lengths))]
    index = magic + struct.pack("<QB", version, code)
    index += struct.pack("<Q", len(lengths) if sequences is None else sequences)
    index += struct.pack("<Q", len(ends) if entries is None else entries)
    index += struct.pack(f"<{len(lengths)}i", *lengths) + struct.pack(f"<{len(pointers)}q", *pointers)
    index += struct.pack(f"<{len(ends)}q", *ends) + after
    return {".idx": index[:cut], ".bin": data}


FAIRSEQ = b"MMIDIDX\0\0" + struct.pack("<QBQ", 1, 8, 2) + struct.pack("<2i2q", 3, 2, 0, 6)

MEGATRON = {
    # The index is something else, or ends too soon.
    "empty-index": megatron(cut=0),
    "somebody-elses-index": {".idx": b"offset,length\n0,18\n" + bytes(40), ".bin": bytes(18)},
    "terminal-escape": {".idx": b"\x1b[31mred\x07" + bytes(40), ".bin": bytes(18)},
    "fairseq-old": {".idx": b"TNTIDX\0\0" + bytes(60), ".bin": bytes(18)},
    "fairseq": {".idx": FAIRSEQ, ".bin": bytes(10)},
    "cut-in-magic": megatron(cut=5),
    "cut-in-header": megatron(cut=33),
    "cut-in-lengths": megatron(cut=40),
    "cut-in-documents": megatron(cut=-1),
    "forced-no-index": {".bin": bytes(18)},
    "forced-not-called-bin": {".dat": bytes(18)},
    # The header lies.
    "version-0": megatron(version=0),
    "version-2": megatron(version=2),
    "version-huge": megatron(version=(1 << 64) - 1),
    "code-0": megatron(code=0),
    "code-9": megatron(code=9),
    "code-float32": megatron(code=7),
    "code-float64": megatron(code=6),
    "sequences-more": megatron(sequences=4),
    "sequences-less": megatron(sequences=2),
    "sequences-huge": megatron(sequences=BIG),
    "sequences-wrap": megatron(sequences=(1 << 64) // 4 + 3),
    "sequences-most": megatron(sequences=(1 << 64) - 1, entries=(1 << 64) - 1),
    "documents-more": megatron(entries=4),
    "documents-huge": megatron(entries=BIG),
    "documents-none": megatron(lengths=(), ends=(), data=b""),
    "trailing-byte": megatron(after=b"\0"),
    "half-of-the-modes": megatron(after=b"\0\0"),
    # The tokens do not fit.
    "data-cut": megatron(data=bytes(16)),
    "data-empty": megatron(data=b""),
    "data-odd": megatron(data=bytes(19)),
    "data-is-an-index": {".bin": megatron()[".idx"]},
    "last-length-negative": megatron(lengths=(3, 2, -1), pointers=(0, 6, 10)),
    "last-pointer-negative": megatron(pointers=(0, 6, -(1 << 31))),
    "last-pointer-huge": megatron(pointers=(0, 6, (1 << 63) - 2)),
    "last-pointer-between-tokens": megatron(pointers=(0, 6, 9)),
    # Seen when documents are asked for.
    "documents-begin-late": megatron(ends=(1, 2, 3)),
    "documents-end-early": megatron(ends=(0, 1, 2)),
    "documents-forgotten": megatron(ends=(0,)),
    "documents-past-the-end": megatron(ends=(0, 4, 3)),
    "documents-backwards": megatron(ends=(0, 2, 1, 3)),
    "documents-negative": megatron(ends=(0, -1, 3)),
    "sequences-scattered": megatron(lengths=(3, 2, 4), pointers=(0, 12, 6), ends=(0, 3)),
    "sequences-overlap": megatron(pointers=(0, 4, 10), ends=(0, 3)),
    "length-negative": megatron(lengths=(3, -2, 4), pointers=(0, 6, 10)),
    "pointer-negative": megatron(pointers=(0, -6, 10)),
    "pointer-past-the-end": megatron(pointers=(0, 16, 10)),
    "pointer-between-tokens": megatron(pointers=(0, 7, 10)),
}


# datatrove: tokens, ends of documents, and a text.


def datatrove(ends=(2, 3, 6), metadata=b"gpt2|2\n6\n6 T", data=bytes(12), tail=b""):
    files = {".ds": data}
    if ends is not None:
        files[".ds.index"] = struct.pack(f"<{len(ends)}Q", *ends) + tail
    if metadata is not None:
        files[".ds.metadata"] = metadata
    return files


DATATROVE = {
    "nothing-beside-it": datatrove(None, None),
    "metadata-without-width": datatrove(None, b"gpt2\n6"),
    "metadata-empty": datatrove(None, b""),
    "metadata-width-0": datatrove(metadata=b"gpt2|0"),
    "metadata-width-3": datatrove(metadata=b"gpt2|3"),
    "metadata-width-8": datatrove(metadata=b"gpt2|8"),
    "metadata-width-negative": datatrove(metadata=b"gpt2|-2"),
    "metadata-width-huge": datatrove(metadata=b"gpt2|" + b"9" * 9000),
    "metadata-width-a-word": datatrove(metadata=b"gpt2|two\n6"),
    "metadata-width-nothing": datatrove(metadata=b"gpt2|\n2"),
    "metadata-terminal-escape": datatrove(metadata=b"gpt2|\x1b[31m2\x07"),
    "metadata-not-utf-8": datatrove(metadata=b"gpt2|\xff\xfe"),
    "metadata-of-another": datatrove(metadata=b"llama|4"),
    "data-odd": datatrove(data=bytes(13)),
    "data-cut": datatrove(data=bytes(10)),
    "data-empty": datatrove(data=b""),
    "index-cut": datatrove(tail=b"\x06\0\0\0"),
    "index-empty": datatrove(()),
    "index-fits-no-width": datatrove(metadata=None, data=bytes(16)),
    "index-fits-both-widths": datatrove((), None, b""),
    "index-short": datatrove((2, 3, 5)),
    "index-long": datatrove((2, 3, 7)),
    "index-huge": datatrove((2, 3, (1 << 64) - 1), None),
    "index-wraps": datatrove((2, 3, (1 << 63) + 6), None),
    # Seen when documents are asked for.
    "end-backwards": datatrove((4, 3, 6)),
    "end-past-the-end": datatrove((2, 7, 6)),
    "end-huge": datatrove(((1 << 64) - 1, 3, 6)),
}


# Files without a header, and .npy of something else.


def npy(descr="'<u2'", shape="(4,)", data=bytes(8), order="False"):
    text = f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}".encode()
    text += b" " * (-(11 + len(text)) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + data


HEADERLESS = {
    "odd": {".bin": bytes(7)},
    "one-byte": {".bin": b"\0"},
    "no-dtype": {".u32": bytes(8)},
    "no-dtype-and-empty": {".tokens": b""},
    "olmo": {".npy": bytes(range(16))},
    "olmo-empty": {".npy": b""},
    "npy-of-floats": {".npy": npy("'<f4'", data=bytes(16))},
    "npy-of-bools": {".npy": npy("'|b1'", data=bytes(4))},
    "npy-of-complex": {".npy": npy("'<c8'", data=bytes(32))},
    "npy-of-objects": {".npy": npy("'|O'", data=bytes(32))},
    "npy-of-records": {".npy": npy("[('a', '<u2')]")},
    "npy-of-no-axes": {".npy": npy(shape="()", data=bytes(2))},
    "npy-of-two-axes": {".npy": npy(shape="(2, 2)")},
    "npy-of-one-column": {".npy": npy(shape="(4, 1)", order="True")},
    "npy-cut": {".npy": npy(data=bytes(7))},
    "npy-cut-in-header": {".npy": npy()[:40]},
    "npy-cut-after-magic": {".npy": npy()[:6]},
    "npy-longer": {".npy": npy(data=bytes(9))},
    "npy-damaged": {".npy": npy(shape="(4")},
    "npy-damaged-and-called-bin": {".bin": npy(shape="(4")},
    "npy-version-9": {".npy": b"\x93NUMPY\x09\x00" + npy()[8:]},
}


if __name__ == "__main__":
    attacks = {"llmc": LLMC, "megatron": MEGATRON, "datatrove": DATATROVE, "headerless": HEADERLESS}
    for name, files in attacks.items():
        shutil.rmtree(HERE / name, ignore_errors=True)
        (HERE / name).mkdir()
        for stem, parts in files.items():
            for end, content in parts.items():
                (HERE / name / f"{stem}{end}").write_bytes(content)

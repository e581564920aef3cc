"""Writes the attacks on the .npy format beside this script, each a file with one thing wrong.

The files are checked in; this says how each was made. Needs only Python: python3 make_npy.py
What Lowtide answers to each of them is in npy.txt.
"""

import struct
from pathlib import Path

HERE = Path(__file__).parent / "npy"
GOOD = "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }"
DATA = bytes(48)


def header(text, version=1, length=None, encoding="latin1"):
    """Magic, version, length and text, padded as NumPy does; `length` lies about the length."""
    text = text.encode(encoding) if isinstance(text, str) else text
    start = 10 if version == 1 else 12
    text = text + b" " * (-(start + len(text) + 1) % 64) + b"\n"
    size = struct.pack("<H" if version == 1 else "<I", len(text) if length is None else length)
    return b"\x93NUMPY" + bytes([version, 0]) + size + text


def of(descr="'<f4'", fortran_order="False", shape="(3, 4)", **more):
    text = f"{{'descr': {descr}, 'fortran_order': {fortran_order}, 'shape': {shape}, }}"
    return header(text, **more) + DATA


ATTACKS = {
    # The file ends too soon, or is something else.
    "empty": b"",
    "cut-in-magic": b"\x93NUM",
    "cut-before-version": b"\x93NUMPY",
    "cut-in-version": b"\x93NUMPY\x01",
    "cut-in-length-v1": b"\x93NUMPY\x01\x00\x76",
    "cut-in-length-v2": b"\x93NUMPY\x02\x00\x76\x00\x00",
    "cut-in-header": header(GOOD)[:40],
    "cut-in-data": header(GOOD) + DATA[:-1],
    "no-data": header(GOOD),
    "trailing-byte": header(GOOD) + DATA + b"\0",
    "two-arrays-in-one-file": 2 * (header(GOOD) + DATA),
    "trailing-bytes-fortran": of(fortran_order="True") + b"more",
    "wrong-magic": b"\x93NUMPI\x01\x00" + header(GOOD)[8:] + DATA,
    "zip": b"PK\x03\x04\x14\0" + bytes(20) + b"\x05\0\0\0x.npy" + bytes(29),
    "gzip": b"\x1f\x8b\x08\x00" + bytes(60),
    "pickle": b"\x80\x04\x95\x35" + bytes(60),
    "headerless": bytes(range(64)),
    # The prefix lies.
    "version-0": b"\x93NUMPY\x00\x00" + header(GOOD)[8:] + DATA,
    "version-4": b"\x93NUMPY\x04\x00" + header(GOOD, version=2)[8:] + DATA,
    "version-1.1": b"\x93NUMPY\x01\x01" + header(GOOD)[8:] + DATA,
    "header-of-4-gib": header(GOOD, version=2, length=0xFFFFFFFF) + DATA,
    "header-longer-than-file": header(GOOD, length=0xFFFF) + DATA,
    "header-into-data": header(GOOD, length=len(header(GOOD)) - 10 + 8) + DATA,
    "header-too-short": header(GOOD, length=40) + DATA,
    "header-of-nothing": header(GOOD, length=0) + DATA,
    "header-in-utf-8-that-is-not": header(b"{'descr': '\xff", version=3) + DATA,
    # The dict is none, or not this one.
    "not-a-dict": header("['descr', 'fortran_order', 'shape']") + DATA,
    "spaces": header("") + DATA,
    "zeros": header(bytes(53)) + DATA,
    "no-closing-brace": header(GOOD[:-1]) + DATA,
    "text-after-dict": header(GOOD + " + {}") + DATA,
    "comment": header(GOOD + " # (3, 4)") + DATA,
    "code": header("__import__('os').system('touch pwned')") + DATA,
    "code-as-shape": of(shape="(lambda: (3, 4))()"),
    "key-missing-descr": header("{'fortran_order': False, 'shape': (3, 4)}") + DATA,
    "key-missing-order": header("{'descr': '<f4', 'shape': (3, 4)}") + DATA,
    "key-missing-shape": header("{'descr': '<f4', 'fortran_order': False}") + DATA,
    "key-twice": header("{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), 'shape': (2,)}") + DATA,
    "key-unknown": header("{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), 'allow_pickle': True}")
    + DATA,
    "key-unquoted": header("{descr: '<f4', 'fortran_order': False, 'shape': (3, 4)}") + DATA,
    "key-without-colon": header("{'descr' '<f4', 'fortran_order': False, 'shape': (3, 4)}") + DATA,
    "string-never-closed": header("{'descr': '<f4, fortran_order: False, shape: (3, 4), }") + DATA,
    "string-bad-escape": of(descr=r"'<f\q'"),
    "brackets-deep": of(descr="[" * 1000),
    # The shape is none, or cannot be.
    "shape-negative": of(shape="(-3, 4)"),
    "shape-minus-one": of(shape="(-1,)"),
    "shape-number": of(shape="12"),
    "shape-number-in-brackets": of(shape="(12)"),
    "shape-list": of(shape="[3, 4]"),
    "shape-float": of(shape="(3.0, 4)"),
    "shape-hex": of(shape="(0x3, 4)"),
    "shape-true": of(shape="(True, 4)"),
    "shape-nested": of(shape="((3, 4),)"),
    "shape-beyond-64-bits": of(shape="(18446744073709551616,)"),
    "shape-of-1000-digits": of(shape=f"({'9' * 1000},)"),
    "shape-product-overflows": of(shape="(4294967296, 4294967296)"),
    "shape-product-wraps-to-12": of(shape="(1152921504606846977, 12)"),
    "shape-overflows-beside-zero": of(shape="(0, 9223372036854775807, 9223372036854775807)"),
    "shape-bytes-overflow": of(shape="(4611686018427387904,)"),
    "shape-larger-than-file": of(shape="(1099511627776,)"),
    "shape-end-overflows": of(shape="(2305843009213693951,)"),
    "shape-of-65-axes": of(shape="(" + "1, " * 65 + ")"),
    "order-number": of(fortran_order="0"),
    "order-text": of(fortran_order="'False'"),
    # The elements are none that can be read.
    "dtype-object": of(descr="'|O'"),
    "dtype-structured": of(descr="[('x', '<f4'), ('y', '<i8', (2,))]"),
    "dtype-structured-word": of(descr="'<f4,<i8'"),
    "dtype-structured-latin": of(descr="[('caf\xe9', '<f4')]"),
    "dtype-structured-utf-8": of(descr="[('\u6f6e', '<f4')]", version=3, encoding="utf-8"),
    "dtype-hides-an-object": of(descr="[('x', '|O')]"),
    "dtype-sub-array": of(descr="('<f4', (3,))"),
    "dtype-sub-array-word": of(descr="'(3,)<f4'"),
    "dtype-void": of(descr="'|V7'"),
    "dtype-bfloat16-as-void": of(descr="'<V2'"),
    "dtype-string": of(descr="'<U12'"),
    "dtype-date": of(descr="'<M8[ns]'"),
    "dtype-long-double": of(descr="'<f16'"),
    "dtype-of-no-size": of(descr="'<f0'"),
    "dtype-unknown": of(descr="'<q9'"),
    "dtype-empty": of(descr="''"),
    "dtype-number": of(descr="4"),
    "dtype-escaped-terminal": of(descr=r"'\x1b[31m'"),
    "dtype-right-to-left": of(descr="'\u202e4f<'", version=3, encoding="utf-8"),
}

if __name__ == "__main__":
    for old in HERE.glob("*.npy"):
        old.unlink()
    for name, content in ATTACKS.items():
        assert len(content) < 4096, name
        (HERE / f"{name}.npy").write_bytes(content)
    print(f"{len(ATTACKS)} attacks in {HERE}")

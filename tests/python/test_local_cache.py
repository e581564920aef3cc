"""``lowtide cache`` of a folder that is written here, byte by byte, as docs/cache.md describes it."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys

import pytest

COMMAND = [sys.executable, "-m", "lowtide", "cache"]
SIZE = 30 << 20
SLOT = 4 << 20
SLOTS = 7


def crc32c(data: bytes) -> int:
    """Give the checksum, bit by bit: the definition and not a library."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def entry(stamp: int, block: int, content: bytes, address: bytes) -> bytes:
    """Give an entry of the index."""
    units = [content[at : at + (64 << 10)] for at in range(0, len(content), 64 << 10)]
    sums = [crc32c(unit) if len(unit) < 100 else 0 for unit in units] + [0] * (64 - len(units))
    head = bytes(32) + struct.pack("<QQI", block, stamp, len(content)) + struct.pack("<64I", *sums)
    head = (head + bytes([len(address)]) + address).ljust(508, b"\0")
    return head + struct.pack("<I", crc32c(head))


@pytest.fixture
def made(tmp_path):
    """A cache with two blocks of one object, one of another, and an entry whose stamp is an old one."""
    dir = tmp_path / "cache"
    dir.mkdir()
    (dir / "CACHEDIR.TAG").write_text(
        "Signature: 8a477f597d28d172789f06886806bc55\n"
        f"# lowtide cache, version 1: size {SIZE}, slots of {SLOT}\n"
    )
    index = bytearray(4096 * 2 + 512 * SLOTS)
    index[:32] = b"lowtide cache index, version 1\n\n"
    index[32:40] = struct.pack("<Q", SLOTS)
    index[128:160] = struct.pack("<4Q", 3_000, 1_000, 5, 2)
    slots = [(11, 0, bytes(SLOT)), (12, 1, bytes(50)), (13, 0, bytes(60)), (14, 7, bytes(70))]
    for slot, (stamp, block, content) in enumerate(slots):
        record = struct.pack("<QQQQ", 99 if stamp == 14 else stamp, 0, block, 0)
        index[4096 + 32 * slot : 4096 + 32 * slot + 32] = record
        at = 8192 + 512 * slot
        index[at : at + 512] = entry(stamp, block, content, b"s3://bucket/a.bin")
    (dir / "index").write_bytes(index)
    return dir


def run(*arguments):
    return subprocess.run([*COMMAND, *map(str, arguments)], capture_output=True, text=True)


def test_a_cache_is_what_the_page_says(made):
    answer = run(made, "--json")
    assert answer.returncode == 0, answer.stderr
    shown = json.loads(answer.stdout)
    assert (shown["size"], shown["slots"], shown["slot_size"]) == (SIZE, SLOTS, SLOT)
    assert (shown["blocks"], shown["bytes"]) == (3, SLOT + 110)
    assert (shown["hit_bytes"], shown["fetched_bytes"]) == (3_000, 1_000)
    assert (shown["stored_blocks"], shown["evicted_blocks"]) == (5, 2)
    assert shown["objects"] == [{"address": "s3://bucket/a.bin", "blocks": 3, "bytes": SLOT + 110}]
    # The room is set aside now, as the system sees it, and not a byte more than the size.
    taken = sum(os.stat(path).st_blocks * 512 for path in [made, *made.iterdir()])
    assert SIZE - SLOT < taken <= SIZE
    assert shown["on_disk"] == taken
    assert "(75 % from it)" in run(made).stdout


def test_it_is_emptied_and_taken_away(made):
    mine = made / "mine.txt"
    mine.write_text("not a cache's")
    assert "emptied; it held 4 MiB, 3 blocks" in run(made, "--clear").stdout
    assert json.loads(run(made, "--json").stdout)["blocks"] == 0
    assert "other files" in run(made, "--remove").stdout
    assert [path.name for path in made.iterdir()] == ["mine.txt"]
    assert mine.read_text() == "not a cache's"


@pytest.mark.parametrize("flags", [[], ["--clear"], ["--remove"], ["--json"]])
def test_a_folder_that_is_no_cache_is_refused(tmp_path, flags):
    (tmp_path / "data").write_text("mine")
    answer = run(tmp_path, *flags)
    assert answer.returncode == 2
    assert "not a local cache, and not empty: it holds data" in answer.stderr
    assert (tmp_path / "data").read_text() == "mine"
    assert run(tmp_path / "none", *flags).returncode == 1
    assert not (tmp_path / "none").exists()

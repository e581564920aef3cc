"""The permutation again, written from its description and not from its code.

Prints the golden values of src/order/permutation/tests.rs: `python3 permutation.py`. Needs nothing but
Python, so BLAKE3 is here too, as far as a single block of input needs it.
"""

import math
import struct

MASK = 2**64 - 1
IV = [0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A, 0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19]
SHUFFLE = [2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8]
ONLY_BLOCK = 1 | 2  # CHUNK_START, CHUNK_END
ROOT, DERIVE_KEY_CONTEXT, DERIVE_KEY_MATERIAL = 8, 32, 64


def compress(chain, block, counter, flags):
    """BLAKE3's compression of one block of at most 64 bytes, to sixteen words."""
    words = list(struct.unpack("<16I", block.ljust(64, b"\0")))
    v = chain + IV[:4] + [counter & 0xFFFFFFFF, counter >> 32, len(block), flags]

    def rotate(x, by):
        return (x >> by | x << (32 - by)) & 0xFFFFFFFF

    def mix(a, b, c, d, x, y):
        for word, one, other in ((x, 16, 12), (y, 8, 7)):
            v[a] = (v[a] + v[b] + word) & 0xFFFFFFFF
            v[d] = rotate(v[d] ^ v[a], one)
            v[c] = (v[c] + v[d]) & 0xFFFFFFFF
            v[b] = rotate(v[b] ^ v[c], other)

    for _ in range(7):
        for i in range(4):
            mix(i, 4 + i, 8 + i, 12 + i, words[2 * i], words[2 * i + 1])
        for i in range(4):
            mix(i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4, words[8 + 2 * i], words[9 + 2 * i])
        words = [words[i] for i in SHUFFLE]
    return [v[i] ^ v[i + 8] for i in range(8)] + [v[i + 8] ^ chain[i] for i in range(8)]


def bits(purpose, *numbers):
    """64-bit numbers without end: BLAKE3 in its key derivation mode, read as little-endian."""
    key = compress(IV, purpose.encode(), 0, ONLY_BLOCK | ROOT | DERIVE_KEY_CONTEXT)[:8]
    block = struct.pack(f"<{len(numbers)}Q", *numbers)
    counter = 0
    while True:
        out = compress(key, block, counter, ONLY_BLOCK | ROOT | DERIVE_KEY_MATERIAL)
        yield from struct.unpack("<8Q", struct.pack("<16I", *out))
        counter += 1


def below(stream, bound):
    """Lemire's unbiased draw."""
    while True:
        product = next(stream) * bound
        if product % 2**64 >= 2**64 % bound:
            return product >> 64


def permutation(length, seed, epoch):
    """A function from position to row."""
    stream = bits("lowtide order permutation v1", length, seed, epoch)
    if length < 65_536:
        rows = list(range(length))
        for last in range(length - 1, 0, -1):
            other = below(stream, last + 1)
            rows[last], rows[other] = rows[other], rows[last]
        return rows.__getitem__
    height = math.isqrt(length - 1) + 1
    width = -(-length // height)
    keys = [next(stream) for _ in range(8)]

    def distance(coordinate, key, size):
        x = (coordinate ^ key) * 0xBF58476D1CE4E5B9 & MASK
        x = (x ^ x >> 32) * 0x94D049BB133111EB & MASK
        return x * size >> 64

    def row(cell):
        while True:
            line, column = divmod(cell, width)
            for key_of_line, key_of_column in zip(keys[::2], keys[1::2], strict=True):
                line = (line + distance(column, key_of_line, height)) % height
                column = (column + distance(line, key_of_column, width)) % width
            cell = line * width + column
            if cell < length:
                return cell

    return row


CASES = [
    (6, 0, 0, 0),
    (6, 0, 1, 0),
    (6, 1, 0, 0),
    (100, 42, 7, 94),
    (65_535, 0, 0, 0),
    (65_535, 2**64 - 1, 2**64 - 1, 65_529),
    (65_536, 0, 0, 0),
    (65_536, 0, 1, 0),
    (65_536, 1, 0, 0),
    (65_537, 1_337, 3, 65_531),
    (8_388_608, 42, 0, 4_194_301),
    (1_000_000_007, 2_026, 9, 999_999_999),
    (2**40 + 1, 2**64 - 1, 1, 2**39),
    (2**63, 2**63, 2**32, 2**63 - 6),
    (2**64 - 1, 0, 0, 2**64 - 7),
]

if __name__ == "__main__":
    for length, seed, epoch, start in CASES:
        row = permutation(length, seed, epoch)
        rows = [row(position) for position in range(start, start + 6)]
        print(f"({length:_}, {seed:_}, {epoch:_}, {start:_}, [{', '.join(f'{row:_}' for row in rows)}]),")

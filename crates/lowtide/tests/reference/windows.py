"""The cuts of epochs and the independent draws again, written from their description and not from their code.

Prints the golden values of src/order/windows.rs and src/order/draws.rs: `python3 windows.py`. Needs nothing
but Python; BLAKE3 is in permutation.py beside it.
"""

from permutation import below, bits

MASK = 2**64 - 1


def windows(tokens, block, seed, epoch):
    """How many windows there are, and where the first begins."""
    count = (tokens - block) // block
    return count, below(bits("lowtide order windows v1", tokens, block, seed, epoch), tokens - count * block)


def philox2x64(first, second, key):
    """Philox with two words of 64 bits and ten rounds, as published."""
    for _ in range(10):
        product = first * 0xD2B74407B1CE6E93
        first, second = product >> 64 ^ key ^ second, product & MASK
        key = key + 0x9E3779B97F4A7C15 & MASK
    return first, second


def draw(starts, seed, k):
    """The start that draw k gives: attempts are Lemire's, one after the other."""
    key = next(bits("lowtide order draws v1", starts, seed))
    return below((philox2x64(k, attempt, key)[0] for attempt in range(1_000)), starts)


WINDOWS = [
    (2, 1, 0, 0),
    (2_048, 1_024, 0, 0),
    (2_048, 1_024, 0, 1),
    (2_048, 1_024, 1, 0),
    (1_000_000, 1_024, 42, 7),
    (4_294_967_296, 1_024, 1_337, 3),
    (9_035_582_489, 1_024, 2**64 - 1, 2**64 - 1),
    (10**13 + 1, 8_192, 2_026, 11),
    (2**63, 2**62, 5, 6),
    (2**64 - 1, 2**63 - 1, 0, 0),
    (2**64 - 1, 3, 0, 0),
]

DRAWS = [
    (1, 0, 0),
    (6, 0, 0),
    (6, 1, 0),
    (7, 0, 0),
    (1_000_000, 42, 0),
    (1_000_000, 42, 12_000_000_000),
    (9_035_581_465, 1_337, 999_999_999_999),
    (2**40 + 1, 2**64 - 1, 2**39),
    (2**63 + 1, 0, 0),
    (3 * 2**62, 2**63, 2**63),
    (2**64 - 1, 2_026, 2**64 - 5),
]

if __name__ == "__main__":
    assert philox2x64(0, 0, 0) == (0xCA00A0459843D731, 0x66C24222C9A845B5)
    for case in WINDOWS:
        print(f"({', '.join(f'{number:_}' for number in case + windows(*case))}),")
    for starts, seed, first in DRAWS:
        drawn = [draw(starts, seed, first + i) for i in range(4)]
        print(f"({starts:_}, {seed:_}, {first:_}, [{', '.join(f'{start:_}' for start in drawn)}]),")

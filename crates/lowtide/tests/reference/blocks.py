"""The block shuffle again, in Python: the golden values of order/blocks/tests.rs."""

from math import isqrt

from blake3 import blake3

M = (1 << 64) - 1


class Bits:
    def __init__(self, h):
        self.h, self.at = h, 0

    @classmethod
    def new(cls, purpose, *numbers):
        return cls(blake3(b"".join(n.to_bytes(8, "little") for n in numbers), derive_key_context=purpose))

    @classmethod
    def keyed(cls, key, number):
        return cls(blake3(number.to_bytes(8, "little"), key=key))

    def bytes(self, n):
        out = self.h.digest(length=n, seek=self.at)
        self.at += n
        return out

    def next(self):
        return int.from_bytes(self.bytes(8), "little")

    def below(self, bound):
        while True:
            x = self.next() * bound
            if x & M >= (1 << 64) % bound:
                return x >> 64


def table(n, bits):
    rows = list(range(n))
    for last in range(n - 1, 0, -1):
        j = bits.below(last + 1)
        rows[last], rows[j] = rows[j], rows[last]
    return rows.__getitem__


def feistel(n, bits, rounds):
    height = isqrt(n - 1) + 1
    width = -(-n // height)
    keys = [bits.next() for _ in range(rounds)]

    def distance(c, key, size):
        h = ((c ^ key) * 0xBF58476D1CE4E5B9) & M
        h ^= h >> 32
        return (((h * 0x94D049BB133111EB) & M) * size) >> 64

    def get(p):
        while True:
            line, column = divmod(p, width)
            for r, key in enumerate(keys):
                if r % 2 == 0:
                    line = (line + distance(column, key, height)) % height
                else:
                    column = (column + distance(line, key, width)) % width
            p = line * width + column
            if p < n:
                return p

    return get


def outer(n, bits):
    return table(n, bits) if n < 65536 else feistel(n, bits, 8)


def inner(n, bits):
    return table(n, bits) if n < 256 else feistel(n, bits, 12 if n < 65536 else 8)


def blocks(n, seed, epoch, block_rows, buffer_blocks):
    count, rest = divmod(n, block_rows)
    mixes = max(1, -(-count // buffer_blocks))
    bits = Bits.new("lowtide order blocks v1", n, block_rows, buffer_blocks, seed, epoch)
    head = bits.below(rest + 1)
    takes = bits.below(mixes)
    key = bits.bytes(32)
    order = outer(count, bits)

    def first(mix):
        return mix * (count // mixes) + min(mix, count % mixes)

    def start(mix):
        return first(mix) * block_rows + (rest if mix > takes else 0)

    def get(position):
        low, high = 0, mixes  # the mix, by bisection
        while high - low > 1:
            mid = (low + high) // 2
            if start(mid) <= position:
                low = mid
            else:
                high = mid
        at = inner(start(low + 1) - start(low), Bits.keyed(key, low))(position - start(low))
        block, row = divmod(at, block_rows)
        if block < first(low + 1) - first(low):
            return head + order(first(low) + block) * block_rows + row
        at -= (first(low + 1) - first(low)) * block_rows
        return at if at < head else n - rest + at

    return get


for n, seed, epoch, size, begin in [
    (10, 0, 0, (3, 2), 0),
    (10, 0, 1, (3, 2), 0),
    (10, 1, 0, (3, 2), 0),
    (5, 7, 7, (8, 8), 0),
    (1_000, 42, 7, (7, 5), 496),
    (100_003, 0, 0, (64, 33), 50_000),
    (8_388_609, 42, 3, (512, 1_024), 4_194_301),
    (8_388_609, 42, 3, (512, 127), 4_193_000),
    (1_000_000_007, 2_026, 9, (128, 4_096), 999_999_999),
    ((1 << 40) + 1, M, 1, (1_000, 60), 1 << 39),
    (1 << 63, 1 << 63, 1 << 32, (1 << 20, 1 << 12), (1 << 63) - 6),
    (M, 0, 0, (3, M), M - 6),
]:
    get = blocks(n, seed, epoch, *size)
    count = min(n, 6)
    print(f"({n:_}, {seed:_}, {epoch:_}, {size}, {begin:_}, {[get(begin + i) for i in range(count)]}),")

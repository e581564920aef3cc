"""``blocks=``: every row once, resumed anywhere, read as whole blocks, and as random as it says."""

import json

import numpy as np
import pytest

import lowtide

BUDGET = 4 << 20


@pytest.fixture
def many(save):
    """Rows of 32 numbers, each the row's own: several mixes of the small budget."""
    return lambda rows: save(np.repeat(np.arange(rows, dtype="int32")[:, None], 32, axis=1))


@pytest.mark.parametrize("rows", [0, 1, 999, 1000, 65_537, 120_001])
@pytest.mark.parametrize("blocks", ["auto", 1, 7, 500, 1000])
@pytest.mark.parametrize("access", ["read", "direct", "auto"])
def test_every_row_comes_once(many, rows, blocks, access):
    if blocks == 1 and rows > 70_000:
        pytest.skip("nothing that 65,537 rows do not show")
    a = lowtide.open(many(rows), budget=BUDGET, access=access)
    seen = []
    for at, chunk in a.shuffled(1000, seed=3, blocks=blocks, with_rows=True):
        assert (chunk == at[:, None]).all()
        assert len(chunk) == min(1000, rows - sum(map(len, seen)))
        seen.append(at)
    seen = np.concatenate(seen) if seen else np.array([], dtype=int)
    assert (np.sort(seen) == np.arange(rows)).all()
    assert rows < 2 or (seen != np.arange(rows)).any()


def test_seeds_epochs_and_chunks_of_any_size(many):
    a = lowtide.open(many(50_000), budget=BUDGET)
    stream = {
        (seed, epoch): np.concatenate([c[:, 0] for c in a.shuffled(1000, seed, epoch=epoch, blocks=100)])
        for seed in (0, 1)
        for epoch in (0, 1)
    }
    agree = [(x == y).sum() for i, x in enumerate(stream.values()) for y in list(stream.values())[:i]]
    assert max(agree) < 100
    for chunk in (7, 4096, 20_000):  # smaller and larger than a mix
        again = np.concatenate([c[:, 0] for c in a.shuffled(chunk, blocks=100)])
        assert (again == stream[0, 0]).all()


def test_resumes_anywhere_under_other_ranks_and_another_budget(many):
    path = many(50_000)
    a = lowtide.open(path, budget=BUDGET)
    whole = np.concatenate([c[:, 0] for c in a.shuffled(1000, seed=5, blocks="auto")])
    it = a.shuffled(1000, seed=5, blocks="auto")
    for _ in range(13):
        next(it)
    state = json.loads(json.dumps(it.state_dict()))
    assert state["blocks"] == list(it.blocks)
    larger = lowtide.open(path, budget=4 * BUDGET)
    ranks = [larger.shuffled(500, rank=r, world_size=2) for r in range(2)]
    for rank in ranks:
        rank.load_state_dict(state)
    rest = np.concatenate([c[:, 0] for pair in zip(*ranks, strict=True) for c in pair])
    assert (rest == whole[13_000:]).all()


def test_a_block_is_read_once(many):
    """Bytes read stay near the file's size: the kernel's count for this process."""

    def read():
        with open("/proc/self/io") as lines:
            return int(next(line for line in lines if line.startswith("rchar")).split()[1])

    a = lowtide.open(many(120_000), budget=BUDGET, access="read")
    before = read()
    for _ in a.shuffled(1000, blocks=1000):
        pass
    assert read() - before < 1.5 * a.nbytes


@pytest.mark.parametrize("blocks", [16, 64, 256])
def test_the_predicted_spread_is_what_sorted_labels_show(save, blocks):
    """Shares of ten classes in batches of 1,024, over the shares' spread in a perfect shuffle."""
    rows, classes, batch = 200_000, 10, 1024
    labels = np.repeat(np.arange(classes, dtype="int32"), rows // classes)
    a = lowtide.open(save(np.repeat(labels[:, None], 32, axis=1)), budget=BUDGET)
    shares = []
    for seed in range(6):
        it = a.shuffled(batch, seed=seed, blocks=blocks, drop_last=True)
        shares += [np.bincount(c[:, 0], minlength=classes) / batch for c in it]
    perfect = np.sqrt(0.1 * 0.9 / batch * (rows - batch) / (rows - 1))
    measured = np.sqrt(((np.array(shares) - 0.1) ** 2).mean()) / perfect
    assert measured == pytest.approx(it.predicted_spread, rel=0.08)
    assert it.predicted_spread > 1
    assert a.shuffled(batch).predicted_spread == 1


def test_what_makes_no_sense(many):
    a = lowtide.open(many(1000), budget=BUDGET)
    for blocks in ("large", 0, -1, 1.5):
        with pytest.raises((ValueError, TypeError)):
            a.shuffled(10, blocks=blocks)
    with pytest.raises(MemoryError, match="mixing 1 blocks"):
        lowtide.open(many(100_000), budget=BUDGET).shuffled(10, blocks=90_000)

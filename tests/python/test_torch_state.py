"""The state of ``lowtide.torch.TokenDataset``, without workers and through torchdata's StatefulDataLoader."""

from __future__ import annotations

import json
import os
import pickle
import warnings
from types import SimpleNamespace

import pytest
from token_streams import starts

torch = pytest.importorskip("torch", reason="torch is not installed")
DataLoader = torch.utils.data.DataLoader

from torch_dataloaders import MARKS, through  # noqa: E402 (they need torch)

from lowtide.torch import TokenDataset  # noqa: E402

pytestmark = MARKS


@pytest.mark.parametrize("workers", [0, 2, 3])
@pytest.mark.parametrize("epochs", [1, 2])
def test_a_state_taken_without_workers_is_good_at_any_batch(counting, epochs, workers):
    tokens = counting(550)
    whole = [starts(loader) for loader in [tokens.loader(2, 50, epochs=epochs)] * 3]
    for stop in range(len(whole[0]) + 1):
        dataset = TokenDataset(tokens, 2, 50, epochs=epochs)
        seen = starts(through(dataset), stop)
        state = json.loads(json.dumps(dataset.state_dict()))
        resumed = TokenDataset(tokens, 2, 50, epochs=epochs, seed=99)
        resumed.load_state_dict(state)
        rest = starts(through(resumed, workers))
        following = starts(through(resumed, workers))
        if stop < len(whole[0]):
            assert [seen + rest, following] == whole[:2]
        else:  # after the last batch it stands at the next epochs
            assert [seen, rest, following] == whole


def test_the_parents_copy_does_not_know_where_workers_are(counting):
    tokens = counting(2_050)
    dataset = TokenDataset(tokens, 4, 50)
    beginning = dataset.state_dict()
    dataloader = through(dataset, 2)
    iterator = iter(dataloader)
    next(iterator)
    with pytest.raises(RuntimeError, match="StatefulDataLoader"):
        dataset.state_dict()
    first = starts(iterator)
    with pytest.raises(RuntimeError, match="StatefulDataLoader"):
        dataset.state_dict()
    assert starts(dataloader)[1:] != first
    dataset.load_state_dict(beginning)  # now it is known again
    assert dataset.state_dict() == beginning
    assert starts(dataloader)[1:] == first
    starts(dataset)
    assert dataset.state_dict()["epoch"] == 2


@pytest.mark.parametrize("workers", [1, 2])
def test_spawned_workers_are_known_to_the_parent_too(counting, workers):
    dataset = TokenDataset(counting(700), 4, 50)
    next(iter(through(dataset, workers, "spawn")))
    with pytest.raises(RuntimeError, match="StatefulDataLoader"):
        dataset.state_dict()


def test_persistent_workers_say_that_they_do_not_see_a_state_loaded_elsewhere(counting, capfd):
    dataset = TokenDataset(counting(700), 4, 50)
    state = dataset.state_dict()
    dataloader = through(dataset, 2, persistent_workers=True)
    starts(dataloader)
    dataset.load_state_dict(state)
    with pytest.raises(RuntimeError):  # torch's own, that a worker ended
        starts(dataloader)
    assert "hint: make a new DataLoader after load_state_dict" in capfd.readouterr().err


def test_a_wrong_state_is_refused_and_changes_nothing(counting):
    dataset = TokenDataset(counting(700), 4, 50)
    state = dataset.state_dict()
    for change in ({"fingerprint": "0" * 32}, {"turn": [0, 2]}, {"position": 10**9}):
        with pytest.raises(ValueError, match="hint"):
            dataset.load_state_dict({**state, **change})
    assert dataset.state_dict() == state
    assert len(starts(through(dataset, 2))) == 3


@pytest.fixture(scope="module")
def stateful():
    """torchdata's StatefulDataLoader, over a dataset."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = pytest.importorskip("torchdata.stateful_dataloader", reason="torchdata is not installed")

    def make(dataset, workers=0, **settings):
        return module.StatefulDataLoader(dataset, batch_size=None, num_workers=workers, **settings)

    return make


@pytest.mark.parametrize(
    ("workers", "epochs", "settings"),
    [
        (0, 1, {}),
        (1, 1, {}),
        (2, 1, {}),
        (2, 1, {"persistent_workers": True}),
        (2, 2, {"snapshot_every_n_steps": 3}),
        (3, 2, {"persistent_workers": True}),
    ],
)
def test_a_stateful_dataloader_stops_and_resumes_anywhere(counting, stateful, workers, epochs, settings):
    tokens = counting(400)  # 7 windows an epoch

    def fresh():
        return stateful(TokenDataset(tokens, 1, 50, epochs=epochs), workers, **settings)

    loader = tokens.loader(1, 50, epochs=epochs)
    whole = [starts(loader) for _ in range(4)]
    for stop in range(7 * epochs + 1):
        dataloader = fresh()
        iterator = iter(dataloader)
        assert starts(iterator, stop) == whole[0][:stop]
        state = pickle.loads(pickle.dumps(dataloader.state_dict()))
        assert starts(iterator) == whole[0][stop:]  # taking a state disturbs nothing
        assert starts(dataloader) == whole[1]
        resumed = fresh()
        resumed.load_state_dict(state)
        rest = [starts(resumed) for _ in range(3)]
        if stop < 7 * epochs:
            assert rest == [whole[0][stop:], whole[1], whole[2]]
        elif "snapshot_every_n_steps" in settings:
            assert rest == [[], whole[1], whole[2]]  # torchdata has gone through the last steps again
        else:
            assert rest == whole[1:], "the last batch's state is the next epoch's, with workers and without"


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("persistent", [False, True])
def test_a_stateful_dataloader_between_epochs(counting, stateful, workers, persistent):
    tokens = counting(400)
    persist = {"persistent_workers": True} if persistent and workers else {}
    loader = tokens.loader(1, 50)
    whole = [starts(loader) for _ in range(5)]
    dataloader = stateful(TokenDataset(tokens, 1, 50), workers, **persist)
    early = dataloader.state_dict()  # before the first batch
    assert [starts(dataloader), starts(dataloader)] == whole[:2]
    ended = dataloader.state_dict()
    resumed = stateful(TokenDataset(tokens, 1, 50), workers, **persist)
    resumed.load_state_dict(ended)
    assert [starts(resumed), starts(resumed)] == whole[2:4]
    # A resumed one can be stopped again, in the first epoch that it saw and in a later one.
    again = stateful(TokenDataset(tokens, 1, 50), workers, **persist)
    again.load_state_dict(resumed.state_dict())
    iterator = iter(again)
    assert starts(iterator, 3) == whole[4][:3]
    last = stateful(TokenDataset(tokens, 1, 50), workers, **persist)
    last.load_state_dict(again.state_dict())
    assert starts(last) == whole[4][3:]
    # The same one can be taken back, and goes on from there.
    dataloader.load_state_dict(early)
    assert [starts(dataloader), starts(dataloader)] == whole[:2]


@pytest.mark.parametrize("workers", [0, 1, 2, 3])
@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("epochs", [1, 2])
def test_exactly_len_batches_of_every_epoch(counting, stateful, workers, persistent, epochs):
    tokens = counting(400)
    persist = {"persistent_workers": True} if persistent and workers else {}

    def fresh():
        return stateful(TokenDataset(tokens, 1, 50, epoch=3, epochs=epochs), workers, **persist)

    loader = tokens.loader(1, 50, epoch=3, epochs=epochs)
    whole = [starts(loader, len(loader)) for _ in range(6)]
    assert {len(epoch) for epoch in whole} == {7 * epochs}
    dataloader = fresh()
    for number in range(3):
        assert starts(dataloader, 7 * epochs) == whole[number]
        # Resumed after the last batch: the next epochs, and those after them, all of them or exactly as many.
        resumed = fresh()
        resumed.load_state_dict(pickle.loads(pickle.dumps(dataloader.state_dict())))
        for later, count in [(1, 7 * epochs), (2, None), (3, 7 * epochs)]:
            assert starts(resumed, count) == whole[number + later]
    # Resumed there, and stopped in the epoch that follows.
    resumed = fresh()
    resumed.load_state_dict(dataloader.state_dict())
    assert starts(resumed, 3) == whole[3][:3]
    again = fresh()
    again.load_state_dict(resumed.state_dict())
    assert [starts(again), starts(again)] == [whole[3][3:], whole[4]]


@pytest.mark.parametrize("workers", [0, 2, 3])
@pytest.mark.parametrize("persistent", [False, True])
def test_repeated_windows_through_a_stateful_dataloader(counting, stateful, workers, persistent):
    tokens = counting(400)
    persist = {"persistent_workers": True} if persistent and workers else {}

    def fresh():
        return stateful(TokenDataset(tokens, 1, 50, epoch=4, repeat=True), workers, **persist)

    whole = starts(tokens.loader(1, 50, epoch=4))
    for stop in (0, 3, 6, 7):
        dataloader = fresh()
        for count in (None, 2, 7, 0, None, stop):
            assert starts(dataloader, count) == whole[:count]
        resumed = fresh()
        resumed.load_state_dict(dataloader.state_dict())
        assert starts(resumed) == (whole[stop:] or whole)
        assert starts(resumed, 5) == whole[:5]
        assert starts(resumed) == whole


def test_a_state_of_other_steps_is_refused_with_workers(counting, stateful):
    """Each worker counts the steps it has taken: with others in between they would not fit together."""
    tokens = counting(400)
    dataloader = stateful(TokenDataset(tokens, 1, 50), 2)
    next(iter(dataloader))
    for settings in ({"batch_size": 2}, {"rank": 0, "world_size": 2}):
        given = {"batch_size": 1, "block_size": 50, **settings}
        resumed = stateful(TokenDataset(tokens, **given), 2)
        resumed.load_state_dict(dataloader.state_dict())
        with pytest.raises(ValueError, match="steps of 1 windows, the dataset's are of 2"):
            starts(resumed)


def test_a_stateful_dataloader_that_never_ends(counting, stateful):
    tokens = counting(400)
    dataloader = stateful(TokenDataset(tokens, 1, 50, epochs=None), 2)
    whole = starts(tokens.loader(1, 50, epochs=None), 60)
    assert starts(dataloader, 33) == whole[:33]
    resumed = stateful(TokenDataset(tokens, 1, 50, epochs=None), 2)
    resumed.load_state_dict(dataloader.state_dict())
    assert starts(resumed, 27) == whole[33:]


@pytest.mark.parametrize(
    ("workers", "settings", "says"),
    [
        (3, {}, "as many workers as there were"),
        (2, {"seed": 8}, "another seed or other epochs"),
        (2, {"epochs": 2}, "another seed or other epochs"),
    ],
)
def test_a_state_of_other_workers_or_of_another_dataset_is_refused(
    counting, stateful, workers, settings, says
):
    tokens = counting(400)
    dataloader = stateful(TokenDataset(tokens, 1, 50), 2)
    next(iter(dataloader))
    resumed = stateful(TokenDataset(tokens, 1, 50, **settings), workers)
    resumed.load_state_dict(dataloader.state_dict())
    with pytest.raises(ValueError, match=says):
        starts(resumed)


@pytest.mark.heavy
@pytest.mark.parametrize("looked_at", ["_words", "_over"])
def test_a_worker_may_begin_while_another_looks(monkeypatch, looked_at):
    """Between the two looks of one worker another one takes the next pass: both are in the same."""
    from lowtide._passes import Passes

    passes = Passes()
    monkeypatch.setattr("multiprocessing.parent_process", lambda: SimpleNamespace(pid=os.getpid()))
    workers = [[SimpleNamespace(id=i, num_workers=2, seed=seed + i) for i in (0, 1)] for seed in (5, 9)]
    for worker in workers[0]:
        passes.take(worker, 0, over=True)
        passes.handed_out(worker)  # pass 1, too: the next one is 2

    class Looked:
        """A tensor; once somebody has read it, worker 1 begins."""

        def __init__(self, tensor):
            self.tensor = tensor

        def tolist(self):
            before = self.tensor.tolist()
            setattr(passes, looked_at, self.tensor)
            taken.append(passes.next(workers[1][1], 0))
            return before

    taken = []
    setattr(passes, looked_at, Looked(getattr(passes, looked_at)))
    taken.append(passes.next(workers[1][0], 0))
    assert taken == [2, 2]

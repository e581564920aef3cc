"""Which pass over the epochs a DataLoader worker is in, so that none is read again.

DataLoader tells a dataset nothing when an iteration begins: it starts new workers from the same old copy, or
has those that there are iterate again. So workers agree among themselves, in memory that they share with the
process that starts them.
"""

from __future__ import annotations

import multiprocessing
import os
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from torch.utils.data._utils.worker import WorkerInfo

_WORKERS = 1024
_BITS = 48  # of a word for the number of the pass; above them is the key, which is not 0


class Passes:
    """A word for each worker, which nobody else writes, so that there is nothing to lock.

    A worker takes the pass after the last one that any worker took, unless another worker of its iteration
    was faster: then that one's. They know each other by a key, torch's seed of the iteration.
    """

    def __init__(self) -> None:
        self._words = torch.zeros(_WORKERS, dtype=torch.int64, device="cpu").share_memory_()
        # 1: a worker was resumed after its last batch; 2: it has handed out the pass after that one, too.
        self._over = torch.zeros(_WORKERS, dtype=torch.int8, device="cpu").share_memory_()
        self._owner = os.getpid()
        self._began = False  # in this process

    def last(self) -> int | None:
        """Give the last pass that was taken by a worker."""
        return _last(self._words.tolist(), self._over.tolist())

    def forget(self) -> None:
        """Begin anew: the next pass is the first."""
        self._words.zero_()
        self._over.zero_()

    def take(self, worker: WorkerInfo, number: int, over: bool = False) -> None:
        """Note that this worker is in a pass, or was resumed after its last batch of it."""
        self._began = True
        # The word first: who sees what comes after it sees the word, too. See `next`.
        self._words[worker.id] = _key(worker) << _BITS | number
        self._over[worker.id] = int(over)

    def all_over(self, worker: WorkerInfo, number: int) -> bool:
        """Say whether all workers of this iteration were resumed after their last batch of a pass."""
        words, over = (both[: worker.num_workers].tolist() for both in (self._words, self._over))
        return _numbers(words) == [number] * worker.num_workers and all(over)

    def handed_out(self, worker: WorkerInfo) -> None:
        """Note that this worker has nothing left of the pass after the one in which it was resumed."""
        if self._words[worker.id] >> _BITS == _key(worker):  # else it is a worker of another iteration by now
            self._over[worker.id] = 2

    def next(self, worker: WorkerInfo, first: int) -> int:
        """Take the next pass, the same in all workers of an iteration; `first` if there was none."""
        parent = multiprocessing.parent_process()
        if parent is None or parent.pid != self._owner:
            raise RuntimeError(
                "the dataset was made in another process than the one that starts these workers, "
                "where others may use it too\n"
                "hint: make the TokenDataset in the process that makes the DataLoader"
            )
        if worker.num_workers > _WORKERS:
            raise ValueError(f"num_workers is {worker.num_workers}, at most {_WORKERS} can share a dataset")
        # In this order: another worker may take its pass just now. An old word beside what it has noted since
        # would be the pass before, once more.
        over_before: list[int] = self._over.tolist()
        words: list[int] = self._words.tolist()
        last = _last(words, over_before)
        mine = words[worker.id]
        if self._began and not mine:
            raise RuntimeError(
                "the main process has moved its copy of the dataset, which persistent workers do not see\n"
                "hint: make a new DataLoader after load_state_dict"
            )
        # Who seeds torch alike before every iteration gives them all one key: then what I was in is over.
        key = _key(worker)
        over = mine if mine >> _BITS == key else 0
        joined = _numbers([word for word in words if word >> _BITS == key and word > over])
        number = max(joined) if joined else first if last is None else last + 1
        self.take(worker, number)
        return number

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Share the words with the workers of this process, if it is not one itself."""
        self.__dict__.update(state)
        if not self._words.is_shared():
            self._words.share_memory_()
            self._over.share_memory_()
            self._owner = os.getpid()


def _numbers(words: list[int]) -> list[int]:
    return [word & (1 << _BITS) - 1 for word in words if word]


def _last(words: list[int], over: list[int]) -> int | None:
    """Give the last pass: the one after it where all have handed that out too."""
    if not any(words):
        return None
    return max(_numbers(words)) + all(two == 2 for word, two in zip(words, over, strict=True) if word)


def _key(worker: WorkerInfo) -> int:
    seed: int = worker.seed - worker.id
    return 1 + seed % 32_767

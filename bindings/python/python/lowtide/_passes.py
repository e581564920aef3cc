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
        self._owner = os.getpid()
        self._began = False  # in this process

    def last(self) -> int | None:
        """Give the last pass that a worker took."""
        return max(_numbers(self._words.tolist()), default=None)

    def forget(self) -> None:
        """Begin anew: the next pass is the first."""
        self._words.zero_()

    def take(self, worker: WorkerInfo, number: int) -> None:
        """Note that this worker is in a pass."""
        self._began = True
        self._words[worker.id] = _key(worker) << _BITS | number

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
        words: list[int] = self._words[: worker.num_workers].tolist()
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
        number = max(joined) if joined else max(_numbers(words), default=first - 1) + 1
        self.take(worker, number)
        return number

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Share the words with the workers of this process, if it is not one itself."""
        self.__dict__.update(state)
        if not self._words.is_shared():
            self._words.share_memory_()
            self._owner = os.getpid()


def _numbers(words: list[int]) -> list[int]:
    return [word & (1 << _BITS) - 1 for word in words if word]


def _key(worker: WorkerInfo) -> int:
    seed: int = worker.seed - worker.id
    return 1 + seed % 32_767

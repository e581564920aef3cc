"""Tokens as torch tensors: nanoGPT's ``get_batch``, and a dataset for torch's ``DataLoader``.

Tensors share memory with our arrays: there is no second copy. Torch is an optional extra: nothing else in
``lowtide`` imports it.

>>> import lowtide, lowtide.torch
>>> tokens = lowtide.tokens("train.bin")  # doctest: +SKIP
>>> x, y = lowtide.torch.get_batch(tokens, batch_size=12, block_size=1024)  # doctest: +SKIP
"""

from __future__ import annotations

import mmap
import multiprocessing.context
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch.utils.data import IterableDataset, get_worker_info

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from lowtide._lowtide import Loader, Tokens

__all__ = ["TokenDataset", "get_batch"]

_Pair = tuple[torch.Tensor, torch.Tensor]


def get_batch(
    tokens: Tokens,
    batch_size: int,
    block_size: int,
    device: str | torch.device = "cpu",
    generator: torch.Generator | None = None,
) -> _Pair:
    """Draw random windows as nanoGPT's function of this name does: bit for bit the same for the same seed.

    ``x`` and ``y`` are int64 tensors of ``batch_size`` rows of ``block_size`` tokens, ``y`` shifted by one. On
    CUDA they are allocated pinned, filled in place and copied with ``non_blocking=True``.
    """
    if block_size >= len(tokens):
        raise IndexError(f"a window of {block_size} tokens and the one after them: there are {len(tokens)} tokens")
    starts = torch.randint(len(tokens) - block_size, (batch_size,), generator=generator)
    if device == "cpu":
        x, y = tokens.windows(starts.numpy(), block_size)
        return torch.from_numpy(x), torch.from_numpy(y)
    device = torch.device(device)
    if device.type == "cuda":
        pinned = [torch.empty(batch_size, block_size, dtype=torch.int64, pin_memory=True) for _ in range(2)]
        tokens.windows(starts.numpy(), block_size, out=(pinned[0].numpy(), pinned[1].numpy()))
        return pinned[0].to(device, non_blocking=True), pinned[1].to(device, non_blocking=True)
    x, y = tokens.windows(starts.numpy(), block_size)
    return torch.from_numpy(x).to(device), torch.from_numpy(y).to(device)


class TokenDataset(IterableDataset[_Pair]):
    """Batches of windows for ``DataLoader(dataset, batch_size=None)``, with any number of workers.

    The arguments are those of ``tokens.loader``. Worker w of n yields batches w, w + n, …: nothing is repeated,
    and the DataLoader puts them back in order. ``state_dict`` is for use without workers; with them use
    torchdata's ``StatefulDataLoader``, which asks each worker for its own.

    Our loader reads ahead in a thread of its own, so that workers are rarely worth their cost.
    """

    def __init__(
        self,
        tokens: Tokens,
        batch_size: int,
        block_size: int,
        *,
        order: Literal["shuffled", "sequential", "with_replacement"] = "shuffled",
        seed: int = 0,
        epochs: int | None = 1,
        dtype: DTypeLike = "int64",
        rank: int | None = None,
        world_size: int | None = None,
        prefetch: int | None = None,
        drop_last: bool = True,
    ) -> None:
        super().__init__()
        self.tokens = tokens
        self._settings: dict[str, Any] = {
            "batch_size": batch_size,
            "block_size": block_size,
            "order": order,
            "seed": seed,
            "epochs": epochs,
            "dtype": dtype,
            "rank": rank,
            "world_size": world_size,
            "prefetch": prefetch,
            "drop_last": drop_last,
        }
        self._state: dict[str, Any] | None = None
        self._shared = mmap.mmap(-1, 1)  # a forked worker tells us here that it has taken over
        self._loader: Loader | None = tokens.loader(**self._settings)  # what is wrong is said here, not in a worker

    def __len__(self) -> int:
        """How many batches one iteration has, over all workers."""
        return len(self._alone())

    def __iter__(self) -> Iterator[_Pair]:
        worker = get_worker_info()
        if worker is None:
            loader = self._alone()
        else:
            self._shared[0] = 1
            loader = self._loader = self.tokens.loader(**self._settings, _turn=(worker.id, worker.num_workers))
            if self._state is not None:
                loader.load_state_dict(self._state)
                self._state = None
        for x, y in loader:
            yield torch.from_numpy(x), torch.from_numpy(y)

    def _alone(self) -> Loader:
        """Give the loader of this process, where it stands."""
        if self._loader is None:
            self._loader = self.tokens.loader(**self._settings)
        if self._state is not None:
            self._loader.load_state_dict(self._state)
            self._state = None
        return self._loader

    def state_dict(self) -> dict[str, Any]:
        """Say where the iteration stands, as the caller saw it: see ``Loader.state_dict``."""
        if get_worker_info() is not None and self._loader is not None:
            return dict(self._loader.state_dict())
        if self._shared[0]:
            raise RuntimeError(
                "the batches are read by DataLoader workers, and this copy of the dataset does not know how far they are\n"
                "hint: use torchdata's StatefulDataLoader and its state_dict(), or num_workers=0"
            )
        return dict(self._alone().state_dict())

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from where a ``state_dict`` was taken."""
        self._state = dict(state)
        if get_worker_info() is None:
            self._shared[0] = 0
            self._alone()

    def __getstate__(self) -> dict[str, Any]:
        if multiprocessing.context.get_spawning_popen() is not None:
            self._shared[0] = 1  # a worker takes over: it is being started with this very pickle
        state = self.__dict__.copy()
        del state["_shared"], state["_loader"]
        if self._loader is not None and not self._shared[0]:
            state["_state"] = dict(self._loader.state_dict())
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _shared=mmap.mmap(-1, 1), _loader=None)

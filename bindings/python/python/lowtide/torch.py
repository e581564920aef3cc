"""Tokens and rows as torch tensors: nanoGPT's ``get_batch``, and datasets for torch's ``DataLoader``.

Tensors share memory with our arrays: there is no second copy. Torch is an optional extra: nothing else in
``lowtide`` imports it.

>>> import lowtide, lowtide.torch
>>> tokens = lowtide.tokens("train.bin")
>>> x, y = lowtide.torch.get_batch(tokens, batch_size=12, block_size=1024)
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch.utils.data import IterableDataset, get_worker_info

from lowtide import _callers
from lowtide._arguments import check_draw, check_tokens
from lowtide._foresight import Foresight
from lowtide._lowtide import Tokens
from lowtide._map_datasets import RowDataset, WindowDataset
from lowtide._passes import Passes

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray
    from torch.utils.data._utils.worker import WorkerInfo

__all__ = ["RowDataset", "TokenDataset", "WindowDataset", "get_batch"]

_Arrays = tuple["NDArray[Any]", "NDArray[Any]"]
_Pair = tuple[torch.Tensor, torch.Tensor]

_CPU = torch.device("cpu")  # named, because torch.set_default_device could mean another one
_ENDLESS = 1 << 32  # the epochs of an iteration with epochs=None: nobody comes to their end


def get_batch(
    tokens: Tokens,
    batch_size: int,
    block_size: int,
    device: str | int | torch.device = "cpu",
    generator: torch.Generator | None = None,
) -> _Pair:
    """Draw random windows as nanoGPT's function of this name does: bit for bit the same for the same seed.

    ``x`` and ``y`` are int64 tensors of ``batch_size`` rows of ``block_size`` tokens, ``y`` shifted by one.
    On CUDA they are allocated pinned, filled in place and copied with ``non_blocking=True``.

    Where nobody else draws from the generator between calls, the windows of the next ones are read meanwhile,
    in a thread and inside the budget: a copy of the generator tells which they are.

    Args:
        tokens: What ``lowtide.tokens`` opened.
        batch_size: How many windows.
        block_size: How many tokens a window has.
        device: Where the tensors go.
        generator: What draws; torch's default one if not given.

    Returns:
        ``(x, y)``, on the device.

    Raises:
        IndexError: There are fewer tokens than a window takes.
        ValueError: There are no windows in such a batch, or no tokens in such a window.
        TypeError: The tokens are something else, or a number is no whole one.

    >>> import lowtide, lowtide.torch
    >>> x, y = lowtide.torch.get_batch(lowtide.tokens("train.bin"), batch_size=12, block_size=1024)
    >>> x.shape, x.dtype
    (torch.Size([12, 1024]), torch.int64)
    """
    # Nearly all calls are right: three looks at types, and no call of a function.
    if (
        type(tokens) is not Tokens
        or type(batch_size) is not int
        or type(block_size) is not int
        or batch_size < 1
    ):
        check_draw(tokens, batch_size, block_size)
    if device != "cpu":  # most are, and asking torch what a word means takes as long as reading a window
        device = torch.device(device)
    length = len(tokens)
    if block_size >= length:
        raise IndexError(
            f"a window is {block_size} tokens and the one after them, there are only {length} tokens\n"
            "hint: a smaller block_size"
        )
    # A list of a few numbers takes less time than an array that stands for the same memory.
    starts = torch.randint(length - block_size, (batch_size,), generator=generator, device=_CPU).tolist()
    foresight = tokens._foresight
    if foresight is None or not foresight.fits(batch_size, block_size, generator):
        foresight = tokens._foresight = Foresight(batch_size, block_size, length, generator)
    foreseen = foresight.take(tokens, starts)
    if isinstance(device, torch.device) and device.type == "cuda":
        shape = batch_size, block_size
        x, y = (torch.empty(shape, dtype=torch.int64, device=_CPU, pin_memory=True) for _ in range(2))
        if foreseen is None:
            tokens.windows(starts, block_size, out=(x.numpy(), y.numpy()))
        else:
            for pinned, array in zip((x, y), foreseen, strict=True):
                pinned.numpy()[:] = array
        return x.to(device, non_blocking=True), y.to(device, non_blocking=True)
    pair = _tensors(foreseen or tokens.windows(starts, block_size))
    return pair if device == "cpu" else (pair[0].to(device), pair[1].to(device))


def _tensors(pair: _Arrays) -> _Pair:
    return torch.from_numpy(pair[0]), torch.from_numpy(pair[1])


class TokenDataset(IterableDataset[_Pair]):
    """Batches of windows for ``DataLoader(dataset, batch_size=None)``, with any number of workers.

    The arguments are those of ``tokens.loader``, and so are the batches and their order. An iteration goes on
    from the state; the next one begins the next epoch, also where DataLoader starts new workers for it. With
    ``repeat=True`` every iteration begins the same windows again, for validation.

    Worker w of n yields batches w, w + n, …, and DataLoader puts them back in order. How many of them it has
    handed out is known to no copy of the dataset, so that with workers

    - ``state_dict`` raises: use that of torchdata's ``StatefulDataLoader``, and resume with as many workers;
    - an iteration that is left early is not taken up again: the next one begins with epochs that no worker
      has begun (2³² further on if ``epochs`` is None).

    Our loader reads ahead in a thread of its own, so that workers are rarely worth their cost: each has a
    budget of its own, and copies its batches into shared memory.

    Args:
        tokens: What ``lowtide.tokens`` opened.
        batch_size: How many windows a batch has, on each rank.
        block_size: How many tokens a window has.
        order: "shuffled", "sequential" or "with_replacement", as for ``Tokens.loader``; so are the others.
        seed: Which order; None draws one, the same for all workers.
        epoch: The epoch with which the first iteration begins.
        epochs: How many epochs one iteration has; None has no end.
        repeat: Every iteration begins the same epochs again: for validation.
        dtype: The integers of x and y.
        rank, world_size: Which share of the batches; asked of torch.distributed and others if not given.
        prefetch: How many batches to read ahead at most.
        drop_last: Leaves out the last windows of an epoch, which do not fill a batch on every rank.
        blocks: Whole blocks of neighbours, mixed inside the budget.

    Raises:
        ValueError: The tokens are too few, or a word or a number makes no sense.
        MemoryError: A batch does not fit in the budget.
        TypeError: The tokens are something else. Or at the first batch, in a ``DataLoader`` without
            ``batch_size=None``.
        RuntimeError: At the first batch, where Accelerate's ``prepare`` would deal out a rank's share again.

    >>> import lowtide, lowtide.torch
    >>> from torch.utils.data import DataLoader
    >>> dataset = lowtide.torch.TokenDataset(lowtide.tokens("train.bin"), batch_size=12, block_size=1024)
    >>> for x, y in DataLoader(dataset, batch_size=None):
    ...     assert x.shape == y.shape == (12, 1024)
    """

    def __init__(
        self,
        tokens: Tokens,
        batch_size: int,
        block_size: int,
        *,
        order: Literal["shuffled", "sequential", "with_replacement"] = "shuffled",
        seed: int | None = 0,
        epoch: int = 0,
        epochs: int | None = 1,
        repeat: bool = False,
        dtype: DTypeLike = "int64",
        rank: int | None = None,
        world_size: int | None = None,
        prefetch: int | None = None,
        drop_last: bool = True,
        blocks: Literal["auto"] | int | None = None,
    ) -> None:
        """Check the arguments: nothing is read before the first batch."""
        check_tokens(tokens)
        super().__init__()
        self.tokens = tokens
        self._settings: dict[str, Any] = {
            "batch_size": batch_size,
            "block_size": block_size,
            "order": order,
            "seed": seed,
            "epoch": epoch,
            "epochs": epochs,
            "dtype": dtype,
            "rank": rank,
            "world_size": world_size,
            "prefetch": prefetch,
            "drop_last": drop_last,
            "blocks": blocks,
        }
        # What is wrong is said here, not in a worker; and a random seed is drawn here, once for all of them.
        self._loader = tokens.loader(**self._settings, repeat=repeat)
        self._settings["seed"] = self._loader.state_dict()["seed"]
        # Of a copy that was pickled: the process it is in, and the rank of the one that sent it.
        self._sent: tuple[int, int, int] | None = None
        self._repeat = repeat
        self._first = epoch
        self._span = _ENDLESS if epochs is None else epochs
        self._passes = Passes()
        # In a worker: what StatefulDataLoader has loaded, and the epoch before which the iteration ends.
        self._resume: dict[str, Any] | None = None
        self._end: int | None = None

    def __len__(self) -> int:
        """How many batches one iteration has, over all workers."""
        if self._settings["epochs"] is None:
            raise TypeError("a dataset with epochs=None has no end")
        loader = self._loader if get_worker_info() is None else self.tokens.loader(**self._here())
        return len(loader)

    def __iter__(self) -> Iterator[_Pair]:
        """Go on from the state, or with this worker's share of it."""
        _callers.refuse_collation()
        _callers.refuse_dealing(self._here()["world_size"] or self._loader.world_size)
        worker = get_worker_info()
        if worker is None:
            self._catch_up()
            return map(_tensors, self._loader)
        return map(_tensors, self._share(worker))

    def set_epoch(self, epoch: int) -> None:
        """Do nothing: epochs are counted here.

        Accelerate's loaders call it before they start their workers, where nothing else of ours is called.

        Args:
            epoch: Is not looked at.

        Raises:
            RuntimeError: Accelerate would deal out one rank's share again.

        >>> import lowtide, lowtide.torch
        >>> lowtide.torch.TokenDataset(lowtide.tokens("train.bin"), 12, 1024).set_epoch(3)
        """
        _callers.refuse_dealing(self._here()["world_size"] or self._loader.world_size)

    def _here(self) -> dict[str, Any]:
        """Give the settings with the rank of the process whose worker this is.

        A forked worker finds what that process would; to another one its copy says.
        """
        if get_worker_info() is None or self._sent is None or self._sent[0] != os.getpid():
            return self._settings
        return {**self._settings, "rank": self._sent[1], "world_size": self._sent[2]}

    def _catch_up(self) -> None:
        """Go on after what workers have read since this process did."""
        last = self._passes.last()
        if last is not None:
            self._loader.load_state_dict({**self._loader.state_dict(), **self._beginning(last + 1)})
            self._passes.forget()

    def _step(self) -> int:
        """Count the windows of a step, over all ranks: what a worker has taken is counted in steps."""
        step: int = self._settings["batch_size"] * self._loader.world_size
        return step

    def _pass(self, epoch: int) -> int:
        """Give the number of the pass, of ``epochs`` epochs each, in which an epoch is."""
        return (epoch - self._first % self._span) // self._span + 1

    def _beginning(self, number: int) -> dict[str, Any]:
        """Say where a pass begins: with ``repeat``, always where the first one does."""
        epoch = (number - 1) * self._span + self._first % self._span
        return {"epoch": self._first if self._repeat else epoch, "position": 0}

    def _share(self, worker: WorkerInfo) -> Iterator[_Arrays]:
        """Give this worker's share of the iteration that it resumes, or else of the next one."""
        turn = (worker.id, worker.num_workers)
        state, self._resume = self._resume, None
        if state is None:
            if self._end is None:
                iter(self._loader)  # the parent's copy: this is what it would begin with
            # Or, in a persistent worker, our last iteration.
            state = {**self._loader.state_dict(), "turn": turn}
        if "end" in state:
            # What the next iteration takes from the parent's copy must be what this one takes from the state.
            if (
                state["seed"] != self._loader.state_dict()["seed"]
                or (state["end"] - self._first) % self._span
            ):
                raise ValueError(
                    "the state was taken with another seed or other epochs than the dataset has\n"
                    "hint: make the dataset as it was made then"
                )
            self._end = state["end"]
            number = self._pass(state["end"]) - 1
            self._passes.take(worker, number, over=state["epoch"] >= state["end"])
        else:
            first = self._pass(state["epoch"])
            number = self._passes.next(worker, first)
            if number != first or self._end is not None:
                state.update(self._beginning(number))
            self._end = state["epoch"] - (state["epoch"] - self._first) % self._span + self._span
        self._loader = self.tokens.loader(**self._here(), _turn=turn)
        if state.get("step", self._step()) != self._step():
            raise ValueError(
                f"the state is of steps of {state['step']} windows, the dataset's are of {self._step()}\n"
                "hint: with workers, resume with the batch_size and the world_size that there were"
            )
        self._loader.load_state_dict(state)
        # After a worker's last batch its state stands in the next epoch, which is not of the same iteration.
        return iter(self._loader) if state["epoch"] < self._end else self._next_share(worker, number, state)

    def _next_share(self, worker: WorkerInfo, number: int, state: dict[str, Any]) -> Iterator[_Arrays]:
        """Go on after this worker's last batch: with the next pass if it was all workers' last, else not.

        Every worker has been here when the first batch is asked for: StatefulDataLoader waits for them.
        """
        if not self._passes.all_over(worker, number):
            return
        if self._repeat:
            state = {**state, **self._beginning(number)}
            self._loader.load_state_dict(state)
        end = self._end = state["epoch"] + self._span
        # Where the iteration was also seen to end, StatefulDataLoader asks for some batches, throws them away
        # and begins another iteration: so this pass counts only when all of it was handed out.
        for batch in self._loader:
            if self._loader.state_dict()["epoch"] == end:
                self._passes.handed_out(worker)
            yield batch
        self._passes.handed_out(worker)

    def state_dict(self) -> dict[str, Any]:
        """Say where the iteration stands, as the caller saw it: see ``Loader.state_dict``.

        Returns:
            A small dict that JSON takes, good for any number of ranks.

        Raises:
            RuntimeError: Workers read the batches, and how far they are is not known to this copy.

        >>> import lowtide, lowtide.torch
        >>> dataset = lowtide.torch.TokenDataset(lowtide.tokens("train.bin"), batch_size=12, block_size=1024)
        >>> x, y = next(iter(dataset))
        >>> dataset.state_dict()["position"]
        12
        """
        if get_worker_info() is not None:
            return {**self._loader.state_dict(), "end": self._end, "step": self._step()}
        if self._passes.last() is not None:
            raise RuntimeError(
                "the batches are read by DataLoader workers: how far they are is not known to this copy\n"
                "hint: use torchdata's StatefulDataLoader and its state_dict(), or num_workers=0"
            )
        return {**self._loader.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from where a ``state_dict`` was taken, with or without workers.

        Args:
            state: What ``state_dict`` gave, also after JSON.

        Raises:
            ValueError: The files, the order or the ``block_size`` are not the state's, or it is no state.

        >>> import lowtide, lowtide.torch
        >>> dataset = lowtide.torch.TokenDataset(lowtide.tokens("train.bin"), batch_size=12, block_size=1024)
        >>> x, y = next(iter(dataset))
        >>> again = lowtide.torch.TokenDataset(lowtide.tokens("train.bin"), batch_size=4, block_size=1024)
        >>> again.load_state_dict(dataset.state_dict())
        >>> again.state_dict()["position"]
        12
        """
        if get_worker_info() is not None:
            self._resume = state
            return
        self._loader.load_state_dict(state)
        self._passes.forget()

    def __repr__(self) -> str:
        """Say what it gives, and whose share."""
        return repr(self._loader).replace("lowtide.Loader", "lowtide.torch.TokenDataset")

    def __getstate__(self) -> dict[str, Any]:
        """Give the settings and the state; the data stays where it is."""
        return {**self.__dict__, "_sent": (0, self._loader.rank, self._loader.world_size)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Go on from the state, as the process that sent it would."""
        self.__dict__.update(state)
        self._sent = (os.getpid(), *state["_sent"][1:])

"""Who iterates over a ``TokenDataset``: some would take its batches for something else, and lose data.

A dataset is told nothing about the loader that it is given to. So the stack is looked at, once an iteration;
a name that is not found there (in another release, say) changes nothing.
"""

from __future__ import annotations

import sys
from types import FrameType

from torch.utils.data import default_collate

_DEPTH = 16  # DataLoader's own functions between an iterator and the dataset are six

_DEALERS = {
    ("accelerate.data_loader", "DataLoaderDispatcher.__iter__"): "Accelerate's DataLoaderDispatcher",
    ("accelerate.data_loader", "IterableDatasetShard.__iter__"): "Accelerate's IterableDatasetShard",
    ("transformers.trainer_pt_utils", "IterableDatasetShard.__iter__"): "Transformers' IterableDatasetShard",
}


def refuse_collation() -> None:
    """Refuse a DataLoader that would make batches of our batches; to be called in ``__iter__``."""
    frame = sys._getframe(2)
    if _name(frame) != ("torch.utils.data._utils.fetch", "_IterableDatasetFetcher.__init__"):
        return
    collate = frame.f_locals.get("collate_fn")
    # Who gives a function of their own knows what it is given; Trainer's knows only single samples.
    known = collate is default_collate or type(collate).__module__.startswith("transformers.")
    known = known or getattr(collate, "__module__", "").startswith("transformers.")
    if frame.f_locals.get("auto_collation") and known:
        raise TypeError(
            "a TokenDataset yields whole batches, of which this DataLoader would make batches once more\n"
            "hint: DataLoader(dataset, batch_size=None); for a trainer that makes the batches itself, "
            "lowtide.torch.WindowDataset yields single windows"
        )


def refuse_dealing(world_size: int) -> None:
    """Refuse whoever would deal out the share of one rank to all of them."""
    if world_size == 1:
        return
    frame: FrameType | None = sys._getframe(2)
    for _ in range(_DEPTH):
        if frame is None:
            return
        dealer = _DEALERS.get(_name(frame))
        if dealer is not None:
            raise RuntimeError(
                f"{dealer} would deal out again what is only the share of one rank of {world_size}: "
                f"{world_size - 1} of {world_size} windows would be lost\n"
                "hint: leave this DataLoader out of accelerator.prepare(...), its ranks are right already; "
                "or use lowtide.torch.WindowDataset, which trainers may share out"
            )
        frame = frame.f_back


def _name(frame: FrameType) -> tuple[str, str]:
    return frame.f_globals.get("__name__", ""), frame.f_code.co_qualname

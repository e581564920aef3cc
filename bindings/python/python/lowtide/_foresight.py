"""What a generator will draw next, so that windows are read before they are asked for.

``get_batch`` draws the starts of a batch from torch's generator when it is called, as nanoGPT's does. A
copy of the generator tells what the next calls will draw, unless somebody else draws from it between
them, as dropout on a CPU does. So a guess is made first, and only where it comes true are windows read
ahead. A batch is handed out only to whoever draws its very starts: what was guessed never shows.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lowtide._lowtide import Foreseen, Tokens

_CPU = torch.device("cpu")
_MOST_REST = 1023  # calls without a guess, where guesses do not come true


class Foresight:
    """What is known of one who draws windows of some tokens, again and again."""

    __slots__ = (
        "_batch",
        "_block",
        "_copy",
        "_foreseen",
        "_generator",
        "_guess",
        "_lock",
        "_range",
        "_rest",
        "_wrong",
    )

    def __init__(self, batch: int, block: int, length: int, generator: torch.Generator | None) -> None:
        self._batch, self._block, self._range = batch, block, length - block
        self._generator = generator
        self._copy: torch.Generator | None = None
        self._guess: list[int] | None = None
        self._foreseen: Foreseen | None = None
        self._rest = 0  # calls until the next guess
        self._wrong = 0  # how often guesses were wrong, without one that was right for long
        self._lock = threading.Lock()

    def fits(self, batch: int, block: int, generator: torch.Generator | None) -> bool:
        """Say whether this is about the same draws."""
        return self._batch == batch and self._block == block and self._generator is generator

    def take(self, tokens: Tokens, starts: list[int]) -> tuple[NDArray[Any], NDArray[Any]] | None:
        """Give the batch of these starts, which were drawn just now, if it was foreseen."""
        if not self._lock.acquire(blocking=False):
            return None  # another thread draws as well
        try:
            if self._foreseen is not None:
                if (found := self._foreseen.take(starts)) is not None:
                    x, y, wanted = found
                    if wanted:
                        self._expect(self._foreseen, wanted)
                    return x, y
                self._missed()
            elif self._guess is not None:
                if self._guess == starts:
                    self._begin(tokens)
                    return None
                self._missed()
            if self._rest:
                self._rest -= 1
            else:
                self._guess = self._draw_next(self._batch).tolist()
            return None
        finally:
            self._lock.release()

    def _begin(self, tokens: Tokens) -> None:
        """Read ahead: a guess was right."""
        self._guess = None
        self._wrong = max(0, self._wrong - 1)
        self._foreseen = tokens._foresee(self._batch, self._block)
        if self._foreseen is None:  # the budget has no room for it
            self._rest = _MOST_REST
            return
        while wanted := self._foreseen.wanted:
            self._expect(self._foreseen, wanted)

    def _missed(self) -> None:
        """Rest for a while, and twice as long the next time."""
        self._foreseen = self._guess = None
        self._rest = min(_MOST_REST, (1 << self._wrong) - 1)
        self._wrong = min(10, self._wrong + 1)

    def _expect(self, foreseen: Foreseen, wanted: int) -> None:
        assert self._copy is not None
        foreseen.expect(torch.randint(self._range, (wanted,), generator=self._copy, device=_CPU).numpy())

    def _draw_next(self, count: int) -> torch.Tensor:
        """Draw what the generator would draw now."""
        if self._copy is None:
            self._copy = torch.Generator(device="cpu")
        self._copy.set_state((self._generator or torch.default_generator).get_state())
        return torch.randint(self._range, (count,), generator=self._copy, device=_CPU)

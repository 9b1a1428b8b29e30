"""What `recall` shows for an inner render, brought up to date from the render before: a step costs what it changed."""

from __future__ import annotations

from collections.abc import Callable

from workers.history import Form, Segment
from workers.renderers.common import num_same

Show = Callable[[Segment, frozenset[int]], Segment]


class ShownRows:
    """The segments of one history's inner renders as they are shown, in step with them.

    Args:
        show: (inner segment, evicted turns) -> the segment that is shown; the same for the same arguments.
    Attributes:
        num_new: outputs shown in full by the inner renderer and not here.
        num_settled: leading segments at which nothing is left to evict, as the caller found; lowered when they change.
    """

    __slots__ = ("_evicted", "_inner", "_rows", "_show", "_stubs", "num_new", "num_settled")

    def __init__(self, show: Show) -> None:
        self._show = show
        self._inner: tuple[Segment, ...] = ()
        self._rows: list[Segment] = []
        self._stubs: list[int] = []  # positions of inner stubs: they say whether the copy they point to is stored
        self._evicted: frozenset[int] = frozenset()
        self.num_new = 0
        self.num_settled = 0

    def rows(self, inner: tuple[Segment, ...], evicted: frozenset[int]) -> tuple[Segment, ...]:
        """The segments `inner` with the turns `evicted`, which never get fewer, in the store."""
        same = num_same(self._inner, inner)
        if same < len(self._inner):
            self.num_new -= sum(map(_is_new, self._rows[same:], self._inner[same:]))
            del self._rows[same:]
            self._stubs = [position for position in self._stubs if position < same]
            self.num_settled = min(self.num_settled, same)
        self._inner = inner
        if evicted is not self._evicted:
            self._evict(evicted, evicted - self._evicted)
        for position, old in enumerate(inner[same:], start=same):
            self._rows.append(self._show(old, evicted))
            self.num_new += _is_new(self._rows[-1], old)
            if old.form is Form.stub:
                self._stubs.append(position)
        return tuple(self._rows)

    def _evict(self, evicted: frozenset[int], now: frozenset[int]) -> None:
        """Show anew what `now` changes: the turns themselves, which are near the end, and every inner stub."""
        self._evicted = evicted
        for position in self._stubs:
            self._replace(position)
        missing = set(now)
        for position in range(len(self._rows) - 1, -1, -1):
            turn = self._inner[position].first_turn
            if turn in now:
                missing.discard(turn)
                self._replace(position)
            elif not missing:
                break

    def _replace(self, position: int) -> None:
        old = self._inner[position]
        self.num_new -= _is_new(self._rows[position], old)
        self._rows[position] = self._show(old, self._evicted)
        self.num_new += _is_new(self._rows[position], old)


def _is_new(shown: Segment, inner: Segment) -> bool:
    return shown is not inner and inner.form is Form.full

"""Turns whose observations were given another text by a memo (prune, llmlingua2, agentdiet).

Each of these renderers shows every turn, and a turn's text changes only when a memo about it is appended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from workers.history import (
    Form,
    History,
    Memo,
    Segment,
    Turn,
    agent_segment,
    observation_segment,
    opening_segment,
)

Edit = Callable[[Turn, Memo], list[str]]


class EditedRows:
    """The segments of one history; only turns with a new memo are made again.

    Args:
        edit: the texts of a turn's observations as its memo has them, one per observation.
    Attributes:
        num_stubs: turns that are not shown as they first were.
        newest: the last memo that `unread` gave out.
    """

    def __init__(self, edit: Edit) -> None:
        self._edit = edit
        self._begin(None)

    def _begin(self, history: History | None) -> None:
        self._history = history
        self._segments: list[Segment] = []
        self._memos: dict[int, Memo] = {}
        self._num_read = 0
        self.num_stubs = 0
        self.newest: Memo | None = None

    def unread(self, history: History, owner: str) -> list[Memo]:
        """The memos of one owner that are new since the last call, oldest first."""
        memos = history.all_memos
        if history is not self._history or len(memos) < self._num_read:
            self._begin(history)
            self._segments.append(opening_segment(history))
        new = [memo for memo in memos[self._num_read :] if memo.owner == owner]
        self._num_read = len(memos)
        self.newest = new[-1] if new else self.newest
        return new

    def segments(self, history: History, memos: Iterable[tuple[int, Memo]], visible_from: int) -> tuple[Segment, ...]:
        """Opening and turns `visible_from`..t, with the texts of `memos` (turn, its newest memo) and earlier ones."""
        if history is not self._history:
            self._begin(history)
            self._segments.append(opening_segment(history))
        for index in range((len(self._segments) + 1) // 2, len(history) + 1):
            turn = history.turn(index)
            self._segments += (agent_segment(turn), observation_segment(turn))
        for index, memo in memos:
            if self._memos.get(index) is not memo:
                self._memos[index] = memo
                edited = self._edited(history.turn(index), memo)
                self.num_stubs += (edited.form is Form.stub) - (self._segments[2 * index].form is Form.stub)
                self._segments[2 * index] = edited
        if visible_from == 1:
            return tuple(self._segments)
        return (self._segments[0], *self._segments[2 * visible_from - 1 :])

    def _edited(self, turn: Turn, memo: Memo) -> Segment:
        texts = self._edit(turn, memo)
        is_whole = texts == [observation.shown for observation in turn.observations]
        return observation_segment(turn, texts, Form.full if is_whole else Form.stub)


def num_edited(segments: tuple[Segment, ...]) -> int:
    """Turns that are not shown as they first were."""
    return sum(segment.form is Form.stub for segment in segments)

"""The part of a ReFold render behind the boundary: it only grows, and only when the boundary advances (Eq. 7).

A turn that crosses the boundary takes its final form (folded, deduplicated or whole): a step can be named STALE only
within k steps, so nothing behind the boundary changes later. The one thing that may still change is the last note,
when the next turn to cross is folded too and joins it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum

from serving.calls import Message
from workers.history import (
    Form,
    History,
    Part,
    Segment,
    Turn,
    agent_segment,
    observation_segment,
    opening_segment,
)
from workers.renderers.refold_dedup import Deduplicator
from workers.renderers.refold_marks import Marks
from workers.renderers.refold_notes import FoldedTurn, folded_turn, note_text


class NoteRole(StrEnum):
    """Where a fold note goes in the list of messages (methods 1A.9)."""

    user = "user"
    tool_append = "tool_append"
    merge_previous = "merge_previous"


@dataclass(frozen=True, slots=True)
class NoteSettings:
    """How notes are written, see `Refold`."""

    role: NoteRole
    is_reversible: bool
    max_progress: int
    keep_test_summary: bool
    cwd: str


def labelled(turn: Turn, reminder: str | None = None) -> Segment:
    """A turn's observations in full, each under its `[step N]` line, the last one with the reminder."""
    label = turn.label
    texts = [f"[step {label}]\n{shown.head}{shown.body}{shown.tail}" for shown in turn.observations]
    if reminder is not None and texts:
        texts[-1] += f"\n\n{reminder}"
    return observation_segment(turn, texts)


class Prefix:
    """Turns `visible_from`..`boundary` of one history.

    Args:
        whole: the two segments of a turn in full, without a reminder.
    Attributes:
        segments: opening first; replaced from the last note on when that note grows.
        stubs: turns that have a stub.
    """

    def __init__(
        self,
        history: History,
        *,
        visible_from: int,
        dedup: Deduplicator | None,
        notes: NoteSettings,
        whole: Callable[[Turn], tuple[Segment, Segment]],
    ) -> None:
        self.segments: list[Segment] = [opening_segment(history)]
        self.boundary = visible_from - 1
        self.num_folded = 0
        self.num_exempt = 0
        self.stubs: set[int] = set()
        self._history = history
        self._is_whole = visible_from == 1
        self._dedup = dedup
        self._notes = notes
        self._whole = whole
        self._group: list[FoldedTurn] = []
        self._base: Segment | None = None  # the segment the open group's note is merged into, as it was before

    def advance(self, boundary: int, marks: Marks) -> None:
        """Take in the turns up to `boundary`."""
        if boundary <= self.boundary:
            return
        is_grown = False
        for index in range(self.boundary + 1, boundary + 1):
            turn = self._history.turn(index)
            if marks.is_folded(index, boundary):
                self._fold(turn)
                is_grown = True
                continue
            if is_grown:
                self._write_note()
                is_grown = False
            self._group = []
            self._add(turn, marks)
        if is_grown:
            self._write_note()
        self.boundary = boundary

    def _add(self, turn: Turn, marks: Marks) -> None:
        """A turn that keeps its place: whole, or with stubs in its observations."""
        texts: list[str | None] = []
        is_exempt = turn.index in marks.undedupable
        self.num_exempt += is_exempt or turn.index in marks.unfoldable
        if self._dedup is not None:
            if is_exempt:
                self._dedup.show(turn)
            else:
                texts = self._dedup.shorten(turn)
        if any(text is not None for text in texts):
            self.stubs.add(turn.index)
            self.segments.append(agent_segment(turn))
            shown = [
                f"[step {turn.label}]\n{observation.shown if text is None else text}"
                for text, observation in zip(texts, turn.observations, strict=True)
            ]
            self.segments.append(observation_segment(turn, shown, Form.stub))
        else:
            self.segments += self._whole(turn)

    def _fold(self, turn: Turn) -> None:
        """Let a turn join the open group, or open one."""
        if self._dedup is not None and not self._notes.is_reversible:
            self._dedup.show(turn)  # the ablation may point to any earlier turn, visible or not (methods 1A.8)
        if not self._group:
            self._base = self._merge_base()
            if self._base is None:
                self.segments.append(Segment((), turn.index, turn.index, Form.folded, Part.note))
        self._group.append(folded_turn(turn, cwd=self._notes.cwd, keep_test_summary=self._notes.keep_test_summary))
        self.num_folded += 1

    def _merge_base(self) -> Segment | None:
        """The segment whose last message takes the note in; None gives the note a message of its own."""
        if self._notes.role is NoteRole.user:
            return None
        last = self.segments[-1]
        takes_opening = self._notes.role is NoteRole.merge_previous and self._is_whole
        if not last.messages or (last.part is Part.opening and not takes_opening):
            return None
        return last

    def _write_note(self) -> None:
        """Write the open group's note in place of the last segment."""
        text = note_text(self._group, is_reversible=self._notes.is_reversible, max_progress=self._notes.max_progress)
        last_turn = self._group[-1].label + 1
        if self._base is None:
            first_turn = self._group[0].label + 1
            self.segments[-1] = Segment((Message("user", text),), first_turn, last_turn, Form.folded, Part.note)
            return
        *others, host = self._base.messages
        merged = replace(host, content=f"{host.content}\n\n{text}")
        self.segments[-1] = replace(self._base, messages=(*others, merged), last_turn=last_turn)

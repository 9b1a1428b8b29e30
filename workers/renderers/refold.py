"""ReFold: training-free, reversible folding of finished turns and deduplication of repeated outputs (arXiv 2610.07863).

The agent begins each reply with two lines, PROGRESS and STALE. Behind a boundary that advances once every k steps,
turns it named STALE become short notes and repeated output becomes stubs; between advances the prompt only grows.
Everything removed can be shown again with `restore <step>`. Signals: `refold_signals`; what follows from the turns:
`refold_marks`; the frozen part: `refold_prefix` with `refold_dedup` and `refold_notes`; prompt text: `refold_prompt`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from serving.calls import Message
from serving.interfaces import TokenCounter
from workers.history import Action, History, Memo, Observation, Rendered, Segment, Signals, Turn, agent_segment
from workers.interfaces import AuxCaller, HarnessTemplate, SignalRequest
from workers.renderers.common import Rows, Session
from workers.renderers.composing import check_least, chosen
from workers.renderers.refold_dedup import Deduplicator, DedupSettings
from workers.renderers.refold_marks import Marks, MarkSettings
from workers.renderers.refold_prefix import NoteRole, NoteSettings, Prefix, labelled
from workers.renderers.refold_prompt import with_layer
from workers.renderers.refold_signals import parse_signals, restored


class ExemptOn(StrEnum):
    """Which turns a re-execution must repeat to be kept in full (methods 1A.8)."""

    folded = "folded"
    folded_or_stubbed = "folded_or_stubbed"


@dataclass(frozen=True)
class Refold(Session):
    """Deduplicate and fold what lies behind the chunked boundary b_t = max(0, k * floor((t - k) / k)).

    Attributes:
        k: steps of a chunk, and how many steps back STALE may name.
        dedup, fold: the two operators; with both off this is `base`.
        chunked: False recomputes the boundary t - k at every step (ablation).
        reversible: False takes `restore`, exemptions and the visible-target rule away (ablation).
        reminders: remind the agent after a reply without the PROGRESS line.
        min_span_lines, min_span_chars: shortest repeated run of a file read, shortest span a stub replaces.
        signature_lines: stubs of at least so many lines keep top-level signatures.
        exempt_on: which compressed turns a re-execution must repeat to be exempt.
        exempt_min_chars: shortest output that counts as a repetition by its text alone.
        pin_restored: restored outputs are never folded either (they are never deduplicated).
        note_role: message that carries a fold note.
        max_progress: PROGRESS texts in a note, the newest; 0 keeps all.
        keep_test_summary: notes keep the last output line of runs and tests.
        cwd: directory a command starts in; relative paths are seen from there.
    Invariants: between two advances a prompt starts with the one before; a stub's target is visible in full in the
        same render and not before `visible_from`; behind the boundary nothing changes but the last note.
    Source: ReFold (arXiv 2610.07863) section 3 and appendix C; choices as in methods 1A.
    """

    k: int = 3
    dedup: bool = True
    fold: bool = True
    chunked: bool = True
    reversible: bool = True
    reminders: bool = True
    min_span_lines: int = 3
    min_span_chars: int = 200
    signature_lines: int = 40
    exempt_on: ExemptOn = ExemptOn.folded
    exempt_min_chars: int = 200
    pin_restored: bool = True
    note_role: NoteRole = NoteRole.user
    max_progress: int = 0
    keep_test_summary: bool = False
    cwd: str = "/testbed"

    REVISION: ClassVar[int] = 1

    def __post_init__(self) -> None:
        for name in ("k", "min_span_lines", "min_span_chars", "exempt_min_chars"):
            check_least("refold", name, getattr(self, name), 1)
        for name in ("signature_lines", "max_progress"):
            check_least("refold", name, getattr(self, name), 0)
        object.__setattr__(self, "exempt_on", chosen("refold", "exempt_on", self.exempt_on, ExemptOn))
        object.__setattr__(self, "note_role", chosen("refold", "note_role", self.note_role, NoteRole))

    @property
    def signals(self) -> SignalRequest | None:
        """The two lines, when there is anything to fold."""
        return SignalRequest("stale", self.k) if self.fold else None

    @property
    def is_reversible(self) -> bool:
        """Whether `restore` shows removed text again."""
        return self.reversible

    @property
    def is_active(self) -> bool:
        """Whether either operator is on; otherwise nothing is labelled and the prompt is the harness's."""
        return self.dedup or self.fold

    def start(self, *, counter: TokenCounter, budget_tokens: int, path: str) -> None:
        """Begin a session; needs neither counter nor budget."""
        self._begin(RefoldCache(self, path))

    def prompt_layer(self, template: HarnessTemplate) -> HarnessTemplate:
        """The paragraph on context management and the two-line protocol."""
        if not self.is_active:
            return template
        return with_layer(template, k=self.k, folds=self.fold, is_reversible=self.reversible)

    def read_reply(self, reply: Message) -> Signals:
        """The PROGRESS and STALE lines of the reply's content (not of its reasoning field)."""
        return parse_signals(reply.content, asked=self.fold)

    def intercept(self, history: History, action: Action) -> Observation | None:
        """Answer `restore ...` from the history."""
        if not (self.reversible and self.is_active):
            return None
        return restored(history, action.command, action.tool_call_id)

    async def observe(self, history: History, seen: Rendered, aux: AuxCaller) -> tuple[Memo, ...]:
        """Read the newest turn; a memo only when it repeats what an outer renderer had summarized."""
        cache: RefoldCache = self._cache
        marks = cache.marks_of(history)
        return marks.memos(history.turn(len(history)), seen)

    def render(self, history: History, visible_from: int = 1) -> Rendered:
        """The frozen part up to b_t, then the protected turns in full."""
        cache: RefoldCache = self._cache
        if not self.is_active:
            rows = cache.rows
            return Rendered(tuple(rows.opening(history) + rows.between(history, visible_from, len(history))))
        marks = cache.marks_of(history)
        num_turns = len(history)
        boundary = self.boundary(num_turns)
        prefix = cache.prefix(visible_from)
        prefix.advance(boundary, marks)
        protected = cache.protected(max(boundary + 1, visible_from), num_turns)
        if boundary > cache.num_forgotten:
            cache.forget(boundary)
        return Rendered(
            tuple(prefix.segments + protected),
            boundary=boundary,
            num_folded=prefix.num_folded,
            num_stubs=len(prefix.stubs),
            num_exempt=prefix.num_exempt,
        )

    def boundary(self, num_turns: int) -> int:
        """b_t after t = `num_turns` completed turns (Eq. 6); turns up to it may be compressed."""
        if not self.chunked:
            return max(0, num_turns - self.k)
        return max(0, (num_turns // self.k - 1) * self.k)


class RefoldCache:
    """What one session's renders share. Follows one history; everything in it can be made again from that history."""

    def __init__(self, settings: Refold, path: str) -> None:
        self.rows = Rows()
        self._settings = settings
        self._path = path
        self._begin(None)

    def _begin(self, history: History | None) -> None:
        settings = self._settings
        self._history = history
        self._prefixes: dict[int, Prefix] = {}
        self._protected: dict[int, tuple[Segment, Segment]] = {}
        self.num_forgotten = 0
        is_literal = settings.exempt_on is ExemptOn.folded_or_stubbed and settings.dedup
        self._marks = Marks(
            MarkSettings(
                k=settings.k,
                owner=self._path,
                folds=settings.fold,
                is_reversible=settings.reversible,
                pin_restored=settings.pin_restored,
                reminders=settings.reminders,
                exempt_min_chars=settings.exempt_min_chars,
                boundary=settings.boundary,
                stubs_before=self._stubs_before if is_literal else None,
            )
        )

    def marks_of(self, history: History) -> Marks:
        """The forward pass over `history`, up to its newest turn."""
        if history is not self._history:
            self._begin(history)
        self._marks.read(history)
        return self._marks

    def prefix(self, visible_from: int) -> Prefix:
        """The frozen part that begins at turn `visible_from`; only the newest one beside the whole one is kept."""
        prefix = self._prefixes.get(visible_from)
        if prefix is None:
            whole = self._prefixes.get(1)
            self._prefixes = {} if whole is None else {1: whole}
            prefix = self._prefixes[visible_from] = self._new_prefix(visible_from)
        return prefix

    def protected(self, first: int, last: int) -> list[Segment]:
        """The segments of turns `first`..`last` in full, with their reminders."""
        assert self._history is not None
        segments: list[Segment] = []
        for index in range(first, last + 1):
            pair = self._protected.get(index)
            if pair is None:
                turn = self._history.turn(index)
                pair = agent_segment(turn), labelled(turn, self._marks.reminders.get(index))
                self._protected[index] = pair
            segments += pair
        return segments

    def forget(self, boundary: int) -> None:
        """Let go of turns up to `boundary`: what is shown of them is in the prefix."""
        for index in range(self.num_forgotten + 1, boundary + 1):
            self._protected.pop(index, None)
        self.num_forgotten = boundary

    def _whole(self, turn: Turn) -> tuple[Segment, Segment]:
        """The segments of a turn that crosses the boundary whole; the same as before unless it was reminded."""
        pair = self._protected.get(turn.index)
        if pair is None or turn.index in self._marks.reminders:
            return agent_segment(turn), labelled(turn)
        return pair

    def _stubs_before(self, index: int) -> set[int]:
        """Turns that were stubs in the prompt that turn `index` answers, as far as this renderer alone decides."""
        prefix = self.prefix(1)
        prefix.advance(self._settings.boundary(index - 1), self._marks)
        return prefix.stubs

    def _new_prefix(self, visible_from: int) -> Prefix:
        settings = self._settings
        assert self._history is not None
        dedup = Deduplicator(
            DedupSettings(
                min_span_lines=settings.min_span_lines,
                min_span_chars=settings.min_span_chars,
                signature_lines=settings.signature_lines,
                is_reversible=settings.reversible,
                cwd=settings.cwd,
            )
        )
        return Prefix(
            self._history,
            visible_from=visible_from,
            dedup=dedup if settings.dedup else None,
            notes=NoteSettings(
                role=settings.note_role,
                is_reversible=settings.reversible,
                max_progress=settings.max_progress,
                keep_test_summary=settings.keep_test_summary,
                cwd=settings.cwd,
            ),
            whole=self._whole,
        )

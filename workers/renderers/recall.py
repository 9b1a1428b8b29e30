"""recall: move old observations to a store when the prompt nears the budget; `recall <id>` shows one again.

Modelled on ARC as ReFold's appendix B.1 describes it. What is evicted is decided on an estimate when a turn is
observed, and kept as a memo; the text itself never leaves the history. Composes over any renderer.
"""

from __future__ import annotations

import re
from dataclasses import InitVar, dataclass, replace
from typing import ClassVar

from serving.interfaces import TokenCounter
from workers.history import (
    Action,
    Form,
    History,
    Memo,
    Observation,
    Part,
    Rendered,
    Segment,
    Turn,
    TurnKind,
    observation_segment,
)
from workers.interfaces import AuxCaller, HarnessTemplate, Renderer
from workers.renderers.common import num_lines
from workers.renderers.composing import (
    Composed,
    Estimate,
    check_least,
    check_share,
    estimate_next,
    hidden_by_others,
    one_line,
    segment_tokens,
    with_memos,
)
from workers.renderers.prompt_layers import with_paragraph
from workers.renderers.recall_rows import ShownRows
from workers.renderers.refold_dedup import with_stored_targets
from workers.renderers.refold_signals import restored

EVICTION = "evict"
MAX_COMMAND_CHARS = 80  # of the command in a placeholder, [choice]
_RECALL = re.compile(r"\s*recall\s+(\d{1,9})\s*")
_LAYER = (
    "Context store: when the conversation grows long, the harness moves older tool outputs to a store and leaves a "
    "`[context-manager]` line with the step, its command and the size in their place. That line is NOT a shell error. "
    "The bash command `recall <step>` (for example `recall 4`) shows such an output again exactly as first shown, "
    "without running anything. Recall only what your next step needs, since each recall adds a step."
)


@dataclass(frozen=True)
class Recall(Composed):
    """Evict the oldest long observations once the estimated prompt passes `trigger_share` of the budget B.

    The id of an evicted output is its step number. `recall` answers for every past step, evicted or not, so that
    everything an inner renderer removed can be shown again too.

    Attributes:
        trigger_share: share of B above which eviction begins.
        target_share: share of B below which it ends.
        keep_recent: newest observations that stay.
        shrink_share: share of B above which fewer than `keep_recent` stay. At `target_share` this is the paper's
            letter, and `keep_recent` then decides nothing, because eviction goes from old to new anyway; 0.75 lets the
            six newest stay unless the prompt would pass the trigger again.
        min_chars: shortest observation that is evicted.
        lookup_s: declared seconds of one lookup.
        inner: the renderer beneath.
    Invariants: the newest observation is never evicted; a placeholder is shorter than what it replaces; an inner stub
        whose copy is evicted says so.
    Source: ReFold (arXiv 2610.07863) appendix B.1, modelled on ARC (arXiv 2607.25066).
    """

    trigger_share: float = 0.75
    target_share: float = 0.6
    keep_recent: int = 6
    shrink_share: float = 0.6
    min_chars: int = 500
    lookup_s: float = 0.1
    inner: InitVar[Renderer | None] = None

    REVISION: ClassVar[int] = 1

    def __post_init__(self, inner: Renderer | None) -> None:
        for key in ("trigger_share", "target_share", "shrink_share"):
            check_share("recall", key, getattr(self, key))
        for key, least in (("keep_recent", 1), ("min_chars", 1), ("lookup_s", 0)):
            check_least("recall", key, getattr(self, key), least)
        for key in ("trigger_share", "shrink_share"):
            check_least("recall", key, getattr(self, key), self.target_share)
        self._hold(inner)

    @property
    def is_reversible(self) -> bool:
        """Every past output can be recalled."""
        return True

    def start(self, *, counter: TokenCounter, budget_tokens: int, path: str) -> None:
        """Begin a session."""
        self._start_inner(counter=counter, budget_tokens=budget_tokens, path=path)
        self._begin(RecallCache(counter, budget_tokens, path, self.min_chars))

    def prompt_layer(self, template: HarnessTemplate) -> HarnessTemplate:
        """The inner layer, and a paragraph on the store in the system prompt."""
        return with_paragraph(self._inner.prompt_layer(template), _LAYER)

    def intercept(self, history: History, action: Action) -> Observation | None:
        """Answer `recall <id>`; everything else goes to the inner renderer."""
        match = _RECALL.fullmatch(action.command)
        if match is None:
            return self._inner.intercept(history, action)
        label = int(match[1])
        if label < len(history):
            return restored(history, f"restore {label}", action.tool_call_id)
        known = f"steps 0 to {len(history) - 1} exist" if len(history) else "no step exists yet"
        text = f"[context-manager] recall: there is no step {label}; {known}."
        return Observation(text, tool_call_id=action.tool_call_id)

    async def observe(self, history: History, seen: Rendered, aux: AuxCaller) -> tuple[Memo, ...]:
        """Evict when the next prompt would pass the trigger."""
        inner_memos = await self._inner.observe(history, seen, aux)
        memo = self._evict(with_memos(history, inner_memos), seen)
        return inner_memos if memo is None else (*inner_memos, memo)

    def render(self, history: History, visible_from: int = 1) -> Rendered:
        """The inner render with placeholders for what was evicted."""
        cache: RecallCache = self._cache
        turns = cache.evicted(history)
        key = len(history), cache.num_memos, visible_from
        if cache.newest is None or cache.newest[0] != key:
            cache.newest = key, self._rendered(history, visible_from, turns)
        return cache.newest[1]

    def _rendered(self, history: History, visible_from: int, evicted: frozenset[int]) -> Rendered:
        inner = self._inner.render(history, visible_from)
        own_s = inner.own_s_modelled + self.lookup_s * _lookups(history)
        if not evicted:
            return replace(inner, own_s_modelled=own_s) if own_s else inner
        rows = self._cache.rows
        segments = rows.rows(inner.segments, evicted)
        return replace(inner, segments=segments, num_stubs=inner.num_stubs + rows.num_new, own_s_modelled=own_s)

    def _evict(self, history: History, seen: Rendered) -> Memo | None:
        cache: RecallCache = self._cache
        own = self.render(history)
        hidden = hidden_by_others(seen, own)
        if hidden:
            own = self.render(history, hidden + 1)
        estimate = estimate_next(history, seen, own, cache.counter, hidden=hidden)
        if estimate.tokens <= self.trigger_share * cache.budget_tokens:
            return None
        turns, left_tokens = self._choose(history, own, estimate)
        if not turns:
            return None
        return Memo(
            cache.path,
            EVICTION,
            len(history),
            {
                "turns": turns,
                "estimate_tokens": estimate.tokens,
                "last_prompt_tokens": estimate.last_prompt_tokens,
                "left_tokens": left_tokens,
            },
        )

    def _choose(self, history: History, own: Rendered, estimate: Estimate) -> tuple[list[int], int]:
        """The turns to evict, oldest first, and the estimate after them."""
        cache: RecallCache = self._cache
        evicted = cache.evicted(history)
        left, turns = estimate.tokens, list[int]()
        first = cache.rows.num_settled if evicted else 0
        for position, segment in enumerate(own.segments[first:], start=first):
            turn = segment.first_turn
            is_protected = turn > len(history) - self.keep_recent
            limit_share = self.shrink_share if is_protected else self.target_share
            if left < limit_share * cache.budget_tokens or turn == len(history):
                break
            is_candidate = segment.part is Part.observation and turn not in evicted
            stub = cache.placeholder(history, segment) if is_candidate else segment
            if stub is not segment:
                turns.append(turn)
                left += segment_tokens([stub], cache.counter) - segment_tokens([segment], cache.counter)
            elif evicted and not turns:
                cache.rows.num_settled = position + 1  # whatever is evicted later, it is none of these
        return turns, left


def _lookups(history: History) -> int:
    """The lookups of the newest turn: their time is spent before the next call."""
    if not len(history):
        return 0
    turn = history.turn(len(history))
    if turn.kind is not TurnKind.recall:
        return 0
    return sum(_RECALL.fullmatch(action.command) is not None for action in turn.actions)


def placeholder(turn: Turn, observation: Observation, command: str) -> str:
    """One line in place of an evicted output: index, command, size."""
    return (
        f"[context-manager] output of step {turn.label} is stored: `{one_line(command, MAX_COMMAND_CHARS)}`, "
        f"{len(observation.body)} characters in {num_lines(observation.body)} lines. "
        f"`recall {turn.label}` shows it again."
    )


class RecallCache:
    """One session's collaborators and the placeholders made so far, by segment."""

    def __init__(self, counter: TokenCounter, budget_tokens: int, path: str, min_chars: int) -> None:
        self.counter = counter
        self.budget_tokens = budget_tokens
        self.path = path
        self._min_chars = min_chars
        self._made: dict[int, tuple[Segment, Segment]] = {}  # turn -> its segment and the one that replaces it
        self._pointers: dict[
            int, tuple[Segment, frozenset[int], Segment]
        ] = {}  # the same for stubs, and for which turns
        self._begin(None)

    def _begin(self, history: History | None) -> None:
        self._history = history
        self.num_memos = 0
        self.newest: tuple[tuple[int, int, int], Rendered] | None = None  # turns, memos, visible_from -> the render
        self._evicted: frozenset[int] = frozenset()
        self.rows = ShownRows(self.shown)

    def evicted(self, history: History) -> frozenset[int]:
        """All turns evicted so far; the same object until there is one more."""
        memos = history.all_memos
        if history is not self._history or len(memos) < self.num_memos:
            self._begin(history)
        own = [memo for memo in memos[self.num_memos :] if memo.owner == self.path and memo.kind == EVICTION]
        self.num_memos = len(memos)
        if own:
            self._evicted = self._evicted.union(*(memo.data["turns"] for memo in own))
        return self._evicted

    def shown(self, segment: Segment, evicted: frozenset[int]) -> Segment:
        """A segment of the inner render as it is shown once `evicted` turns are in the store."""
        if segment.part is not Part.observation:
            return segment
        if segment.first_turn in evicted:
            assert self._history is not None
            return self.placeholder(self._history, segment)
        return self._pointing(segment, evicted) if segment.form is Form.stub else segment

    def _pointing(self, segment: Segment, evicted: frozenset[int]) -> Segment:
        """An inner stub whose notes say when the copy they point to is stored; the same object as long as it can be."""
        made = self._pointers.get(segment.first_turn)
        if made is not None and made[0] is segment and made[1] == evicted:
            return made[2]
        texts = [with_stored_targets(message.content, evicted) for message in segment.messages]
        messages = tuple(replace(old, content=text) for old, text in zip(segment.messages, texts, strict=True))
        now = segment if messages == segment.messages else replace(segment, messages=messages)
        if made is not None and made[0] is segment and made[2].messages == messages:
            now = made[2]
        self._pointers[segment.first_turn] = segment, evicted, now
        return now

    def placeholder(self, history: History, segment: Segment) -> Segment:
        """The segment with placeholders for its long outputs; itself when there is none to replace.

        A segment that also carries a fold note, or that belongs to a turn without a command, stays as it is.
        """
        made = self._made.get(segment.first_turn)
        if made is not None and made[0] is segment:
            return made[1]
        stub = self._stub(history.turn(segment.first_turn), segment)
        self._made[segment.first_turn] = segment, stub
        return stub

    def _stub(self, turn: Turn, segment: Segment) -> Segment:
        if segment.first_turn != segment.last_turn or len(turn.actions) != len(segment.messages):
            return segment
        texts = []
        for action, observation, message in zip(turn.actions, turn.observations, segment.messages, strict=True):
            line = placeholder(turn, observation, action.command)
            is_long = len(observation.shown) >= self._min_chars and len(message.content) > len(line)
            texts.append(line if is_long else message.content)
        if texts == [message.content for message in segment.messages]:
            return segment
        return observation_segment(turn, texts, Form.stub)

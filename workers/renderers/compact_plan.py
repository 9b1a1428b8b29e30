"""Which turns a summary takes in: the arithmetic of `compact`, pure over a render (ReFold appendix B.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from serving.interfaces import TokenCounter
from workers.history import Form, Rendered, Segment
from workers.renderers.composing import segment_tokens


@dataclass(frozen=True, slots=True)
class PlanLimits:
    """What a plan has to keep, in tokens; see `Compact`.

    fit_tokens: longest prompt after the summary before protection shrinks. stacked_tokens: of the summaries that stand.
    """

    num_turns: int
    estimate_tokens: int
    stacked_tokens: int
    budget_tokens: int
    cap_tokens: int
    share: float
    keep_recent: int
    fit_tokens: float
    max_stacked_tokens: float


@dataclass(frozen=True, slots=True)
class CompactPlan:
    """The turns a summary will stand for.

    Attributes:
        first_turn, last_turn: 1-based, earlier summaries' turns included when they are taken in.
        num_segments: segments of the render up to `last_turn`.
        num_protected: newest turns that were out of reach.
        num_earlier, num_absorbed: standing summaries, and those taken in.
        num_turns: turns of the history.
    """

    first_turn: int
    last_turn: int
    num_segments: int
    num_protected: int
    num_earlier: int
    num_absorbed: int
    num_turns: int


class Unit(NamedTuple):
    """The smallest run of segments that cannot be parted: one turn, or the turns of one fold note.

    end: index behind its last segment.
    """

    first_turn: int
    last_turn: int
    end: int
    tokens: int


def make_plan(own: Rendered, counter: TokenCounter, limits: PlanLimits) -> CompactPlan | None:
    """Choose the oldest units that hold `share` of the unsummarized tokens, without the protected turns.

    Protection shrinks from `keep_recent` to 1 until the prompt after the summary (of the longest allowed length) fits;
    when it never fits, everything but the newest turn is taken.

    Returns:
        None when there is nothing to take, or so little that its summary could be longer (unless the prompt is over
        the budget already).
    """
    summaries = [segment for segment in own.segments if segment.form is Form.summary]
    units = units_of(own.segments, counter, start=1 + len(summaries))
    absorbed = limits.stacked_tokens if limits.stacked_tokens > limits.max_stacked_tokens else 0
    choice, num_protected = _choose(units, limits, absorbed)
    if not choice:
        return None
    saved = sum(unit.tokens for unit in choice) + absorbed
    if saved <= limits.cap_tokens and limits.estimate_tokens <= limits.budget_tokens:
        return None
    return CompactPlan(
        first_turn=summaries[0].first_turn if absorbed else choice[0].first_turn,
        last_turn=choice[-1].last_turn,
        num_segments=choice[-1].end,
        num_protected=num_protected,
        num_earlier=len(summaries),
        num_absorbed=len(summaries) if absorbed else 0,
        num_turns=limits.num_turns,
    )


def units_of(segments: tuple[Segment, ...], counter: TokenCounter, *, start: int) -> list[Unit]:
    """The units of `segments[start:]`, oldest first; overlapping turn ranges make one unit."""
    units: list[Unit] = []
    for index in range(start, len(segments)):
        segment = segments[index]
        tokens = segment_tokens([segment], counter)
        if units and segment.first_turn <= units[-1].last_turn:
            last = units[-1]
            turn = max(last.last_turn, segment.last_turn)
            units[-1] = Unit(last.first_turn, turn, index + 1, last.tokens + tokens)
        else:
            units.append(Unit(segment.first_turn, segment.last_turn, index + 1, tokens))
    return units


def _choose(units: list[Unit], limits: PlanLimits, absorbed: int) -> tuple[list[Unit], int]:
    wanted = limits.share * sum(unit.tokens for unit in units)
    reach: list[Unit] = []
    for num_protected in range(limits.keep_recent, 0, -1):
        reach = [unit for unit in units if unit.last_turn <= limits.num_turns - num_protected]
        choice = _oldest(reach, wanted)
        left = limits.estimate_tokens - sum(unit.tokens for unit in choice) - absorbed + limits.cap_tokens
        if choice and left <= limits.fit_tokens:
            return choice, num_protected
    return reach, 1


def _oldest(units: list[Unit], wanted: float) -> list[Unit]:
    """The fewest units from the oldest on that hold `wanted` tokens, or all."""
    tokens = 0
    for number, unit in enumerate(units, start=1):
        tokens += unit.tokens
        if tokens >= wanted:
            return units[:number]
    return units

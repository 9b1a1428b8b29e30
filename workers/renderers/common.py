"""What several renderers share: quiet defaults for the seam, and segments that are made once per turn.

Not a renderer itself. A renderer without signals, interception and memos subclasses `Quiet` and writes `render`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import compress, count
from operator import is_not
from typing import Any

from serving.calls import Message
from workers.history import (
    NO_SIGNALS,
    Action,
    History,
    Memo,
    Observation,
    Rendered,
    Segment,
    Signals,
    Turn,
    agent_segment,
    observation_segment,
    opening_segment,
)
from workers.interfaces import AuxCaller, HarnessTemplate, SignalRequest


def num_lines(text: str) -> int:
    """Lines of an output as an editor sees them: parted by line feeds alone, an unfinished last one counts.

    `str.splitlines` would also part at form feeds, carriage returns and U+2028, which are text inside a line.
    """
    return text.count("\n") + (bool(text) and not text.endswith("\n"))


def num_same(first: Sequence[Segment], second: Sequence[Segment]) -> int:
    """How many leading segments of two prompts are the very same objects; without a Python step per segment."""
    return next(compress(count(), map(is_not, first, second)), min(len(first), len(second)))


class Session:
    """Holds the cache of one session outside the dataclass fields of a frozen renderer.

    A plain class, so that the dataclass machinery sees settings only; not generic, because OmegaConf 2.3 reads the type
    arguments of a structured class's first base as key and value types.
    """

    _cache: Any

    def _begin(self, cache: Any) -> None:
        object.__setattr__(self, "_cache", cache)


class Quiet:
    """The seam of a renderer that asks nothing, answers nothing and remembers nothing."""

    @property
    def signals(self) -> SignalRequest | None:
        """Asks nothing of the replies."""
        return None

    @property
    def is_reversible(self) -> bool:
        """What it removes stays removed."""
        return False

    def prompt_layer(self, template: HarnessTemplate) -> HarnessTemplate:
        """Leaves the harness's prompt as it is."""
        return template

    def read_reply(self, reply: Message) -> Signals:
        """Reads nothing."""
        return NO_SIGNALS

    def intercept(self, history: History, action: Action) -> Observation | None:
        """Passes every action on."""
        return None

    async def observe(self, history: History, seen: Rendered, aux: AuxCaller) -> tuple[Memo, ...]:
        """Decides nothing that turns do not already say."""
        return ()


class Rows:
    """The two segments (agent, observation) of each turn, made once by `observation` and kept in order.

    For renderers whose form of a turn, once it is chosen, stays: all turns in full, or the turns behind a boundary
    that only moves forward. The cache follows one history and starts again when it is given another one.
    """

    __slots__ = ("_history", "_num_forgotten", "_observation", "_segments")

    def __init__(self, observation: Callable[[Turn], Segment] = observation_segment) -> None:
        self._observation = observation
        self._history: History | None = None
        self._segments: list[Segment] = []
        self._num_forgotten = 0

    def _sync(self, history: History, until: int) -> list[Segment]:
        if history is not self._history:
            self._history = history
            self._segments = [opening_segment(history)]
            self._num_forgotten = 0
        segments = self._segments
        for index in range(self._num_forgotten + (len(segments) + 1) // 2, until + 1):
            segments += self._made(history.turn(index))
        return segments

    def _made(self, turn: Turn) -> tuple[Segment, Segment]:
        return agent_segment(turn), self._observation(turn)

    def forget(self, until: int) -> None:
        """Let go of turns up to `until`; one that is asked for after all is made again."""
        num_turns = min(until - self._num_forgotten, len(self._segments) // 2)
        if num_turns > 0:
            del self._segments[1 : 2 * num_turns + 1]
            self._num_forgotten += num_turns

    def opening(self, history: History) -> list[Segment]:
        """The opening segment, in a new list."""
        return self._sync(history, 0)[:1]

    def between(self, history: History, first: int, last: int) -> list[Segment]:
        """The segments of turns `first`..`last` (1-based, both ends included), in a new list."""
        if last < first:
            return []
        segments, shift = self._sync(history, last), self._num_forgotten
        again = [made for index in range(first, min(shift, last) + 1) for made in self._made(history.turn(index))]
        first = max(first, shift + 1)
        return again + segments[2 * (first - shift) - 1 : max(0, 2 * (last - shift)) + 1]


class TwoZones:
    """Old turns in a short form, the newest in full, parted by a boundary (clip, mask).

    Args:
        shorten: the observation segment of a turn behind the boundary; it returns a `full` one when it saves nothing.
    """

    __slots__ = ("_full", "_old")

    def __init__(self, shorten: Callable[[Turn], Segment]) -> None:
        self._full = Rows()
        self._old = Rows(shorten)

    def render(self, history: History, *, boundary: int, visible_from: int) -> Rendered:
        """Opening, turns up to `boundary` in the short form, the others in full."""
        last = len(history)
        old = self._old.between(history, visible_from, boundary)
        segments = self._full.opening(history) + old
        segments += self._full.between(history, max(boundary + 1, visible_from), last)
        self._full.forget(boundary)
        num_stubs = sum(segment.form == "stub" for segment in old)
        return Rendered(tuple(segments), boundary=boundary, num_stubs=num_stubs)

"""What became of observation tokens that a renderer took out of a prompt (ReFold appendix B.3, Figure 2f).

For every prompt, each observation token of the history that the prompt lacks is recoverable (the renderer can show it
again), reproducible (it came from a file read and nothing changed the file since) or irrecoverable. A token counts
once for every prompt it is missing from; a shorter text in its place is not subtracted.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from serving.interfaces import TokenCounter
from workers.history import Form, History, Part, Rendered, Segment, Turn
from workers.shell_reads import parse_read
from workers.shell_writes import parse_writes


@dataclass(frozen=True, slots=True)
class RemovedTokens:
    """Observation tokens missing from one prompt, by fate."""

    recoverable: int = 0
    reproducible: int = 0
    irrecoverable: int = 0


@dataclass(slots=True)
class _TurnFate:
    """One turn's observations.

    num_tokens: as first shown. num_shown: in the newest prompt. paths: files read, empty when not all commands read.
    """

    num_tokens: int
    num_shown: int
    paths: tuple[str, ...]
    stub: Segment | None = None
    num_stub_tokens: int = 0


class FateTracker:
    """Follows one session; each call costs as much as changed since the call before.

    Invariant: recoverable + reproducible + irrecoverable = observation tokens of the history - those shown.
    """

    def __init__(self) -> None:
        self._history: History | None = None
        self._begin(None)

    def _begin(self, history: History | None) -> None:
        self._history = history
        self._turns: list[_TurnFate] = []
        self._segments: tuple[Segment, ...] = ()
        self._num_missing = 0
        self._num_reproducible = 0  # missing tokens of turns that have `paths`

    def removed(
        self, history: History, rendered: Rendered, counter: TokenCounter, is_reversible: bool
    ) -> RemovedTokens:
        """The fate of what `rendered`, the prompt made from `history`, lacks.

        With `is_reversible` the renderer can show everything it removed, so all of it is recoverable.
        """
        if history is not self._history or len(history) < len(self._turns):
            self._begin(history)
        for index in range(len(self._turns) + 1, len(history) + 1):
            self._add_turn(history.turn(index), counter)
        self._follow(history, rendered.segments)
        if is_reversible:
            return RemovedTokens(recoverable=self._num_missing)
        return RemovedTokens(
            reproducible=self._num_reproducible, irrecoverable=self._num_missing - self._num_reproducible
        )

    def _add_turn(self, turn: Turn, counter: TokenCounter) -> None:
        for action in turn.actions:
            writes = parse_writes(action.command)
            if writes.anything or writes.paths:
                for earlier in self._turns:
                    if earlier.paths and any(writes.touches(path) for path in earlier.paths):
                        self._num_reproducible -= earlier.num_tokens - earlier.num_shown
                        earlier.paths = ()
        reads = [parse_read(action.command) for action in turn.actions]
        paths = tuple(read.path for found in reads for read in found) if reads and all(reads) else ()
        num_tokens = sum(counter.count_text(observation.shown) for observation in turn.observations)
        self._turns.append(_TurnFate(num_tokens, 0, paths))
        self._num_missing += num_tokens
        self._num_reproducible += num_tokens if paths else 0

    def _follow(self, history: History, segments: tuple[Segment, ...]) -> None:
        """Move from the segments of the last prompt to `segments`; equal objects at the start are passed over."""
        before = self._segments
        same = 0
        for old, new in zip(before, segments, strict=False):
            if old is not new:
                break
            same += 1
        for segment in before[same:]:
            if segment.part is Part.observation:
                self._show(self._turns[segment.first_turn - 1], 0)
        for segment in segments[same:]:
            if segment.part is Part.observation:
                self._show(self._turns[segment.first_turn - 1], self._shown_tokens(history, segment))
        self._segments = segments

    def _show(self, fate: _TurnFate, num_shown: int) -> None:
        change = num_shown - fate.num_shown
        fate.num_shown = num_shown
        self._num_missing -= change
        if fate.paths:
            self._num_reproducible -= change

    def _shown_tokens(self, history: History, segment: Segment) -> int:
        fate = self._turns[segment.first_turn - 1]
        if segment.form is Form.full:
            return fate.num_tokens
        if fate.stub is not segment:
            turn = history.turn(segment.first_turn)
            first_shown = "\n".join(observation.shown for observation in turn.observations)
            rendered = "\n".join(message.content for message in segment.messages)
            fate.stub = segment
            fate.num_stub_tokens = round(fate.num_tokens * kept_share(first_shown, rendered))
        return fate.num_stub_tokens


def kept_share(text: str, shortened: str) -> float:
    """Share of the characters of `text` that are still in `shortened`.

    What both begin and end with is kept, and in between every whole line that both have. [choice] tokens are taken as
    spread evenly over characters.
    """
    if not text:
        return 1.0
    start = _common_prefix(text, shortened)
    limit = min(len(text), len(shortened)) - start
    end = min(limit, _common_prefix(text[::-1], shortened[::-1]))
    left = Counter(shortened[start : len(shortened) - end].split("\n"))
    kept = start + end
    for line in text[start : len(text) - end].split("\n"):
        if left[line] > 0:
            left[line] -= 1
            kept += len(line) + 1
    return min(1.0, kept / len(text))


def _common_prefix(first: str, second: str) -> int:
    """Length of the longest common prefix, by bisection over slices."""
    low, high = 0, min(len(first), len(second))
    while low < high:
        middle = (low + high + 1) // 2
        if first[low:middle] == second[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low

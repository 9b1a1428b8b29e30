"""What the renderers that work on another one's output share (compact, recall, memory), and the prompt estimate.

An outer renderer hands on what it does not do itself: signals, prompt layer, interception, observation. It works on the
inner one's segments and never on the turns behind them, so that what the inner one folded stays folded.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple, TypeVar

from serving.calls import Message
from serving.interfaces import TokenCounter
from workers.errors import ConfigurationError
from workers.history import Action, Form, History, Memo, Observation, Rendered, Segment, Signals
from workers.interfaces import AuxCaller, HarnessTemplate, Renderer, SignalRequest
from workers.renderers.base import Base
from workers.renderers.common import Session, num_same

# Rendered anew at the end of every prompt: whatever the next prompt is, it has one of about the same size.
_TRANSIENT = (Form.memory, Form.state)

Choice = TypeVar("Choice", bound=StrEnum)


class BlockRole(StrEnum):
    """Where an inserted text goes in the list of messages, as in ReFold's notes (methods 1A.9)."""

    user = "user"
    merge_previous = "merge_previous"


class Composed(Session):
    """Delegates the whole seam to the inner renderer, `base` when none is given.

    A subclass declares `inner: InitVar[Renderer | None] = None`, calls `_hold` in its `__post_init__` and
    `_start_inner` in its `start`, and overrides what it does itself.
    """

    _inner: Renderer

    def _hold(self, inner: Renderer | None) -> None:
        object.__setattr__(self, "_inner", Base() if inner is None else inner)

    def _start_inner(self, *, counter: TokenCounter, budget_tokens: int, path: str) -> None:
        self._inner.start(counter=counter, budget_tokens=budget_tokens, path=f"{path}.inner")

    @property
    def signals(self) -> SignalRequest | None:
        """What the inner renderer asks."""
        return self._inner.signals

    @property
    def is_reversible(self) -> bool:
        """Whether the inner renderer can show removed text again."""
        return self._inner.is_reversible

    def prompt_layer(self, template: HarnessTemplate) -> HarnessTemplate:
        """The inner renderer's layer."""
        return self._inner.prompt_layer(template)

    def read_reply(self, reply: Message) -> Signals:
        """The inner renderer's signals."""
        return self._inner.read_reply(reply)

    def intercept(self, history: History, action: Action) -> Observation | None:
        """The inner renderer's answer."""
        return self._inner.intercept(history, action)

    async def observe(self, history: History, seen: Rendered, aux: AuxCaller) -> tuple[Memo, ...]:
        """The inner renderer's memos."""
        return await self._inner.observe(history, seen, aux)


def with_memos(history: History, memos: tuple[Memo, ...]) -> History:
    """The history as it will be once `memos` are appended; the very same object when there are none."""
    if not memos:
        return history
    copy = History(history.opening)
    for turn in history.turns:
        copy.append(turn)
    copy.extend((*history.all_memos, *memos))
    return copy


class Estimate(NamedTuple):
    """The expected length of the next prompt.

    tokens: the last prompt as the engine counted it, and the counter's difference to the next one.
    last_prompt_tokens: that count, None before the first usage (then `tokens` is the counter's alone).
    """

    tokens: int
    last_prompt_tokens: int | None


def estimate_next(
    history: History, seen: Rendered, following: Rendered, counter: TokenCounter, *, hidden: int = 0
) -> Estimate:
    """Estimate the prompt `following`, given `seen`, the prompt that the newest turn answered (methods 1A.15 row 6).

    Only segments that differ are counted. What outer renderers added to `seen` stays in the estimate: the summaries of
    turns up to `hidden` (see `hidden_by_others`), and blocks at its end that are made anew for every prompt.
    """
    usage = history.turn(len(history)).usage
    if usage is None:
        return Estimate(segment_tokens(following.segments, counter), None)
    same = num_same(seen.segments, following.segments)
    gone = [
        segment
        for segment in seen.segments[same:]
        if segment.form not in _TRANSIENT and not (segment.form is Form.summary and segment.last_turn <= hidden)
    ]
    added = [segment for segment in following.segments[same:] if segment.form not in _TRANSIENT]
    change = segment_tokens(added, counter) - segment_tokens(gone, counter)
    return Estimate(usage.num_prompt_tokens + change, usage.num_prompt_tokens)


def segment_tokens(segments: list[Segment] | tuple[Segment, ...], counter: TokenCounter) -> int:
    """The tokens of all messages with their role frames."""
    return sum(counter.count(message) for segment in segments for message in segment.messages)


def hidden_by_others(seen: Rendered, own: Rendered) -> int:
    """The newest turn that a renderer above `own` had summarized in `seen`, 0 when none."""
    last = _last_summarized(seen.segments[num_same(seen.segments, own.segments) :])
    return last if last > 0 and last > _last_summarized(own.segments) else 0


def _last_summarized(segments: tuple[Segment, ...]) -> int:
    return max((segment.last_turn for segment in segments if segment.form is Form.summary), default=0)


def steps(first_turn: int, last_turn: int) -> str:
    """Turns as the labels the model sees: `step 3` or `steps 3-7`."""
    first, last = first_turn - 1, last_turn - 1
    return f"step {first}" if first == last else f"steps {first}-{last}"


def one_line(text: str, max_chars: int) -> str:
    """A text on one line, cut with an ellipsis."""
    line = " ".join(text.split())
    return line if len(line) <= max_chars else line[: max_chars - 3] + "..."


def chosen(renderer: str, key: str, value: object, choices: type[Choice]) -> Choice:
    """A setting that takes one of an enumeration's words.

    Raises:
        ConfigurationError: another word.
    """
    given = str(value)
    if given not in [choice.value for choice in choices]:
        raise ConfigurationError(f"renderer {renderer}: {key}={given}; give one of {', '.join(choices)}")
    return choices(given)


def check_share(renderer: str, key: str, value: float) -> None:
    """A share of the budget.

    Raises:
        ConfigurationError: not above 0, or above 1.
    """
    if not 0.0 < value <= 1.0:
        raise ConfigurationError(f"renderer {renderer}: {key}={value}; give a share above 0 and at most 1")


def check_least(renderer: str, key: str, value: float, least: float) -> None:
    """A setting with a smallest value.

    Raises:
        ConfigurationError: below it.
    """
    if value < least:
        raise ConfigurationError(f"renderer {renderer}: {key}={value}; give at least {least}")

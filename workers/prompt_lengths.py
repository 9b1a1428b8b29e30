"""Prompt lengths of a recorded run under a renderer, in characters: a comparison without tokenizer and engine.

For `scripts/bench_rerender` and the tests that hold our renderers against figures measured on the same recordings with
other code. Open loop: the recorded replies do not react to what a renderer removed.
"""

from __future__ import annotations

from dataclasses import dataclass
from os.path import commonprefix

from serving.calls import Message
from workers.history import NO_SIGNALS, History, Turn
from workers.interfaces import AuxCaller, RecordedRun, Renderer


@dataclass(frozen=True, slots=True)
class PromptLengths:
    """Characters of all prompts of one run.

    Attributes:
        cumulative: summed over the prompts, one per step.
        uncached: what each prompt does not share, from its start on, with the one before.
        peak: the longest prompt.
    """

    cumulative: int
    uncached: int
    peak: int


async def prompt_lengths(run: RecordedRun, renderer: Renderer, aux: AuxCaller) -> PromptLengths:
    """Render a recorded run step by step; `renderer` is started and fresh."""
    history = History(run.opening)
    cumulative = uncached = peak = 0
    before: tuple[Message, ...] = ()
    for index, step in enumerate(run.steps, start=1):
        rendered = renderer.render(history)
        messages = rendered.messages
        length = sum(len(message.content) for message in messages)
        cumulative += length
        uncached += length - shared_chars(before, messages)
        peak = max(peak, length)
        before = messages
        signals = renderer.read_reply(step.assistant) if renderer.signals else NO_SIGNALS
        history.append(Turn(index, step.assistant, step.actions, step.observations, signals=signals, may_remind=False))
        history.extend(await renderer.observe(history, rendered, aux))
    return PromptLengths(cumulative, uncached, peak)


def shared_chars(before: tuple[Message, ...], messages: tuple[Message, ...]) -> int:
    """Characters of the longest common prefix of two prompts; roles end the match, frames of roles do not count."""
    shared = 0
    for old, new in zip(before, messages, strict=False):
        if old is new or old == new:
            shared += len(new.content)
            continue
        return shared + (len(commonprefix([old.content, new.content])) if old.role == new.role else 0)
    return shared


def repeated_chars(run: RecordedRun, *, min_lines: int = 3) -> list[int]:
    """Per step, characters of its outputs in runs of at least `min_lines` lines that an earlier output holds too.

    Lines are compared exactly. The upper bound of what deduplication can remove: no stub, any earlier output, any path.
    """
    seen: set[tuple[str, ...]] = set()
    repeated: list[int] = []
    for step in run.steps:
        num_chars = 0
        new: list[tuple[str, ...]] = []
        for observation in step.observations:
            lines = observation.body.split("\n")
            runs = list(zip(*(lines[shift:] for shift in range(min_lines)), strict=False))
            is_repeated = [False] * len(lines)
            for start, key in enumerate(runs):
                if key in seen:
                    is_repeated[start : start + min_lines] = [True] * min_lines
            chars = sum(len(line) + 1 for line, is_old in zip(lines, is_repeated, strict=True) if is_old)
            num_chars += min(chars, len(observation.body))
            new += runs
        repeated.append(num_chars)
        seen.update(new)
    return repeated

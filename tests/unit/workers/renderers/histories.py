"""Histories for renderer tests: short builders, a strategy for random ones, and the recorded runs."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from serving.calls import Message
from workers.benchmarks.formats import neutral
from workers.history import Action, History, Observation, Rendered, Signals, Turn, TurnKind
from workers.interfaces import RecordedRun, Renderer

SHARED = Path(__file__).resolve().parents[4].parent / "shared" / "trajectories"
OPENING = (Message("system", "You are an agent."), Message("user", "Fix the bug."))


class FakeCounter:
    """Four characters a token."""

    name = "fake"

    def count_text(self, text: str) -> int:
        return len(text) // 4

    def count(self, message: Message) -> int:
        return len(message.content) // 4

    def encode(self, message: Message) -> Any:
        raise NotImplementedError

    reply_ids = prompt = encode


async def no_aux(**_: Any) -> Any:
    """An auxiliary caller nobody may use."""
    raise AssertionError("no auxiliary call was expected")


def output(body: str, returncode: int = 0, **extra: Any) -> Observation:
    """An observation in the usual frame."""
    tail = "\n</output>" if body else "</output>"
    return Observation(body, f"<returncode>{returncode}</returncode>\n<output>\n", tail, returncode, **extra)


def command_turn(
    label: int,
    command: str = "true",
    body: str = "",
    *,
    progress: str | None = None,
    stale: tuple[int, ...] = (),
    returncode: int = 0,
    kind: TurnKind = TurnKind.command,
    asked: bool = False,
    may_remind: bool = True,
) -> Turn:
    """The turn with this label (0-based), one command and one framed output."""
    return Turn(
        label + 1,
        Message("assistant", f"thinking about {label}\n```bash\n{command}\n```"),
        (Action(command),),
        (output(body, returncode),),
        kind=kind,
        signals=Signals(progress=progress, stale=stale, asked=asked),
        may_remind=may_remind,
    )


def history_of(*turns: Turn) -> History:
    """A history of these turns."""
    history = History(OPENING)
    for turn in turns:
        history.append(turn)
    return history


def started(renderer: Any) -> Any:
    """The renderer after `start`."""
    renderer.start(counter=FakeCounter(), budget_tokens=16_384, path="renderer")
    return renderer


def run_through(renderer: Renderer, turns: list[Turn] | tuple[Turn, ...]) -> tuple[History, list[Rendered]]:
    """Render before each turn and after the last, observing in between: prompts c_0..c_t."""

    async def follow() -> tuple[History, list[Rendered]]:
        history = History(OPENING)
        prompts = [renderer.render(history)]
        for turn in turns:
            history.append(turn)
            history.extend(await renderer.observe(history, prompts[-1], no_aux))
            prompts.append(renderer.render(history))
        return history, prompts

    return asyncio.run(follow())


def text_of(rendered: Rendered, index: int) -> str:
    """The observation text of turn `index` (1-based) in a prompt."""
    return "\n".join(
        message.content
        for segment in rendered.segments
        if segment.part == "observation" and segment.first_turn == index
        for message in segment.messages
    )


_LINES = [f"    value_{number} = compute(alpha, beta, {number})  # keeps the running total" for number in range(40)]
_OUTPUTS = (
    "",
    "ok",
    "\n".join(_LINES[:12]),
    "\n".join(_LINES[6:20]),
    "\n".join(f"{number:6}\t{line}" for number, line in enumerate(_LINES[:12], start=1)),
    "\n".join(["def first(a):", *_LINES[:8], "class Second:", "    def third(self):", *_LINES[20:30]]),
    "Traceback (most recent call last):\n" + "\n".join(f'  File "x.py", line {line}' for line in range(12)),
    "src/a.py:3:def first(a):\nsrc/b.py:9:class Second:",
)
_COMMANDS = (
    "cat src/a.py", "cat -n src/a.py", "sed -n '1,20p' src/a.py", "cd src && sed -n '7,20p' a.py", "cat src/b.py",
    "grep -n def src/a.py", "python -m pytest -q", "ls -la", "sed -i s/a/b/ src/a.py",
)  # fmt: skip


@st.composite
def random_turns(draw: st.DrawFn, max_turns: int = 30) -> list[Turn]:
    """Turns whose commands and outputs repeat, with stale labels inside and outside the window, misses and restores."""
    turns: list[Turn] = []
    for label in range(draw(st.integers(0, max_turns))):
        kind = draw(st.sampled_from([TurnKind.command] * 8 + [TurnKind.restore, TurnKind.format_error]))
        stale = tuple(draw(st.lists(st.integers(max(0, label - 5), label + 1), max_size=3)))
        body = draw(st.sampled_from(_OUTPUTS))
        command = draw(st.sampled_from(_COMMANDS))
        turns.append(
            command_turn(
                label,
                f"restore {max(0, label - 1)}" if kind is TurnKind.restore else command,
                body,
                progress=draw(st.sampled_from([None, "reading", f"step {label}"])),
                stale=stale,
                kind=kind,
                asked=True,
                may_remind=draw(st.booleans()),
            )
        )
        if kind is TurnKind.format_error:
            turns[-1] = Turn(
                label + 1,
                turns[-1].assistant,
                (),
                (Observation("Format error: " + "x " * 120),),
                kind,
                may_remind=False,
            )
    return turns


@lru_cache(maxsize=1)
def recorded_runs() -> tuple[RecordedRun, ...]:
    """The recorded runs of at least five steps, empty where they are not present."""
    path = SHARED / "neutral.jsonl.gz"
    if not path.is_file():
        return ()
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        documents = [json.loads(line) for line in lines]
    return tuple(loaded.run for loaded in neutral.read(documents, path.name) if len(loaded.run.steps) >= 5)


def recorded_turns(run: RecordedRun, stale_of: Callable[[int], tuple[int, ...]] = lambda label: ()) -> list[Turn]:
    """The turns of a recorded run; `stale_of(label)` are the labels its reply names."""
    return [
        Turn(
            label + 1,
            step.assistant,
            step.actions,
            step.observations,
            signals=Signals(progress=f"{step.kind} step", stale=stale_of(label), asked=True),
            may_remind=False,
        )
        for label, step in enumerate(run.steps)
    ]

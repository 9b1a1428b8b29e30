"""Tool-call and text histories for the tests of pairing and of prefixes, made through a harness as the session does."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from serving.calls import Message, ToolCall
from tests.unit.workers.renderers.histories import FakeCounter, no_aux
from workers.harnesses.terminal import Terminal
from workers.history import History, Observation, Rendered, Turn, TurnKind

BODIES = (
    "",
    "ok",
    "\n".join(f"value_{n} = compute(alpha, beta, {n})" for n in range(30)),
    "def f():\n    return 1\n" * 9,
)
COMMANDS = ("cat a.py", "cat b.py", "ls", "pytest -q", "restore 0", "restore 1")


@dataclass(frozen=True)
class Step:
    """What one reply does.

    Attributes:
        commands: several make several tool calls; none is a reply without an action.
        bodies: outputs in order.
        stale: labels it names STALE.
        is_broken: the last call has arguments that are no JSON.
    """

    commands: tuple[str, ...]
    bodies: tuple[str, ...]
    stale: tuple[int, ...] = ()
    is_broken: bool = False


@st.composite
def steps(draw: st.DrawFn, *, max_steps: int = 16, max_calls: int = 3) -> list[Step]:
    """Steps with repeated commands and outputs, restores, replies without an action and broken calls."""
    made = []
    for label in range(draw(st.integers(1, max_steps))):
        commands = tuple(draw(st.lists(st.sampled_from(COMMANDS), max_size=max_calls)))
        bodies = tuple(draw(st.sampled_from(BODIES)) for _ in commands)
        stale = tuple(draw(st.lists(st.integers(max(0, label - 3), label), max_size=2)))
        made.append(Step(commands, bodies, stale, bool(commands) and draw(st.integers(0, 9)) == 0))
    return made


def reply_of(step: Step, label: int, *, has_tools: bool) -> Message:
    """The reply as the model writes it."""
    stale = ",".join(map(str, step.stale)) or "-"
    content = f"PROGRESS: step {label}\nSTALE: {stale}\nLooking further."
    if not has_tools:
        blocks = "".join(f"\n```bash\n{command}\n```" for command in step.commands)
        return Message("assistant", content + blocks, reasoning=f"I think about step {label}. " * 4)
    calls = [
        ToolCall(f"call_{label}_{i}", "bash", json.dumps({"command": command}))
        for i, command in enumerate(step.commands)
    ]
    if step.is_broken:
        calls[-1] = ToolCall(calls[-1].id, "bash", "{")
    return Message("assistant", content, f"I think about step {label}. " * 4, tuple(calls))


def prompts_of(renderer: Any, made: Sequence[Step], *, has_tools: bool = True) -> list[Rendered]:
    """The prompts c_0..c_t of a session with these steps."""
    harness = Terminal(tool_calls=has_tools)
    renderer.start(counter=FakeCounter(), budget_tokens=16_384, path="renderer")

    async def follow() -> list[Rendered]:
        history = History(renderer.prompt_layer(harness.template("Do it.")).opening())
        prompts = [renderer.render(history)]
        for label, step in enumerate(made):
            read = harness.parse(reply_of(step, label, has_tools=has_tools))
            kind = TurnKind.command if read.actions else TurnKind.format_error
            observations = [] if read.actions else [Observation(read.error or "")]
            for action, body in zip(read.actions, step.bodies, strict=False):
                answer = renderer.intercept(history, action)
                kind = TurnKind.restore if answer else kind
                observations.append(answer or harness.observation(body, 0, action.tool_call_id))
            signals = renderer.read_reply(read.message)
            history.append(Turn(label + 1, read.message, read.actions, tuple(observations), kind, signals))
            history.extend(await renderer.observe(history, prompts[-1], no_aux))
            prompts.append(renderer.render(history))
        return prompts

    return asyncio.run(follow())

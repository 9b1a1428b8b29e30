"""Properties of every renderer and of three compositions, over random sessions with tool calls and without.

A session is a list of steps: several commands in a reply, none, broken calls, restores, stale labels of every kind.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from serving.calls import Message
from tests.contract.test_odd_input import ARMS, WITH_RECALL, WITH_RESTORE, made
from tests.contract.test_renderers import Auxiliary
from tests.unit.workers.harnesses.test_tool_pairing import problems
from tests.unit.workers.harnesses.tool_histories import Step, reply_of, steps
from workers.harnesses.terminal import Terminal
from workers.history import Action, History, Observation, Part, Rendered, Turn, TurnKind

FEW = settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
POINTER = re.compile(r"omitted: identical to step (\d+)\.")
TIGHT_TOKENS = 700  # so that compact, recall and har_only act within a few steps


class Played(NamedTuple):
    """A session as it went: its history and its prompts c_0..c_t, and the opening the harness and layers made."""

    history: History
    prompts: list[Rendered]
    opening: tuple[Message, ...]


def play(renderer: Any, session: Sequence[Step], *, has_tools: bool) -> Played:
    """The session loop with a harness and interception around a started renderer."""
    harness = Terminal(tool_calls=has_tools)
    opening = renderer.prompt_layer(harness.template("Fix bug 17.")).opening()

    async def run() -> Played:
        history = History(opening)
        prompts = [renderer.render(history)]
        for label, step in enumerate(session):
            read = harness.parse(reply_of(step, label, has_tools=has_tools))
            observations = [] if read.actions else [Observation(read.error or "")]
            kind = TurnKind.command if read.actions else TurnKind.format_error
            for action, body in zip(read.actions, step.bodies, strict=False):
                answer = renderer.intercept(history, action)
                if answer is not None:
                    kind = TurnKind.restore if action.command.startswith("restore") else TurnKind.guard
                observations.append(answer or harness.observation(body, 0, action.tool_call_id))
            signals = renderer.read_reply(read.message)
            history.append(Turn(label + 1, read.message, read.actions, tuple(observations), kind, signals))
            history.extend(await renderer.observe(history, prompts[-1], Auxiliary()))
            prompts.append(renderer.render(history))
        return Played(history, prompts, opening)

    return asyncio.run(run())


@pytest.mark.parametrize("arm", ARMS)
@pytest.mark.parametrize("budget_tokens", [16_384, TIGHT_TOKENS])
@given(session=steps(max_steps=12), has_tools=st.booleans())
@FEW
def test_opening_roles_and_calls_stay_valid(arm: str, budget_tokens: int, session: list[Step], has_tools: bool) -> None:
    """System and task first and unchanged, no second system message, calls and outputs paired, in every prompt."""
    if not has_tools:
        session = [Step(step.commands[:1], step.bodies[:1], step.stale) for step in session]
    played = play(made(arm, budget_tokens=budget_tokens), session, has_tools=has_tools)
    for prompt in played.prompts:
        assert prompt.messages[:2] == played.opening
        assert "Fix bug 17." in prompt.messages[1].content
        assert problems(prompt.messages) == []
        assert [message.role for message in prompt.messages].count("system") == 1


@pytest.mark.parametrize("arm", ARMS)
@given(session=steps(max_steps=10))
@FEW
def test_cached_is_fresh_at_every_step(arm: str, session: list[Step]) -> None:
    """A renderer that followed the session and one that sees the history for the first time agree on every prompt."""
    history, prompts, opening = play(made(arm, budget_tokens=TIGHT_TOKENS), session, has_tools=True)
    for num_turns, prompt in enumerate(prompts):
        cut = History(opening)
        for turn in history.turns[:num_turns]:
            cut.append(turn)
        cut.extend(memo for memo in history.all_memos if memo.after_turn <= num_turns)
        assert made(arm, budget_tokens=TIGHT_TOKENS).render(cut) == prompt


@pytest.mark.parametrize("arm", sorted({*WITH_RESTORE, *WITH_RECALL}))
@given(session=steps(max_steps=12))
@FEW
def test_everything_can_be_shown_again(arm: str, session: list[Step]) -> None:
    """For every past step, compressed, summarized, evicted or not: its outputs as first shown, and nothing is run."""
    renderer = made(arm, budget_tokens=TIGHT_TOKENS)
    history = play(renderer, session, has_tools=True).history
    word = "restore" if arm in WITH_RESTORE else "recall"
    for turn in history.turns:
        answer = renderer.intercept(history, Action(f"{word} {turn.label}", "call-x"))
        assert answer is not None
        assert answer.shown == "\n".join(observation.shown for observation in turn.observations)
        assert answer.tool_call_id == "call-x"


@pytest.mark.parametrize("arm", WITH_RESTORE)
@given(session=steps(max_steps=14))
@FEW
def test_no_stub_claims_what_is_not_shown(arm: str, session: list[Step]) -> None:
    """A stub that names a step as holding the same lines names one that stands in this prompt, with text of its own.

    A step in a summary, in a fold note or in the store is none; the last is named as stored.
    """
    for prompt in play(made(arm, budget_tokens=TIGHT_TOKENS), session, has_tools=True).prompts:
        outputs = [part for part in prompt.segments if part.part is Part.observation]
        shown = {part.first_turn: "\n".join(m.content for m in part.messages) for part in outputs}
        for turn, text in shown.items():
            for label in POINTER.findall(text):
                assert int(label) + 1 < turn
                assert "is stored:" not in shown[int(label) + 1]

"""Turns of exact length and an auxiliary caller that answers by script, for renderers that decide on estimates."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from serving.calls import Message, TokenUsage, ToolCall
from tests.unit.workers.renderers.histories import OPENING, FakeCounter
from workers.errors import AuxiliaryError
from workers.history import Action, History, Observation, Rendered, Turn, TurnKind
from workers.interfaces import AuxReply, Renderer


def sized_turn(
    label: int,
    output_tokens: int = 100,
    *,
    reply_tokens: int = 10,
    prompt_tokens: int | None = None,
    command: str = "cat a",
    body: str | None = None,
    kind: TurnKind = TurnKind.command,
    tool_call_id: str | None = None,
) -> Turn:
    """A turn whose reply and output have these tokens at four characters a token, without a frame."""
    text = "y" * 4 * output_tokens if body is None else body
    calls = () if tool_call_id is None else (ToolCall(tool_call_id, "bash", "{}"),)
    return Turn(
        label + 1,
        Message("assistant", "x" * 4 * reply_tokens, tool_calls=calls),
        (Action(command, tool_call_id),),
        (Observation(text, returncode=0, tool_call_id=tool_call_id),),
        kind=kind,
        usage=None if prompt_tokens is None else TokenUsage(prompt_tokens, None, reply_tokens, "engine"),
        may_remind=False,
    )


class Auxiliary:
    """Answers with `replies` in order, the last one again and again; None is an empty reply."""

    def __init__(self, *replies: str | None) -> None:
        self.replies = list(replies)
        self.calls: list[dict[str, Any]] = []

    async def __call__(self, **call: Any) -> AuxReply:
        text = self.replies[min(len(self.calls), len(self.replies) - 1)]
        self.calls.append(call)
        if text is None:
            raise AuxiliaryError("the call came back empty")
        return AuxReply(text, TokenUsage(1, None, 1, "engine"), "test")


def begun(renderer: Any, budget_tokens: int) -> Any:
    """The renderer, started under a budget."""
    renderer.start(counter=FakeCounter(), budget_tokens=budget_tokens, path="renderer")
    return renderer


def session(renderer: Renderer, turns: list[Turn], aux: Any = None) -> tuple[History, list[Rendered]]:
    """The session loop: prompts c_0..c_t and the history with its memos."""

    async def follow() -> tuple[History, list[Rendered]]:
        history = History(OPENING)
        prompts = [renderer.render(history)]
        for turn in turns:
            history.append(turn)
            history.extend(await renderer.observe(history, prompts[-1], aux or Auxiliary("s")))
            prompts.append(renderer.render(history))
        return history, prompts

    return asyncio.run(follow())


def counted(turns: list[Turn], renderer: Any, aux: Any = None) -> tuple[History, list[Rendered]]:
    """As `session`, every turn with the counter's own length of the prompt it answers as its usage."""

    async def follow() -> tuple[History, list[Rendered]]:
        history = History(OPENING)
        prompts = [renderer.render(history)]
        for turn in turns:
            length = prompt_tokens(prompts[-1])
            history.append(replace(turn, usage=TokenUsage(length, None, 1, "engine")))
            history.extend(await renderer.observe(history, prompts[-1], aux or Auxiliary("s")))
            prompts.append(renderer.render(history))
        return history, prompts

    return asyncio.run(follow())


def prompt_tokens(rendered: Rendered) -> int:
    """Length by the fake counter."""
    return sum(FakeCounter().count(message) for message in rendered.messages)


def check_chat(rendered: Rendered) -> None:
    """A list of messages every chat template takes once neighbouring user messages are joined.

    System and task first; then assistant messages, each followed by its tool results or by user text.
    """
    roles = [message.role for message in rendered.messages]
    assert roles[:2] == ["system", "user"]
    assert "system" not in roles[1:]
    assert all(pair != ("assistant", "assistant") for pair in zip(roles, roles[1:], strict=False))
    open_calls: set[str] = set()
    for message in rendered.messages:
        if message.role == "tool":
            assert message.tool_call_id in open_calls
            open_calls.discard(message.tool_call_id)
        else:
            assert not open_calls
            open_calls = {call.id for call in message.tool_calls}
    assert not open_calls

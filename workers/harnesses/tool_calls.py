"""Commands in a reply's `bash` tool calls, and what becomes of calls that cannot be run.

Chat APIs and vLLM refuse a history in which an assistant message has a tool call without its `tool` message, so a
reply with a broken call enters the history without any calls: nothing of it is run and the agent is told why.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import NamedTuple

from serving.calls import Message, ToolCall
from workers.history import Action

TOOL_NAME = "bash"
NO_CALLS = "No tool calls found in the response. Every response MUST include at least one tool call."


class ReadCalls(NamedTuple):
    """The commands of all calls, or the first problem (then `actions` is empty)."""

    actions: tuple[Action, ...]
    problem: str | None


def read_calls(reply: Message) -> ReadCalls:
    """The commands of a reply's tool calls, in order; one broken call spoils the reply.

    The wording of the problems is that of mini-swe-agent 2.4.6, whose error template quotes them.
    """
    if not reply.tool_calls:
        return ReadCalls((), NO_CALLS)
    actions = []
    for call in reply.tool_calls:
        command, problem = _read(call)
        if problem:
            return ReadCalls((), problem)
        actions.append(Action(command, call.id))
    return ReadCalls(tuple(actions), None)


def without_calls(reply: Message) -> Message:
    """The reply as it enters the history when its calls cannot be run: its text, and the calls as text if it has none.

    [choice] An empty assistant message would tell the agent nothing about its mistake, and some servers refuse it.
    """
    if not reply.tool_calls:
        return reply
    quoted = "\n".join(f"[call of {call.name} with {call.arguments}]" for call in reply.tool_calls)
    return replace(reply, content=reply.content if reply.content.strip() else quoted, tool_calls=())


def _read(call: ToolCall) -> tuple[str, str]:
    """(command, "") or ("", problem)."""
    problem, arguments = "", None
    try:
        arguments = json.loads(call.arguments)
    except json.JSONDecodeError as exc:
        problem = f"Error parsing tool call arguments: {exc}."
    if call.name != TOOL_NAME:
        problem += f"Unknown tool '{call.name}'."
    command = arguments.get("command") if isinstance(arguments, dict) else None
    if not isinstance(command, str):
        problem += "Missing 'command' argument in bash tool call."
    return ("", problem) if problem or not isinstance(command, str) else (command, "")

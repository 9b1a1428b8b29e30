"""OpenAI-style message dicts as our messages and back; what belongs to one turn.

A loop's list is an opening (all before the first reply) and exchanges: a reply, its outputs, and messages that are
neither (a person's remark, a harness notice). Only outputs are given to a renderer; the rest is passed on untouched.
Plain data in, plain data out; dicts that a renderer leaves alone come back with every key they had.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from serving.calls import Message, ToolCall
from workers.actions import fenced_commands, tool_call_command
from workers.benchmarks.formats.common import FormatProblem, framed, text_of, tool_calls_of
from workers.errors import ConfigurationError
from workers.history import Action, Observation

MessageDict = Mapping[str, Any]
_OPENING_ROLES = ("system", "developer", "user")
_FENCES = ("mswea_bash_command", "bash")


@dataclass(frozen=True, slots=True)
class Exchange:
    """One turn of a loop.

    Attributes:
        reply: the assistant message; None when the loop dropped it and kept only the error it got (mini-swe-agent).
        outputs: what the reply's actions returned, in order.
        others: messages after it that no renderer may change.
    """

    reply: MessageDict | None
    outputs: tuple[MessageDict, ...]
    others: tuple[MessageDict, ...]


class Conversation(NamedTuple):
    """A loop's list taken apart. `tail` is a last reply that has not all its outputs yet."""

    opening: tuple[MessageDict, ...]
    exchanges: tuple[Exchange, ...]
    tail: tuple[MessageDict, ...]
    has_tools: bool


def taken_apart(messages: Sequence[MessageDict]) -> Conversation:
    """Opening, exchanges and tail of a loop's messages.

    With tool calls anywhere, outputs are `tool` messages and users are never outputs; without, the first user message
    after a reply is its output. Messages of role `exit` (mini-swe-agent) were never shown to a model and are dropped.

    Raises:
        ConfigurationError: a message that is no chat message.
    """
    shown = [message for message in messages if _role(message) != "exit"]
    has_tools = any(message.get("tool_calls") or message["role"] == "tool" for message in shown)
    starts = [i for i, message in enumerate(shown) if message["role"] == "assistant" or is_format_error(message)]
    first = starts[0] if starts else len(shown)
    exchanges: list[Exchange] = []
    tail: tuple[MessageDict, ...] = ()
    for start, end in pairwise([*starts, len(shown)]):
        head, after = shown[start], shown[start + 1 : end]
        if end == len(shown) and not _is_complete(head, after, has_tools):
            tail = tuple(shown[start:])
        else:
            exchanges.append(_exchange(head, after, has_tools))
    return Conversation(tuple(shown[:first]), tuple(exchanges), tail, has_tools)


def is_format_error(message: MessageDict) -> bool:
    """Whether this is mini-swe-agent's answer to a reply that it could not read and does not keep."""
    extra = message.get("extra")
    kind = extra.get("interrupt_type") if isinstance(extra, Mapping) else None
    return bool(message.get("role") == "user" and kind == "FormatError")


def message_of(given: MessageDict) -> Message:
    """One message.

    Raises:
        ConfigurationError: content that is not text (an image), broken tool calls.
    """
    try:
        return Message(
            str(given["role"]),
            text_of(given.get("content")),
            reasoning=given.get("reasoning_content") or given.get("reasoning") or None,
            tool_calls=tool_calls_of(given.get("tool_calls")),
            tool_call_id=given.get("tool_call_id"),
        )
    except (FormatProblem, KeyError, TypeError) as exc:
        raise ConfigurationError(f"a {given.get('role')} message cannot be rendered: {exc}") from exc


def dict_of(message: Message) -> dict[str, Any]:
    """A message that a renderer wrote or changed."""
    given: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.reasoning is not None:
        given["reasoning_content"] = message.reasoning
    if message.tool_calls:
        given["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in message.tool_calls
        ]
    if message.tool_call_id is not None:
        given["tool_call_id"] = message.tool_call_id
    return given


def actions_of(given: MessageDict | None) -> tuple[Action, ...]:
    """The actions of a reply: as the loop recorded them, else its tool calls, else its fenced commands."""
    if given is None:
        return ()
    extra = given.get("extra")
    recorded = extra.get("actions") if isinstance(extra, Mapping) else None
    if isinstance(recorded, Sequence):
        return tuple(Action(str(item["command"]), item.get("tool_call_id")) for item in recorded)
    reply = message_of(given)
    if reply.tool_calls:
        return tuple(Action(_command(call), call.id) for call in reply.tool_calls)
    return tuple(Action(command) for fence in _FENCES for command in fenced_commands(reply.content, fence))


def observation_of(given: MessageDict) -> Observation:
    """An output, split into frame and body where it has a frame we know."""
    extra = given.get("extra")
    raw = extra.get("raw_output") if isinstance(extra, Mapping) else None
    return framed(
        message_of(given).content,
        tool_call_id=given.get("tool_call_id"),
        num_output_chars=len(raw) if isinstance(raw, str) else None,
    )


def dropped_reply(error: MessageDict) -> Message | None:
    """The reply behind a format error, as far as mini-swe-agent kept it; None when it did not."""
    extra = error.get("extra") or {}
    text = extra.get("model_response")
    if not isinstance(text, str):
        try:
            text = extra["response"]["choices"][0]["message"]["content"]
        except (KeyError, IndexError, TypeError):
            return None
    return Message("assistant", text or "")


def _role(message: MessageDict) -> str:
    role = message.get("role") if isinstance(message, Mapping) else None
    if role not in (*_OPENING_ROLES, "assistant", "tool", "exit"):
        raise ConfigurationError(
            f"a message with role {role!r} cannot be rendered; give chat messages with role system, user, assistant "
            "or tool (not the items of the Responses API)"
        )
    return str(role)


def _is_complete(head: MessageDict, after: Sequence[MessageDict], has_tools: bool) -> bool:
    """Whether a last exchange has all its outputs."""
    if is_format_error(head):
        return True
    calls = head.get("tool_calls") or ()
    if has_tools and calls:
        return len([message for message in after if message["role"] == "tool"]) >= len(calls)
    return bool(after)


def _exchange(head: MessageDict, after: Sequence[MessageDict], has_tools: bool) -> Exchange:
    if is_format_error(head):
        return Exchange(None, (head,), tuple(after))
    if has_tools:
        outputs = tuple(message for message in after if message["role"] == "tool")
        return Exchange(head, outputs, tuple(message for message in after if message["role"] != "tool"))
    return Exchange(head, tuple(after[:1]), tuple(after[1:]))


def _command(call: ToolCall) -> str:
    """The command of a bash call; another tool's call as its name and arguments."""
    command = tool_call_command(call) if call.name == "bash" else None
    return command if command is not None else f"{call.name} {call.arguments}"

"""What the trajectory readers share: the loaded run, the observation frames, usage, checked field access.

A reader raises `FormatProblem` (one line) or any lookup error on data that does not fit its format; the loader names
the file. Observations are split so that head + body + tail is the recorded text, character for character.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

from serving.calls import Message, ToolCall
from workers.history import Observation
from workers.interfaces import RecordedRun

_FRAME = re.compile(
    r"\A(?P<head>(?:<exception>.*?</exception>\n)?<returncode>(?P<code>-?\d+)</returncode>\n"
    r"(?:<output>\n|<warning>\n.*?</warning>\s*<output_head>\n))"
    r"(?P<body>.*?)(?P<tail>\n?(?:</output>|</output_tail>))\s*\Z",
    re.S,
)
FORMAT_LIST_ITEM = re.compile(r"For each response:\s*\n\s*(?P<item>1\. [^\n]*(?:\n(?!\s*\n|\s*2\. )[^\n]*)*)\n\s*2\. ")


class FormatProblem(ValueError):
    """A document that does not fit its format; one line."""


class Usage(NamedTuple):
    """Token counts as the provider reported them."""

    num_prompt_tokens: int | None = None
    num_completion_tokens: int | None = None
    num_cached_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class LoadedRun:
    """One run out of a file. `instance_id` may be shared by several runs; the benchmark makes it unique."""

    instance_id: str
    run: RecordedRun
    meta: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))


def framed(text: str, *, tool_call_id: str | None = None, num_output_chars: int | None = None) -> Observation:
    """Split a shown observation into the frame of mini-swe-agent and its body; without a frame all is body.

    The newline before the closing tag goes with the frame, as in our own harnesses.
    """
    match = _FRAME.match(text)
    if match is None:
        return Observation(text, tool_call_id=tool_call_id, num_output_chars=num_output_chars)
    return Observation(
        body=match["body"],
        head=match["head"],
        tail=text[match.start("tail") :],
        returncode=int(match["code"]),
        tool_call_id=tool_call_id,
        num_output_chars=num_output_chars,
    )


def with_afterword(observation: Observation, text: str) -> Observation:
    """The observation followed by a message that had no reply of its own (a harness notice)."""
    return Observation(
        observation.body,
        observation.head,
        f"{observation.tail}\n{text}",
        observation.returncode,
        observation.tool_call_id,
        observation.num_output_chars,
    )


def opening_of(messages: Iterable[Message]) -> tuple[Message, ...]:
    """At most one system and one user message: several of a role are joined by an empty line."""
    joined: dict[str, list[str]] = {"system": [], "user": []}
    for message in messages:
        joined["system" if message.role in ("system", "developer") else "user"].append(message.content)
    if not joined["user"]:
        raise FormatProblem("no task message before the first reply")
    return tuple(Message(role, "\n\n".join(texts)) for role, texts in joined.items() if texts)


def text_of(content: object) -> str:
    """Message content as text: a string, None, or a list of text parts."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(_part_text(part) for part in content)
    raise FormatProblem(f"message content is {type(content).__name__}, not text")


def _part_text(part: object) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part, dict) and isinstance(part.get("text"), str):
        return str(part["text"])
    kind = part.get("type") if isinstance(part, dict) else type(part).__name__
    raise FormatProblem(f"message content has a part of type {kind!r}; only text can be replayed")


def tool_calls_of(raw: object) -> tuple[ToolCall, ...]:
    """OpenAI tool calls; `arguments` stays the raw JSON text."""
    if not raw:
        return ()
    if not isinstance(raw, list):
        raise FormatProblem("tool_calls is not a list")
    return tuple(
        ToolCall(str(call["id"]), str(call["function"]["name"]), str(call["function"]["arguments"])) for call in raw
    )


def openai_usage(response: object) -> Usage:
    """Usage of a raw chat completion; None where the provider says nothing."""
    usage = response.get("usage") if isinstance(response, dict) else None
    if not isinstance(usage, dict):
        return Usage()
    details = usage.get("prompt_tokens_details") or {}
    return Usage(
        count(usage.get("prompt_tokens")), count(usage.get("completion_tokens")), count(details.get("cached_tokens"))
    )


def count(value: object) -> int | None:
    """A non-negative integer, or None when it is missing."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0 or value != int(value):
        raise FormatProblem(f"{value!r} is no token count")
    return int(value)


def seconds(value: object) -> float | None:
    """A duration, or None when it is missing or negative (differences of wall-clock stamps: the clock was set)."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise FormatProblem(f"{value!r} is no duration in seconds")
    return float(value) if 0 <= value < float("inf") else None


def instance_of(document: Mapping[str, Any], origin: str) -> str:
    """The instance id a document names, else its file's name."""
    named = document.get("instance_id")
    return named if isinstance(named, str) and named else origin

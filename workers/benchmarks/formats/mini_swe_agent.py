"""mini-swe-agent v1, v2 and the bare message lists before them (spec/trajectories, section 5).

v1 and bare lists: text messages, one ```` ```bash ```` block a reply; zero or several blocks are a format error.
v2: the model's native messages with `extra.actions`; observations are `tool` messages (or `user` in text mode), the
last message has role `exit`. Neither the exit message nor v1's closing user message was ever shown to the model, so
they become the submission. Tool seconds are the time between the reply's and its observation's time stamps.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

from serving.calls import Message
from workers.actions import fenced_commands, is_submission, step_kind, tool_call_actions
from workers.benchmarks.formats.common import (
    FormatProblem,
    LoadedRun,
    framed,
    instance_of,
    openai_usage,
    opening_of,
    text_of,
    tool_calls_of,
    with_afterword,
)
from workers.history import Action, Observation
from workers.interfaces import RecordedRun, RecordedStep

NAME = "mini-swe-agent"
HINT = 'a JSON object with "messages" and "trajectory_format": "mini-swe-agent-1...", or a list of messages'
KNOWN_VERSIONS: Final = ("mini-swe-agent-1", "mini-swe-agent-1.1")
_LOG = logging.getLogger(__name__)
_SLOWEST_TOOL_S: Final = 24 * 3600.0  # beyond that two time stamps are not one execution


def matches(document: object) -> bool:
    """Whether the document is a mini-swe-agent trajectory or a bare list of messages."""
    if isinstance(document, dict):
        return str(document.get("trajectory_format", "")).startswith("mini-swe-agent-1")
    return (
        isinstance(document, list)
        and len(document) > 0
        and all(isinstance(item, dict) and "role" in item and "content" in item for item in document)
    )


def read(documents: Sequence[Any], origin: str) -> list[LoadedRun]:
    """One run per document."""
    return [_read_one(document, origin) for document in documents]


def _read_one(document: Any, origin: str) -> LoadedRun:
    if isinstance(document, list):
        messages, info, label = document, dict[str, Any](), "bare-message-list"
    else:
        messages, info, label = document["messages"], document.get("info") or {}, str(document["trajectory_format"])
        if label not in KNOWN_VERSIONS:
            _LOG.warning("%s: trajectory_format %s is newer than %s; read as that", origin, label, KNOWN_VERSIONS[-1])
    first = next((i for i, message in enumerate(messages) if message["role"] == "assistant"), None)
    if first is None:
        raise FormatProblem("no reply in it")
    opening = opening_of(Message(str(m["role"]), text_of(m["content"])) for m in messages[:first])
    steps, closing = _steps(messages[first:], info)
    submission, status = _end(info, steps, closing)
    run = RecordedRun(opening, tuple(steps), label, submission, exit_status=status)
    model = info.get("config", {}).get("model", {}).get("model_name")
    instance = instance_of(document if isinstance(document, dict) else {}, origin)
    return LoadedRun(instance, run, {"model": model, "agent": f"mini-swe-agent {info.get('mini_version', '')}".strip()})


def _steps(messages: Sequence[Mapping[str, Any]], info: Mapping[str, Any]) -> tuple[list[RecordedStep], str | None]:
    """The steps, and the text of the closing message that the model never saw."""
    starts = [i for i, message in enumerate(messages) if message["role"] == "assistant"]
    steps: list[RecordedStep] = []
    closing: str | None = None
    for start, end in zip(starts, [*starts[1:], len(messages)], strict=True):
        after = list(messages[start + 1 : end])
        actions = _actions(messages[start])
        if end == len(messages):
            closing, after = _split_closing(actions, after, info)
        steps.append(_step(messages[start], actions, after))
    return steps, closing


def _split_closing(
    actions: tuple[Action, ...], after: list[Mapping[str, Any]], info: Mapping[str, Any]
) -> tuple[str | None, list[Mapping[str, Any]]]:
    """Take the exit message (v2: role `exit`; v1: the user message behind the last observation) off the end."""
    if after and after[-1]["role"] == "exit":
        return text_of(after[-1]["content"]), after[:-1]
    submits = info.get("exit_status") == "Submitted" or any(is_submission(action.command) for action in actions)
    shown = 0 if submits else max(1, len(actions))
    if len(after) > shown and after[-1]["role"] == "user":
        return text_of(after[-1]["content"]), after[:-1]
    return None, after


def _actions(message: Mapping[str, Any]) -> tuple[Action, ...]:
    """The commands that were run: as recorded by v2, else found in the reply."""
    recorded = (message.get("extra") or {}).get("actions")
    if recorded is not None:
        return tuple(Action(str(item["command"]), item.get("tool_call_id")) for item in recorded)
    calls = tool_calls_of(message.get("tool_calls"))
    if calls:
        return tool_call_actions(Message("assistant", "", tool_calls=calls))
    text = text_of(message["content"])
    commands = fenced_commands(text, "mswea_bash_command") or fenced_commands(text, "bash")
    return (Action(commands[0]),) if len(commands) == 1 else ()


def _step(message: Mapping[str, Any], actions: tuple[Action, ...], after: Sequence[Mapping[str, Any]]) -> RecordedStep:
    extra = message.get("extra") or {}
    usage = openai_usage(extra.get("response"))
    return RecordedStep(
        assistant=Message(
            "assistant",
            text_of(message["content"]),
            reasoning=message.get("reasoning_content") or None,
            tool_calls=tool_calls_of(message.get("tool_calls")),
        ),
        actions=actions,
        observations=_observations(actions, after),
        tool_s=_tool_s(extra.get("timestamp"), after[: len(actions)]),
        num_prompt_tokens=usage.num_prompt_tokens,
        num_completion_tokens=usage.num_completion_tokens,
        num_cached_tokens=usage.num_cached_tokens,
        kind=step_kind(actions),
    )


def _observations(actions: tuple[Action, ...], after: Sequence[Mapping[str, Any]]) -> tuple[Observation, ...]:
    """One observation per action (or the error text); what is missing at the end of a run is empty.

    mini-swe-agent drops a reply whose tool call it cannot parse and shows only the error: that message belongs to no
    reply and is kept behind the previous output.
    """
    shown = [_observation(message) for message in after]
    wanted = max(1, len(actions))
    if len(shown) < wanted:
        shown += [Observation("", tool_call_id=action.tool_call_id) for action in actions[len(shown) :]]
    kept = shown[:wanted]
    for extra in shown[wanted:]:
        kept[-1] = with_afterword(kept[-1], extra.shown)
    return tuple(kept)


def _observation(message: Mapping[str, Any]) -> Observation:
    raw = (message.get("extra") or {}).get("raw_output")
    return framed(
        text_of(message["content"]),
        tool_call_id=message.get("tool_call_id"),
        num_output_chars=len(raw) if isinstance(raw, str) else None,
    )


def _tool_s(reply_s: object, after: Sequence[Mapping[str, Any]]) -> float | None:
    """Seconds from the reply to its last output; None when a time stamp is missing or they do not fit."""
    stamps = [(message.get("extra") or {}).get("timestamp") for message in after]
    if not isinstance(reply_s, int | float) or not stamps or not isinstance(stamps[-1], int | float):
        return None
    elapsed = float(stamps[-1]) - float(reply_s)
    return elapsed if 0 <= elapsed < _SLOWEST_TOOL_S else None


def _end(info: Mapping[str, Any], steps: Sequence[RecordedStep], closing: str | None) -> tuple[str | None, str | None]:
    """(submission, exit status) as recorded; without a status a submitting last command means Submitted."""
    status = info.get("exit_status")
    submitted = status == "Submitted" if status else steps[-1].kind == "submit"
    if not submitted:
        return None, str(status) if status else None
    recorded = info.get("submission")
    return recorded if isinstance(recorded, str) else closing or "", "Submitted"

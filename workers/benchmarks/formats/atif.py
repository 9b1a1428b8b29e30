"""ATIF 1.x, the agent trajectory interchange format: steps of source system, user or agent.

One document per file or per line. Token counts are in `metrics` (prompt tokens include cached ones). ATIF has no tool
duration; `extra.tool_s` is read where a writer put one. Subagent trajectories are other sessions and are not followed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from serving.calls import Message, ToolCall
from workers.actions import fenced_commands, step_kind
from workers.benchmarks.formats.common import (
    FormatProblem,
    LoadedRun,
    count,
    framed,
    opening_of,
    seconds,
    text_of,
    with_afterword,
)
from workers.history import Action, Observation
from workers.interfaces import RecordedRun, RecordedStep

NAME = "ATIF"
HINT = 'a JSON object with "schema_version": "ATIF-v1..." and "steps"'


def matches(document: object) -> bool:
    """Whether the document is an ATIF 1.x trajectory."""
    return isinstance(document, dict) and str(document.get("schema_version", "")).startswith("ATIF-v1")


def read(documents: Sequence[Any], origin: str) -> list[LoadedRun]:
    """One run per document."""
    many = len(documents) > 1
    return [_read_one(doc, f"{origin}-{i}" if many else origin) for i, doc in enumerate(documents, start=1)]


def _read_one(document: Mapping[str, Any], origin: str) -> LoadedRun:
    items = [item for item in document["steps"] if not item.get("is_copied_context")]
    first = next((i for i, item in enumerate(items) if item["source"] == "agent"), None)
    if first is None:
        raise FormatProblem("no step of source agent")
    opening = opening_of(Message(str(item["source"]), text_of(item.get("message"))) for item in items[:first])
    steps: list[RecordedStep] = []
    for item in items[first:]:
        if item["source"] == "agent":
            steps.append(_step(item))
        else:
            steps[-1] = _with_notice(steps[-1], text_of(item.get("message")))
    extra = document.get("extra") or {}
    status = extra.get("exit_status")
    submits = status in ("Submitted", "submitted") if status else steps[-1].kind == "submit"
    submission = text_of(extra.get("submission")) if submits else None
    run = RecordedRun(opening, tuple(steps), str(document["schema_version"]), submission, exit_status=status)
    agent = document.get("agent") or {}
    instance = extra.get("instance_id") or document.get("session_id") or document.get("trajectory_id") or origin
    meta = {"model": agent.get("model_name"), "agent": f"{agent.get('name', '')} {agent.get('version', '')}".strip()}
    return LoadedRun(str(instance), run, meta)


def _step(item: Mapping[str, Any]) -> RecordedStep:
    raw_calls = item.get("tool_calls") or []
    calls = tuple(_call(raw) for raw in raw_calls)
    text = text_of(item.get("message"))
    actions = tuple(Action(_command(raw), call.id) for raw, call in zip(raw_calls, calls, strict=True))
    if not calls:
        commands = fenced_commands(text)
        actions = (Action(commands[0]),) if len(commands) == 1 else ()
    metrics = item.get("metrics") or {}
    return RecordedStep(
        assistant=Message("assistant", text, item.get("reasoning_content") or None, calls),
        actions=actions,
        observations=_observations(item, actions),
        tool_s=seconds((item.get("extra") or {}).get("tool_s")),
        num_prompt_tokens=count(metrics.get("prompt_tokens")),
        num_completion_tokens=count(metrics.get("completion_tokens")),
        num_cached_tokens=count(metrics.get("cached_tokens")),
        kind=step_kind(actions),
    )


def _call(raw: Mapping[str, Any]) -> ToolCall:
    arguments = json.dumps(raw["arguments"], ensure_ascii=False)
    return ToolCall(str(raw["tool_call_id"]), str(raw["function_name"]), arguments)


def _command(raw: Mapping[str, Any]) -> str:
    """The shell command of a call; other tools are written as `name {arguments}`."""
    arguments = raw["arguments"]
    command = arguments.get("command") if isinstance(arguments, dict) else None
    if isinstance(command, str):
        return command
    return f"{raw['function_name']} {json.dumps(arguments, ensure_ascii=False, sort_keys=True)}"


def _observations(item: Mapping[str, Any], actions: tuple[Action, ...]) -> tuple[Observation, ...]:
    """One per action, paired by `source_call_id`; results without one go in order, surplus ones behind the last."""
    results = list((item.get("observation") or {}).get("results") or [])
    wanted: list[str | None] = [action.tool_call_id for action in actions] or [None]
    paired: list[Observation] = []
    for call_id in wanted:
        match = next((r for r in results if r.get("source_call_id") == call_id), results[0] if results else None)
        if match is not None:
            results.remove(match)
        paired.append(framed(text_of(match.get("content")) if match else "", tool_call_id=call_id))
    for surplus in results:
        paired[-1] = with_afterword(paired[-1], text_of(surplus.get("content")))
    return tuple(paired)


def _with_notice(step: RecordedStep, text: str) -> RecordedStep:
    """A later user or system message stands behind the output it followed."""
    observations = (*step.observations[:-1], with_afterword(step.observations[-1], text))
    return RecordedStep(
        step.assistant,
        step.actions,
        observations,
        step.tool_s,
        step.num_prompt_tokens,
        step.num_completion_tokens,
        step.num_cached_tokens,
        step.kind,
    )

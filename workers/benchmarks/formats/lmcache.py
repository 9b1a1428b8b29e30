"""LMCache agent traces: one JSON line per model call, `{timestamp, input, output, session_id}`.

`input` is the whole prompt text without the replies, so the text by which it grows is the new observation. Calls are
ordered by time stamp (microseconds). Neither token counts nor tool times are recorded.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from serving.calls import Message
from workers.actions import fenced_commands, step_kind
from workers.benchmarks.formats.common import FormatProblem, LoadedRun, framed
from workers.history import Action
from workers.interfaces import RecordedRun, RecordedStep

NAME = "LMCache agent trace"
HINT = 'JSON lines with "timestamp", "session_id", "input" (the prompt text) and "output"'
_SEPARATOR = "\n\n"  # what the writer puts between two messages


def matches(document: object) -> bool:
    """Whether the line is a call of an LMCache agent trace."""
    return (
        isinstance(document, dict)
        and isinstance(document.get("input"), str)
        and isinstance(document.get("output"), str)
        and "session_id" in document
    )


def read(documents: Sequence[Any], origin: str) -> list[LoadedRun]:
    """One run per session id, in order of first appearance."""
    sessions: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for call in documents:
        sessions[str(call["session_id"])].append(call)
    return [_read_session(session, calls) for session, calls in sessions.items()]


def _read_session(session: str, calls: list[Mapping[str, Any]]) -> LoadedRun:
    calls.sort(key=lambda call: float(call["timestamp"]))
    inputs = [str(call["input"]) for call in calls]
    steps = []
    for number, call in enumerate(calls, start=1):
        shown = _grown(inputs, number, session) if number < len(calls) else ""
        commands = fenced_commands(call["output"])
        actions = (Action(commands[0]),) if len(commands) == 1 else ()
        steps.append(
            RecordedStep(Message("assistant", call["output"]), actions, (framed(shown),), kind=step_kind(actions))
        )
    submission = "" if steps[-1].kind == "submit" else None
    run = RecordedRun((Message("user", inputs[0]),), tuple(steps), "lmcache-call-jsonl", submission)
    return LoadedRun(f"lmcache-{session[:8]}", run, {"session_id": session})


def _grown(inputs: Sequence[str], number: int, session: str) -> str:
    """What call `number`+1 shows that call `number` did not."""
    before, after = inputs[number - 1], inputs[number]
    if not after.startswith(before):
        raise FormatProblem(
            f"session {session}: the prompt of call {number + 1} does not continue that of call {number}"
        )
    return after[len(before) :].removeprefix(_SEPARATOR)

"""SWE-agent `.traj` files: what the model saw is in `history`, execution times are in `trajectory`.

Demonstrations (`is_demo`) are left out. An observation is split so that `body` is the tool's output and `tail` what
SWE-agent adds behind it (open file, directory, prompt). `query`, which repeats the whole prompt at every step, is only
read when there is no history.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from serving.calls import Message
from workers.actions import step_kind
from workers.benchmarks.formats.common import (
    FormatProblem,
    LoadedRun,
    instance_of,
    opening_of,
    seconds,
    text_of,
    tool_calls_of,
    with_afterword,
)
from workers.history import Action, Observation
from workers.interfaces import RecordedRun, RecordedStep

NAME = "SWE-agent .traj"
HINT = 'a JSON object with "history" of messages, or "trajectory" of "action", "observation", "response"'
_TAIL = re.compile(r"\n?\(Open file: [^\n]*\)\n\(Current directory: [^\n]*\)\nbash-\$\s*\Z")
_FENCED = re.compile(r"```[^\n`]*\n(.*?)\n?```", re.S)


def matches(document: object) -> bool:
    """Whether the document is a SWE-agent trajectory or a demonstration of history alone."""
    if not isinstance(document, dict) or "trajectory_format" in document or "schema_version" in document:
        return False
    history, trajectory = document.get("history"), document.get("trajectory")
    if isinstance(history, list) and history:
        return all(isinstance(item, dict) and "role" in item and "content" in item for item in history)
    return isinstance(trajectory, list) and all(isinstance(item, dict) and "action" in item for item in trajectory[:1])


def read(documents: Sequence[Any], origin: str) -> list[LoadedRun]:
    """One run per document."""
    return [_read_one(document, origin) for document in documents]


def _read_one(document: Mapping[str, Any], origin: str) -> LoadedRun:
    history = [item for item in document.get("history") or [] if not item.get("is_demo")]
    executed = document.get("trajectory") or []
    opening, steps = _from_history(history, executed) if history else _from_trajectory(executed)
    info = document.get("info") or {}
    status = str(info["exit_status"]) if info.get("exit_status") else None
    submits = status.startswith("submitted") if status else steps[-1].kind == "submit"
    submission = text_of(info.get("submission")) if submits else None
    run = RecordedRun(opening, tuple(steps), "swe-agent-traj", submission, exit_status=status)
    return LoadedRun(instance_of(_ids(document), origin), run, {"agent": "SWE-agent"})


def _ids(document: Mapping[str, Any]) -> dict[str, Any]:
    """The instance id, where a replay configuration (an object, or its JSON text) names it."""
    config = document.get("replay_config")
    if isinstance(config, str):
        config = json.loads(config)
    problem = config.get("problem_statement") if isinstance(config, dict) else None
    return {"instance_id": problem.get("id")} if isinstance(problem, dict) else {}


def _from_history(
    history: Sequence[Mapping[str, Any]], executed: Sequence[Mapping[str, Any]]
) -> tuple[tuple[Message, ...], list[RecordedStep]]:
    starts = [i for i, item in enumerate(history) if item["role"] == "assistant"]
    if not starts:
        raise FormatProblem("no reply in it")
    opening = opening_of(Message(str(item["role"]), text_of(item["content"])) for item in history[: starts[0]])
    # Replies that SWE-agent asked for again are in neither list; when the lists differ, times cannot be paired.
    paired = list(executed) if len(executed) == len(starts) else [{} for _ in starts]
    steps = [
        _step(history[start], history[start + 1 : end], entry)
        for start, end, entry in zip(starts, [*starts[1:], len(history)], paired, strict=True)
    ]
    return opening, steps


def _step(item: Mapping[str, Any], after: Sequence[Mapping[str, Any]], entry: Mapping[str, Any]) -> RecordedStep:
    calls = tool_calls_of(item.get("tool_calls"))
    command = item.get("action") or entry.get("action") or _fenced_command(text_of(item["content"]))
    actions = (Action(command, calls[0].id if calls else None),) if command.strip() else ()
    output = entry.get("observation")
    call_id = actions[0].tool_call_id if actions else None
    shown = [_split(text_of(message["content"]), output, call_id) for message in after]
    if not shown:
        shown = [Observation(text_of(output), tool_call_id=call_id)]
    for extra in shown[1:]:
        shown[0] = with_afterword(shown[0], extra.shown)
    return RecordedStep(
        assistant=Message("assistant", text_of(item["content"]), tool_calls=calls),
        actions=actions,
        observations=(shown[0],),
        tool_s=seconds(entry.get("execution_time")),
        kind=step_kind(actions),
    )


def _fenced_command(text: str) -> str:
    blocks: list[str] = _FENCED.findall(text)
    return blocks[-1] if blocks else ""


def _split(shown: str, output: object, tool_call_id: str | None) -> Observation:
    """The tool's output is the body wherever the shown text holds it, else all but SWE-agent's own tail is."""
    if isinstance(output, str) and output and (start := shown.find(output)) >= 0:
        end = start + len(output)
        return Observation(shown[start:end], shown[:start], shown[end:], None, tool_call_id, len(output))
    tail = _TAIL.search(shown)
    cut = tail.start() if tail else len(shown)
    return Observation(
        shown[:cut], "", shown[cut:], None, tool_call_id, len(output) if isinstance(output, str) else None
    )


def _from_trajectory(executed: Sequence[Mapping[str, Any]]) -> tuple[tuple[Message, ...], list[RecordedStep]]:
    """A file without history: the opening is the first step's `query` (`messages` in old files)."""
    if not executed:
        raise FormatProblem("no step in it")
    query = executed[0].get("query") or executed[0].get("messages")
    if not query:
        raise FormatProblem("neither history nor query: the prompt is not recorded")
    opening = opening_of(
        Message(str(item["role"]), text_of(item["content"])) for item in query if not item.get("is_demo")
    )
    steps = [_step({"content": entry.get("response"), "action": entry["action"]}, [], entry) for entry in executed]
    return opening, steps

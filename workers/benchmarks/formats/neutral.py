"""The neutral JSONL form: one run a line, one text action and one observation a step.

Fields: `fmt, instance_id, exit_status, system, task, steps[{thought, action, observation, prompt_tokens?,
completion_tokens?, cached_tokens?, returncode?, tool_s?, reasoning?}]`, optional `model, traj_id`. The message shape of
the original is not kept: a reply is the thought and one ```` ```bash ```` block, its output a user message.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from serving.calls import Message
from workers.actions import step_kind
from workers.benchmarks.formats.common import LoadedRun, count, framed, opening_of, seconds, text_of
from workers.history import Action
from workers.interfaces import RecordedRun, RecordedStep

NAME = "neutral"
HINT = 'JSON lines with "system", "task" and "steps" of "thought", "action", "observation"'


def matches(document: object) -> bool:
    """Whether the document is a neutral run."""
    if not isinstance(document, dict) or not isinstance(document.get("task"), str):
        return False
    steps = document.get("steps")
    return isinstance(steps, list) and all(isinstance(step, dict) and "observation" in step for step in steps[:1])


def read(documents: Sequence[Any], origin: str) -> list[LoadedRun]:
    """One run per line."""
    return [_read_one(document, f"{origin}-{line}") for line, document in enumerate(documents, start=1)]


def _read_one(document: Mapping[str, Any], origin: str) -> LoadedRun:
    system = text_of(document.get("system"))
    opening = opening_of([*([Message("system", system)] if system else []), Message("user", document["task"])])
    steps = tuple(_step(step) for step in document["steps"])
    status = document.get("exit_status")
    submits = status in ("Submitted", "submitted") if status else bool(steps) and steps[-1].kind == "submit"
    submission = text_of(document.get("submission")) if submits else None
    run = RecordedRun(opening, steps, f"neutral:{document.get('fmt', '')}".rstrip(":"), submission, exit_status=status)
    return LoadedRun(str(document.get("instance_id") or origin), run, {"model": document.get("model")})


def _step(step: Mapping[str, Any]) -> RecordedStep:
    thought, command = text_of(step.get("thought")), text_of(step.get("action"))
    actions = (Action(command),) if command.strip() else ()
    block = f"```bash\n{command}\n```" if actions else ""
    return RecordedStep(
        assistant=Message(
            "assistant", "\n\n".join(filter(None, (thought, block))), text_of(step.get("reasoning")) or None
        ),
        actions=actions,
        observations=(framed(text_of(step.get("observation"))),),
        tool_s=seconds(step.get("tool_s")),
        num_prompt_tokens=count(step.get("prompt_tokens")),
        num_completion_tokens=count(step.get("completion_tokens")),
        num_cached_tokens=count(step.get("cached_tokens")),
        kind=step_kind(actions),
    )

"""Content digests of tasks: equal content gives an equal digest in every process, whatever file it came from."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from serving.calls import Message
from workers.history import Observation
from workers.interfaces import RecordedRun, RecordedStep

DIGEST_VERSION = 1


def run_digest(run: RecordedRun) -> str:
    """SHA-256 of everything in a recorded run that can change a result.

    Raises:
        UnicodeEncodeError: the text holds a lone surrogate, which no tokenizer or database takes.
    """
    content = {
        "version": DIGEST_VERSION,
        "opening": [_message(message) for message in run.opening],
        "steps": [_step(step) for step in run.steps],
        "submission": run.submission,
        "exit_status": run.exit_status,
        "has_text": run.has_text,
    }
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"), sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def _message(message: Message) -> list[Any]:
    calls = [[call.id, call.name, call.arguments] for call in message.tool_calls]
    return [message.role, message.content, message.reasoning, calls, message.tool_call_id]


def _observation(observation: Observation) -> list[Any]:
    return [observation.head, observation.body, observation.tail, observation.returncode, observation.tool_call_id]


def _step(step: RecordedStep) -> list[Any]:
    return [
        _message(step.assistant),
        [[action.command, action.tool_call_id] for action in step.actions],
        [_observation(observation) for observation in step.observations],
        step.tool_s,
        step.num_completion_tokens,
    ]

"""What the tests put in a model's and an environment's place; loaded by mini-swe-agent through its import paths."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from minisweagent.environments.local import LocalEnvironment
from minisweagent.exceptions import FormatError
from minisweagent.models.test_models import DeterministicToolcallModel


def _append(name: str, document: object) -> None:
    with (Path(os.environ["SPY_FOLDER"]) / name).open("a", encoding="utf-8") as file:
        file.write(json.dumps(document) + "\n")


class SpyModel(DeterministicToolcallModel):  # type: ignore[misc]
    """Gives scripted replies and writes down the messages of every call; a reply of role `error` is a format error."""

    def query(self, messages: list[dict[str, Any]], **options: Any) -> dict[str, Any]:
        """The next reply of the script."""
        _append("prompts.jsonl", [{k: v for k, v in message.items() if k != "extra"} for message in messages])
        reply: dict[str, Any] = super().query(messages, **options)
        if reply["role"] == "error":
            kept = {"choices": [{"message": {"content": reply["content"]}}]}
            raise FormatError(
                {
                    "role": "user",
                    "content": "Tool call error: no call.",
                    "extra": {"interrupt_type": "FormatError", "response": kept},
                }
            )
        return reply


class SpyEnvironment(LocalEnvironment):  # type: ignore[misc]
    """The local environment, which writes down the commands it is given."""

    def execute(self, action: dict[str, Any], cwd: str = "", **options: Any) -> dict[str, Any]:
        """Run the command here."""
        _append("commands.jsonl", action["command"])
        output: dict[str, Any] = super().execute(action, cwd, **options)
        return output

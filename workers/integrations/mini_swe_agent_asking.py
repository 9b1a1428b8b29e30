"""The model that answers a renderer's own calls (summaries, rewrites) inside mini-swe-agent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workers.integrations.openai_messages import dropped_reply, message_of

# Settings of the agent's own model that say how replies with commands are read; a summary is no such reply.
_AGENT_ONLY = ("format_error_template", "observation_template", "action_regex", "multimodal_regex")
_TOOL_OPTIONS = ("parallel_tool_calls", "tools", "tool_choice")


class AskedModel:
    """Answers a renderer's own calls with one of mini-swe-agent's text models, made when it is first needed.

    Args:
        settings: those of the agent's model (name, options, cost tracking), without how it reads replies.
        auxiliary: settings that differ; `model_class` is litellm_textbased unless given.

    A text model wants a command in every reply and reports a reply without one as a format error that holds the text.
    """

    def __init__(self, settings: Mapping[str, Any], auxiliary: Mapping[str, Any]) -> None:
        shared = {key: value for key, value in settings.items() if key not in _AGENT_ONLY}
        self._settings: dict[str, Any] = {**shared, **auxiliary}
        self._model: Any = None
        self._cost = 0.0

    def __call__(self, messages: list[dict[str, Any]], max_tokens: int) -> str:
        """The text of one reply."""
        from minisweagent.exceptions import FormatError

        try:
            reply: dict[str, Any] = self._opened().query(messages, max_tokens=max_tokens)
        except FormatError as exc:
            self._cost += exc.messages[0].get("extra", {}).get("cost", 0.0)
            kept = dropped_reply(exc.messages[0])
            return kept.content if kept is not None else ""
        self._cost += reply.get("extra", {}).get("cost", 0.0)
        return message_of(reply).content

    def taken_cost(self) -> float:
        """What the calls since the last time cost, in mini-swe-agent's dollars."""
        cost, self._cost = self._cost, 0.0
        return cost

    def _opened(self) -> Any:
        from minisweagent.models import get_model_class

        if self._model is None:
            settings = {**self._settings}
            name, kind = str(settings.get("model_name", "")), settings.pop("model_class", "litellm_textbased")
            options = settings.get("model_kwargs", {})
            settings["model_kwargs"] = {key: options[key] for key in options if key not in _TOOL_OPTIONS}
            self._model = get_model_class(name, kind)(**settings)
        return self._model

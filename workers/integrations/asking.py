"""Calls that a renderer makes itself (summaries, rewrites) in a loop that is not ours.

The loop lends a function `ask(messages, max_tokens) -> text`; every use is noted with its purpose and its size, so that
a comparison can count what a renderer costs besides the agent's own calls.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from serving.calls import CallKind, Message, TokenUsage
from serving.interfaces import TokenCounter
from workers.errors import AuxiliaryError, ConfigurationError
from workers.integrations.openai_messages import dict_of
from workers.interfaces import AuxReply

Ask = Callable[[list[dict[str, Any]], int], str]


@dataclass(frozen=True, slots=True)
class AskedCall:
    """One such call. Tokens are estimates of the loop's counter; `is_adopted`: the renderer uses the text."""

    purpose: str
    num_prompt_tokens: int
    num_completion_tokens: int
    is_adopted: bool


class Asker:
    """An `AuxCaller` over the loop's function.

    Attributes:
        calls: made since the list was last taken.
    """

    def __init__(self, ask: Ask | None, counter: TokenCounter) -> None:
        self.calls: list[AskedCall] = []
        self._ask = ask
        self._counter = counter

    async def __call__(
        self,
        *,
        kind: CallKind,
        messages: tuple[Message, ...],
        max_completion_tokens: int,
        declared_tokens: int,
        is_priced_uncached: bool = False,
        adopt: Callable[[str], bool] | None = None,
    ) -> AuxReply:
        """See `AuxCaller`.

        Raises:
            ConfigurationError: the loop lends no model.
        """
        if self._ask is None:
            raise ConfigurationError(
                f"this renderer asks a model itself ({kind.value}) and none is lent to it: use "
                "Conversation(renderer, ask=...), or a renderer that asks none (base, clip, mask, refold)"
            )
        text = self._ask([dict_of(message) for message in messages], max_completion_tokens)
        usage = TokenUsage(self._counter.prompt(messages).num_tokens, None, self._counter.count_text(text), "client")
        is_adopted = bool(text.strip()) and (adopt is None or adopt(text))
        self.calls.append(AskedCall(kind.value, usage.num_prompt_tokens, usage.num_completion_tokens, is_adopted))
        if not text.strip():
            raise AuxiliaryError(f"the {kind.value} call came back empty")
        return AuxReply(text, usage, "model")

    def taken(self) -> tuple[AskedCall, ...]:
        """The calls since the last time."""
        calls, self.calls = tuple(self.calls), []
        return calls

"""Auxiliary calls of one session: the only way a renderer reaches a model (architecture, section 3).

Where replies are pinned (replay, simulation) no model answers: the call is made with a seeded text of the declared
length, costs its tokens and time on the replica like any other, and its row says `aux_source = seeded`.
"""

from __future__ import annotations

from collections.abc import Callable

from serving.calls import CallKind, Message, PinnedReply
from serving.clock import stopwatch_s
from serving.interfaces import TokenCounter
from workers.errors import AuxiliaryError
from workers.interfaces import AuxReply, Proposal, Streams
from workers.model_calls import ModelCaller

_WORDS = (
    "the file defines checks that value before writing reads path returns error when test fails because call uses "
    "module state older result now next step keeps list entry first missing index"
).split()


class SessionAux:
    """An `AuxCaller` over the session's own caller, so that calls are routed, recorded and priced like main ones."""

    def __init__(self, caller: ModelCaller, *, counter: TokenCounter, streams: Streams, is_pinned: bool) -> None:
        self._caller = caller
        self._counter = counter
        self._streams = streams
        self._is_pinned = is_pinned
        self.main_step = 0
        self.waited_s = 0.0  # wall clock spent on calls so far, which is no renderer's own time

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
        """See `AuxCaller`."""
        prompt = self._counter.prompt(messages)
        source = "seeded" if self._is_pinned else "model"
        pinned = self._stand_in(kind, min(declared_tokens, max_completion_tokens)) if self._is_pinned else None
        mark_s = stopwatch_s()
        try:
            result = await self._caller.call(
                kind=kind,
                messages=messages,
                prompt=prompt,
                proposal=Proposal(max_completion_tokens=max_completion_tokens, pinned=pinned),
                aux_source=source,
                is_priced_uncached=is_priced_uncached,
                adopt=lambda text: bool(text.strip()) and (adopt is None or adopt(text)),
            )
        finally:
            self.waited_s += stopwatch_s() - mark_s
        if not result.message.content.strip():
            raise AuxiliaryError(f"the {kind.value} call of step {self.main_step} came back empty")
        return AuxReply(result.message.content, result.usage, source)

    def _stand_in(self, kind: CallKind, num_tokens: int) -> PinnedReply:
        """A seeded text of `num_tokens` tokens, give or take one word; the engine generates exactly that many."""
        # Every word is at least one token with its blank, so the text is too long and only has to be cut.
        words = [
            _WORDS[self._streams.integer("aux", kind.value, self.main_step, index) % len(_WORDS)]
            for index in range(max(1, num_tokens))
        ]
        low, high = 1, len(words)
        while low < high:
            middle = (low + high + 1) // 2
            if self._counter.count_text(" ".join(words[:middle])) <= num_tokens:
                low = middle
            else:
                high = middle - 1
        return PinnedReply(Message("assistant", " ".join(words[:low])), max(1, num_tokens), None)

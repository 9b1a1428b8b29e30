"""The seams of the serving room: replicas, routers, clocks and step-time models."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from serving.calls import CallRequest, CallResult, Message, Prompt, ReplicaSample, ReplicaView, RouteDecision, TokenIds


class Clock(Protocol):
    """The only source of time for sessions, engines and executors."""

    def now_s(self) -> float:
        """Seconds since the attempt began."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return `seconds` later; 0 yields to the other tasks of this moment."""
        ...

    def outside(self) -> AbstractAsyncContextManager[None]:
        """Stop virtual time while something outside the loop (thread, socket, Ray) is awaited."""
        ...


class Replica(Protocol):
    """One engine serving one model."""

    replica_id: str
    model: str

    async def generate(self, call: CallRequest) -> CallResult:
        """Serve one call.

        Raises:
            StreamTimeout: no token for `call.idle_timeout_s`, queue included; the engine has aborted the call.
            ContextOverflow: the prompt is longer than the engine's limit.
            ReplicaRejected, ReplicaLost: the engine's fault; the attempt is invalid.
        """
        ...

    def sample(self) -> ReplicaSample:
        """State now."""
        ...

    def drain_samples(self) -> list[ReplicaSample]:
        """The samples taken at the configured interval since the last drain."""
        ...

    async def reset_prefix_cache(self) -> None:
        """Empty the prefix cache; only while nothing runs."""
        ...

    async def close(self) -> None:
        """Free the engine."""
        ...


class Router(Protocol):
    """Where a call goes. Stateless, pure and local to the worker."""

    def choose(self, call: CallRequest, *, home: int, views: Sequence[ReplicaView]) -> RouteDecision:
        """Choose a replica for one call.

        Args:
            call: the call; auxiliary calls carry the `main_index` of their main call and so follow it.
            home: the session's slot, given when the session was handed out (0, 1, 2, ... in task order).
            views: (R,) replicas in fixed order, R >= 1.
        Raises:
            NoReplicaError: no replica serves what this router needs.
        """
        ...


class TokenCounter(Protocol):
    """Text to token ids, without network. `name` is identity."""

    @property
    def name(self) -> str:
        """Identity of the counter: kind and a digest of what decides an id."""
        ...

    def encode(self, message: Message) -> TokenIds:
        """Ids of one message with its role frame; cached by content."""
        ...

    def count(self, message: Message) -> int:
        """Length of `encode(message)`."""
        ...

    def count_text(self, text: str) -> int:
        """Tokens of a bare text without a role frame."""
        ...

    def reply_ids(self, message: Message) -> TokenIds:
        """Ids an assistant message adds after the generation prompt."""
        ...

    def prompt(self, messages: Sequence[Message]) -> Prompt:
        """Ids of a whole prompt, ending with the generation prompt."""
        ...

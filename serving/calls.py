"""The data of one model call: what is sent to a replica and what comes back.

For routers, engines and the session loop. Token counts are integers, times are seconds on the clock of the
attempt (virtual or wall). Invariants: 0 <= cached <= prompt; `None` means "not reported", never 0.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt

TokenIds = npt.NDArray[np.int64]


class CallKind(StrEnum):
    """Why a call is made; every kind but `main` is an auxiliary call of its main-loop step."""

    main = "main"
    summary = "summary"
    rewrite = "rewrite"
    scorer = "scorer"
    judge = "judge"


class FinishReason(StrEnum):
    """How the engine ended a call."""

    stop = "stop"
    length = "length"
    abort = "abort"


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One tool call inside an assistant message; `arguments` is the raw JSON text."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Message:
    """One chat message in the OpenAI shape, hashable so that token counts can be cached by content."""

    role: str
    content: str
    reasoning: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None


@dataclass(frozen=True, slots=True)
class Prompt:
    """A tokenized prompt.

    Attributes:
        pieces: one int64 id array per message, then the generation prompt.
        num_tokens: total length.
        digest: hex digest of the messages, equal for equal prompts in every process.
    """

    pieces: tuple[TokenIds, ...]
    num_tokens: int
    digest: str

    def ids(self) -> TokenIds:
        """All token ids as one (num_tokens,) array."""
        return np.concatenate(self.pieces) if self.pieces else np.empty(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class PinnedReply:
    """A reply fixed in advance (replay, scripted): the engine generates exactly this many tokens.

    `ids` are the ids the reply will have in the next prompt's assistant message, after the generation prompt
    (shorter than `num_tokens` when the recorded count is larger: the rest gets fresh ids); `None` makes every
    generated position opaque, as on a real server that generates something else.
    """

    message: Message
    num_tokens: int
    ids: TokenIds | None


@dataclass(frozen=True, slots=True)
class CallRequest:
    """One request to a replica.

    Attributes:
        call_id: unique over all attempts.
        main_index: 1-based index of the main-loop call this one is or belongs to; routers use it.
        call_index: 1-based over all calls of the session, auxiliary ones included.
        model: the model asked for; a router may choose a replica of another one.
    """

    call_id: str
    session_id: str
    kind: CallKind
    call_index: int
    main_index: int
    model: str
    messages: tuple[Message, ...]
    prompt: Prompt
    max_completion_tokens: int
    pinned: PinnedReply | None = None
    temperature: float = 0.0
    seed: int | None = None
    idle_timeout_s: float = 600.0
    extra_body: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TokenUsage:
    """Token counts of one call. Invariant: cached is part of prompt. `source` is engine, server or client."""

    num_prompt_tokens: int
    num_cached_tokens: int | None
    num_completion_tokens: int
    source: str


@dataclass(frozen=True, slots=True)
class EngineTimings:
    """What the engine says about one call, on its own clock; `None` where the engine does not report it.

    queue_delay_s: first scheduled - arrival. requeue_s: all waits after preemptions. prefill_s: first scheduled to
    first token. decode_s: first to last token. recomputed_tokens: computed tokens lost to preemptions.
    max_shared_tokens: upper bound of the prefix shared with any earlier prompt on this replica.
    """

    queue_delay_s: float | None = None
    requeue_s: float | None = None
    prefill_s: float | None = None
    decode_s: float | None = None
    num_preemptions: int | None = None
    recomputed_tokens: int | None = None
    max_shared_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class CallResult:
    """A finished call. sent_s <= first_token_s <= last_token_s on the attempt's clock."""

    message: Message
    usage: TokenUsage
    timings: EngineTimings
    sent_s: float
    first_token_s: float
    last_token_s: float
    finish_reason: FinishReason


@dataclass(frozen=True, slots=True)
class ReplicaView:
    """What a router may know of a replica. Load fields are as old as the board's `signal_age_s`, or None."""

    replica_id: str
    model: str
    num_running: int | None = None
    num_waiting: int | None = None
    kv_usage: float | None = None


@dataclass(frozen=True, slots=True)
class RouteDecision:
    """A router's choice and its reason, stored with the call."""

    replica_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class ReplicaSample:
    """State of one replica at one moment; counters are cumulative since the engine started."""

    t_s: float
    kv_usage: float
    kv_usage_peak: float
    num_running: int
    num_waiting: int
    num_preemptions_total: int
    prefix_queries_tokens: int
    prefix_hits_tokens: int

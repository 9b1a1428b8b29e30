"""Calls of one session: number, route, send, and turn each into a row, whatever comes of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from db import records
from serving import errors as serving_errors
from serving.calls import CallKind, CallRequest, CallResult, Message, Prompt, ReplicaView, RouteDecision
from serving.clock import stopwatch_s
from serving.interfaces import Clock, Replica, Router
from workers.fate import RemovedTokens
from workers.history import Rendered
from workers.interfaces import Proposal, RowSink
from workers.prompt_parts import PartTokens, shared_tokens

MAX_UNACKNOWLEDGED_ROWS = 64


@dataclass(frozen=True, slots=True)
class CallCost:
    """What the session knows about a main call before it is sent; None for auxiliary calls."""

    step: int
    render_ms: float
    own_ms: float
    own_s_modelled: float
    tool_result_s: float | None
    rendered: Rendered
    parts: PartTokens
    removed: RemovedTokens


@dataclass(slots=True)
class ModelCaller:
    """Sends the calls of one session and keeps its counts."""

    attempt_id: str
    session_id: str
    home: int
    model: str
    router: Router
    replicas: Mapping[str, Replica]
    views: Callable[[], Sequence[ReplicaView]]
    clock: Clock
    sink: RowSink
    idle_timeout_s: float
    num_main_calls: int = 0
    num_auxiliary_calls: int = 0
    first_request_s: float | None = None
    last_response_s: float | None = None
    peak_prompt_tokens: int | None = None
    _previous: Prompt | None = None
    _record_wait_ms: float = 0.0
    _extra_body: dict[str, Any] = field(default_factory=dict)

    async def call(
        self,
        *,
        kind: CallKind,
        messages: tuple[Message, ...],
        prompt: Prompt,
        proposal: Proposal,
        cost: CallCost | None = None,
        aux_source: str | None = None,
        is_priced_uncached: bool = False,
        adopt: Callable[[str], bool] | None = None,
    ) -> CallResult:
        """Route and send one call, and record it.

        Args:
            adopt: whether the reply's text is used, for the row of an auxiliary call.
        Raises:
            ServingError: as the replica raised it, after the row of the failed call was recorded.
        """
        request = self._request(kind, messages, prompt, proposal)
        views = self.views()
        route = self.router.choose(request, home=self.home, views=views)
        model = next(view.model for view in views if view.replica_id == route.replica_id)
        row = self._base_row(kind, prompt, cost) | {"model": model, "aux_source": aux_source, **_route(route)}
        due_s = self.clock.now_s()
        self.first_request_s = due_s if self.first_request_s is None else self.first_request_s
        row["due_s"] = due_s
        row["is_priced_uncached"] = is_priced_uncached
        row["shared_prefix_tokens"] = shared_tokens(self._previous, prompt) if kind is CallKind.main else None
        try:
            result = await self.replicas[route.replica_id].generate(request)
        except serving_errors.ServingError as exc:
            state = "timeout" if isinstance(exc, serving_errors.CallTimeout) else "error"
            self._count(kind)
            self.last_response_s = self.clock.now_s()
            self._send(records.Call(**row, state=state, error=f"{type(exc).__name__}: {exc}"))
            raise
        self._count(kind)
        self._keep(request, result)
        if request.call_index == 1:
            row["shared_prefix_tokens"] = result.timings.max_shared_tokens
        if adopt is not None:
            row["is_adopted"] = adopt(result.message.content)
        self._send(records.Call(**row, **_result_columns(result), state="ok"))
        await self._settle()
        return result

    def record_exhausted(self, prompt: Prompt, cost: CallCost) -> None:
        """Record a prompt that is longer than the budget and so is not sent."""
        row = self._base_row(CallKind.main, prompt, cost)
        self._send(records.Call(**row, model=self.model, state="exhausted"))

    def _request(
        self, kind: CallKind, messages: tuple[Message, ...], prompt: Prompt, proposal: Proposal
    ) -> CallRequest:
        index = self._next_index()
        main_index = self.num_main_calls + 1 if kind is CallKind.main else max(1, self.num_main_calls)
        return CallRequest(
            call_id=f"{self.attempt_id}/{self.session_id}/{index}/1",
            session_id=self.session_id,
            kind=kind,
            call_index=index,
            main_index=main_index,
            model=self.model,
            messages=messages,
            prompt=prompt,
            max_completion_tokens=proposal.max_completion_tokens,
            pinned=proposal.pinned,
            temperature=proposal.temperature,
            seed=proposal.seed,
            idle_timeout_s=self.idle_timeout_s,
            extra_body=self._extra_body,
        )

    def _next_index(self) -> int:
        return self.num_main_calls + self.num_auxiliary_calls + 1

    def _base_row(self, kind: CallKind, prompt: Prompt, cost: CallCost | None) -> dict[str, Any]:
        row: dict[str, Any] = {
            "attempt_id": self.attempt_id,
            "session_id": self.session_id,
            "call_index": self._next_index(),
            "kind": kind.value,
            "num_estimated_prompt_tokens": prompt.num_tokens,
            "prompt_digest": prompt.digest,
            "record_wait_ms": self._record_wait_ms,
        }
        if cost is not None:
            row |= _cost_columns(cost)
        return row

    def _count(self, kind: CallKind) -> None:
        if kind is CallKind.main:
            self.num_main_calls += 1
        else:
            self.num_auxiliary_calls += 1

    def _keep(self, request: CallRequest, result: CallResult) -> None:
        self.last_response_s = result.last_token_s
        self.peak_prompt_tokens = max(self.peak_prompt_tokens or 0, result.usage.num_prompt_tokens)
        if request.kind is CallKind.main:
            self._previous = _with_reply(request)

    def _send(self, row: records.Call) -> None:
        self.sink.record_call(row)

    async def _settle(self) -> None:
        mark_s = stopwatch_s()
        await self.sink.settle(max_pending=MAX_UNACKNOWLEDGED_ROWS)
        self._record_wait_ms = (stopwatch_s() - mark_s) * 1e3


def _with_reply(request: CallRequest) -> Prompt:
    """The prompt and, where its ids are known, the reply after it: what the cache can hold after the call."""
    prompt, pinned = request.prompt, request.pinned
    if pinned is None or pinned.ids is None or not prompt.pieces:
        return prompt
    last = np.concatenate((prompt.pieces[-1], pinned.ids[: pinned.num_tokens]))
    return Prompt((*prompt.pieces[:-1], last), prompt.num_tokens + last.size - prompt.pieces[-1].size, prompt.digest)


def _route(route: RouteDecision) -> dict[str, Any]:
    return {"replica": route.replica_id, "route_reason": route.reason}


def _cost_columns(cost: CallCost) -> dict[str, Any]:
    return {
        "step": cost.step,
        "render_ms": cost.render_ms,
        "own_ms": cost.own_ms,
        "own_s_modelled": cost.own_s_modelled,
        "tool_result_s": cost.tool_result_s,
        "boundary": cost.rendered.boundary,
        "num_folded": cost.rendered.num_folded,
        "num_stubs": cost.rendered.num_stubs,
        "num_exempt": cost.rendered.num_exempt,
        "system_task_tokens": cost.parts.opening,
        "agent_tokens": cost.parts.agent,
        "observation_tokens": cost.parts.observation,
        "removed_recoverable_tokens": cost.removed.recoverable,
        "removed_reproducible_tokens": cost.removed.reproducible,
        "removed_irrecoverable_tokens": cost.removed.irrecoverable,
    }


def _result_columns(result: CallResult) -> dict[str, Any]:
    timings = result.timings
    return {
        "num_prompt_tokens": result.usage.num_prompt_tokens,
        "num_cached_tokens": result.usage.num_cached_tokens,
        "num_completion_tokens": result.usage.num_completion_tokens,
        "usage_source": result.usage.source,
        "sent_s": result.sent_s,
        "first_token_s": result.first_token_s,
        "last_token_s": result.last_token_s,
        "queue_delay_s": timings.queue_delay_s,
        "requeue_s": timings.requeue_s,
        "prefill_s": timings.prefill_s,
        "decode_s": timings.decode_s,
        "num_preemptions": timings.num_preemptions,
        "recomputed_tokens": timings.recomputed_tokens,
        "finish_reason": result.finish_reason.value,
    }

"""Ray handles behind our seams, and the one place that maps Ray's errors to ours.

A Ray error is blamed on the handle that was called. That needs care: a live worker whose replica died raises an error
that is a task error (it ran and failed) and, by inheritance, also an actor death; asked the wrong way round it looks
like the worker's own death.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import ray

from db import records
from db.errors import DbError, DbUnavailable
from orchestrator.attempt import AttemptSetup, engine_of
from orchestrator.executors.loop_lag import LoopLag
from orchestrator.executors.shared_clock import SharedClock
from orchestrator.interfaces import AttemptOutcome
from serving.calls import CallRequest, CallResult, ReplicaSample, ReplicaView
from serving.errors import ReplicaLost
from serving.interfaces import Replica


def is_own_death(exc: ray.exceptions.RayError) -> bool:
    """Whether the actor or task that was called is gone; False: it lives, and its code raised."""
    return not isinstance(exc, ray.exceptions.RayTaskError)


def outcome_of_ray_error(attempt_id: str, exc: ray.exceptions.RayError, reason: str | None) -> AttemptOutcome:
    """What a failed Ray task means for its attempt.

    Args:
        reason: why we cancelled it, or None when we did not.
    """
    if reason is not None:
        return AttemptOutcome(attempt_id, "Cancelled", reason, one_line(exc))
    if not is_own_death(exc):
        cause = exc.cause
        return AttemptOutcome(attempt_id, "Bug", f"{type(cause).__name__}: {cause}", str(exc))
    message = f"{type(exc).__name__}: the process or node that ran the attempt is gone"
    return AttemptOutcome(attempt_id, "WorkerLost", message, one_line(exc))


def one_line(exc: BaseException) -> str:
    """An error's text on one line, at most 500 characters."""
    return " ".join(str(exc).split())[:500] or type(exc).__name__


class ActorReplica:
    """A replica in another process, behind `serving.interfaces.Replica`; stamps are the caller's.

    The engine's own intervals (queue, prefill, decode) stay as the engine measured them. What the client sees, sent to
    last token, is read on the client's clock, so that the way through Ray counts as the network would.
    """

    def __init__(self, replica_id: str, model: str, handle: Any, clock: SharedClock) -> None:
        self.replica_id = replica_id
        self.model = model
        self._handle = handle
        self._clock = clock

    async def generate(self, call: CallRequest) -> CallResult:
        """Serve one call; see `Replica`."""
        sent_s = self._clock.now_s()
        answer = self._handle.generate.remote(call)
        try:
            result, error = await answer
        except asyncio.CancelledError:
            ray.cancel(answer)
            raise
        except ray.exceptions.RayError as exc:
            raise self._blame(exc) from exc
        if error is not None:
            raise error
        last_s = self._clock.now_s()
        first_s = max(sent_s, last_s - (result.last_token_s - result.first_token_s))
        stamped: CallResult = replace(result, sent_s=sent_s, first_token_s=first_s, last_token_s=last_s)
        return stamped

    def sample(self) -> ReplicaSample:
        """State now; blocks until the replica has answered."""
        sample: ReplicaSample = self._get(self._handle.sample.remote())
        return sample

    def drain_samples(self) -> list[ReplicaSample]:
        """None: the replica's own process sends its samples to the recorder."""
        return []

    async def reset_prefix_cache(self) -> None:
        """Empty the prefix cache; only while nothing runs."""
        try:
            error = await self._handle.reset_prefix_cache.remote()
        except ray.exceptions.RayError as exc:
            raise self._blame(exc) from exc
        if error is not None:
            raise error

    async def close(self) -> None:
        """Nothing: the attempt ends its replicas, not a client."""

    def _get(self, answer: Any) -> Any:
        try:
            return ray.get(answer)
        except ray.exceptions.RayError as exc:
            raise self._blame(exc) from exc

    def _blame(self, exc: ray.exceptions.RayError) -> Exception:
        if is_own_death(exc):
            return ReplicaLost(f"replica {self.replica_id} is gone ({type(exc).__name__})")
        cause: Exception = exc.cause
        return cause


class GatedReplica:
    """Holds calls back until the attempt's clock runs; otherwise the replica it wraps."""

    def __init__(self, replica: Replica, clock: SharedClock) -> None:
        self.replica_id = replica.replica_id
        self.model = replica.model
        self.sample = replica.sample
        self.drain_samples = replica.drain_samples
        self.reset_prefix_cache = replica.reset_prefix_cache
        self.close = replica.close
        self._generate = replica.generate
        self._clock = clock

    async def generate(self, call: CallRequest) -> CallResult:
        """Serve one call; see `Replica`."""
        await self._clock.begun()
        return await self._generate(call)


class ActorSink:
    """A `RowSink` over the recorder actor: rows leave at once, nobody waits for them until `settle`.

    Args:
        lag: where each call row's `loop_lag_ms` comes from.
    """

    def __init__(self, attempt_id: str, recorder: Any, lag: LoopLag | None = None) -> None:
        self.num_calls = 0
        self._attempt_id = attempt_id
        self._recorder = recorder
        self._lag = lag
        self._outbox: list[Any] = []
        self._num_pending = 0
        self._error: DbError | None = None
        self._changed = asyncio.Event()
        self._sending: set[asyncio.Task[None]] = set()

    def record_session(self, session: records.Session) -> None:
        """See `RowSink`."""
        self._accept(session)

    def record_call(self, call: records.Call) -> None:
        """See `RowSink`."""
        self.num_calls += 1
        self._accept(call if self._lag is None else replace(call, loop_lag_ms=self._lag.take_ms()))

    def record_tool_execution(self, execution: records.ToolExecution) -> None:
        """See `RowSink`."""
        self._accept(execution)

    def record_samples(self, samples: list[records.ServerSample]) -> None:
        """Accept a replica's samples."""
        for sample in samples:
            self._accept(sample)

    def record_event(self, event: records.Event) -> None:
        """Accept an event."""
        self._accept(event)

    async def settle(self, *, max_pending: int) -> None:
        """See `RowSink`."""
        while self._error is None and self._num_pending > max_pending:
            self._changed.clear()
            await self._changed.wait()
        if self._error is not None:
            raise self._error

    def _accept(self, row: Any) -> None:
        if self._error is not None:
            raise self._error
        self._num_pending += 1
        self._outbox.append(row)
        if len(self._outbox) == 1:
            task = asyncio.get_running_loop().create_task(self._send())
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)

    async def _send(self) -> None:
        rows, self._outbox = self._outbox, []
        try:
            error = await self._recorder.record.remote(self._attempt_id, rows)
        except ray.exceptions.RayError as exc:
            gone = is_own_death(exc)
            text = f"the recorder is gone ({type(exc).__name__})" if gone else f"the recorder failed: {exc.cause}"
            error = DbUnavailable(text)
        self._num_pending -= len(rows)
        self._error = self._error or error
        self._changed.set()


def connect_replica(
    setup: AttemptSetup, view: ReplicaView, handle: Any, endpoint: str | None, clock: SharedClock
) -> Replica:
    """A worker's way to a replica: straight to a real server's URL, through the actor otherwise."""
    if endpoint is None:
        return GatedReplica(ActorReplica(view.replica_id, view.model, handle, clock), clock)
    return GatedReplica(engine_of(setup).connect(view.replica_id, view.model, endpoint, clock), clock)

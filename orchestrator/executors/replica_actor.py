"""One replica as an actor: it owns the engine's life, serves calls and sends its own samples to the recorder."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any, NamedTuple

import ray

from db.errors import DbError
from orchestrator.executors.shared_clock import SharedClock
from serving.calls import CallRequest, CallResult, ReplicaSample
from serving.errors import ServingError

if TYPE_CHECKING:
    from orchestrator.interfaces import AttemptPlan

# Samples are sent to the recorder this often, in wall seconds.
_DRAIN_EVERY_S = 0.5


class Served(NamedTuple):
    """A call's result, or the typed error it ended with."""

    result: CallResult | None
    error: ServingError | None


class ReplicaFacts(NamedTuple):
    """What a launched replica says about itself."""

    pid: int
    node_id: str
    is_cache_warm: bool
    endpoint: str | None


class ReplicaReport(NamedTuple):
    """What an ended replica leaves: its CPU time and why its last samples could not be written."""

    cpu_s: float
    error: DbError | None


class ReplicaActor:
    """An engine behind a Ray handle; make one per replica and attempt, so that every attempt starts cold."""

    async def hello(self) -> int:
        """The process id; answers when the actor is up."""
        return os.getpid()

    async def launch(self, plan: AttemptPlan, index: int, clock_speed: float, recorder: Any) -> ReplicaFacts:
        """Start the engine of replica `index` of the plan; its clock stands still until `begin`.

        Raises:
            ServingError: the engine's settings are impossible, or it does not start.
        """
        from orchestrator.attempt import launch_replica, prepare, replica_plans
        from orchestrator.executors.actor_proxies import ActorSink

        self._attempt_id = plan.attempt_id
        self._clock = SharedClock(clock_speed)
        self._sink = ActorSink(plan.attempt_id, recorder)
        self._draining: asyncio.Task[None] | None = None
        setup = prepare(plan, with_tasks=False)
        replica_plan = replica_plans(plan.config)[index]
        self._replica = launch_replica(setup, replica_plan, self._clock)
        return ReplicaFacts(
            pid=os.getpid(),
            node_id=ray.get_runtime_context().get_node_id(),
            is_cache_warm=self._replica.sample().prefix_hits_tokens > 0,
            endpoint=getattr(self._replica, "endpoint", None),
        )

    async def begin(self, start_utc_s: float) -> None:
        """The attempt begins at this instant."""
        self._clock.begin(start_utc_s)
        self._draining = asyncio.get_running_loop().create_task(self._drain_all())

    async def generate(self, call: CallRequest) -> Served:
        """Serve one call; typed errors come back as values."""
        try:
            return Served(await self._replica.generate(call), None)
        except ServingError as exc:
            return Served(None, exc)

    async def sample(self) -> ReplicaSample:
        """State now."""
        return self._replica.sample()

    async def reset_prefix_cache(self) -> ServingError | None:
        """Empty the prefix cache; the error says why not."""
        try:
            await self._replica.reset_prefix_cache()
        except ServingError as exc:
            return exc
        return None

    async def finish(self) -> ReplicaReport:
        """Stop the engine when its last samples are committed."""
        from serving.clock import cpu_s

        if self._draining is not None:
            self._draining.cancel()
        error = None
        try:
            self._drain()
            await self._sink.settle(max_pending=0)
        except DbError as exc:
            error = exc
        await self._replica.close()
        return ReplicaReport(cpu_s(), error)

    def _drain(self) -> None:
        from orchestrator.virtual_attempt import sample_row

        rows = [
            sample_row(self._attempt_id, self._replica.replica_id, sample) for sample in self._replica.drain_samples()
        ]
        self._sink.record_samples(rows)

    async def _drain_all(self) -> None:
        while True:
            await asyncio.sleep(_DRAIN_EVERY_S)
            try:
                self._drain()
            except DbError:
                return  # `finish` reports it; the workers' own rows fail with the same error


RemoteReplica: Any = ray.remote(num_cpus=0, max_restarts=0, max_task_retries=0, max_concurrency=100_000)(ReplicaActor)

"""An agent worker as an actor: one session at a time (or a few, packed), for one attempt after another.

Started once per sweep and lent to attempts. Nothing heavy is imported before the first attempt, and agent workers never
import litellm, swebench, pyarrow or vllm.
"""

from __future__ import annotations

import asyncio
import os
import resource
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import ray

from db.errors import DbError
from orchestrator.executors.loop_lag import LoopLag
from orchestrator.executors.packages import block_pyarrow, fingerprint
from orchestrator.executors.shared_clock import SharedClock
from orchestrator.executors.view_board import ViewCache, wait_s_of
from serving.calls import ReplicaView
from serving.clock import cpu_s

if TYPE_CHECKING:
    from orchestrator.attempt import AttemptSetup
    from orchestrator.interfaces import AttemptPlan
    from workers.errors import SessionEnd
    from workers.interfaces import Task
    from workers.session import SessionWorld

_GATE_POLL_S = 0.01


class WorkerHello(NamedTuple):
    """Who a started worker is. `code`: fingerprint of our packages as it sees them."""

    pid: int
    node_id: str
    code: str


@dataclass(frozen=True, slots=True)
class Peers:
    """The other actors of an attempt, as a worker needs them.

    Attributes:
        views: (R,) the replicas in fixed order; `replicas` and `endpoints` by replica id.
        board: the ViewBoard, or None where the router looks at no load.
    """

    recorder: Any
    replicas: Mapping[str, Any]
    endpoints: Mapping[str, str | None]
    views: Sequence[ReplicaView]
    board: Any
    signal_age_s: float


class SessionReport(NamedTuple):
    """How a session ended, for the coordinator; its row is committed."""

    status: str
    invalidates_cell: bool
    message: str
    num_calls: int


class WorkerReport(NamedTuple):
    """What a worker measured of itself during an attempt."""

    max_loop_lag_ms: float
    cpu_s: float
    peak_rss_bytes: int


class AgentWorkerActor:
    """Runs sessions of the attempt it is set up for."""

    def __init__(self) -> None:
        block_pyarrow()
        self._lag = LoopLag()
        self._open: set[asyncio.Task[SessionEnd]] = set()

    async def hello(self) -> WorkerHello:
        """Answers when the actor is up."""
        return WorkerHello(os.getpid(), ray.get_runtime_context().get_node_id(), fingerprint())

    async def loaded_modules(self) -> frozenset[str]:
        """Top-level modules this process has imported; a test looks for those that agent workers never import."""
        return frozenset(name.partition(".")[0] for name, module in sys.modules.items() if module is not None)

    async def set_up(self, plan: AttemptPlan, clock_speed: float, peers: Peers) -> None:
        """Build the attempt's components; the clock stands still until `begin`.

        Raises:
            ConfigurationError, ConfigError: the plan's configuration cannot be built here.
        """
        import workers.agent_worker  # noqa: F401  (its imports must not delay the first session)
        from orchestrator.attempt import prepare

        self._clock = SharedClock(clock_speed)
        self._num_ended = 0
        self._peers = peers
        self._setup: AttemptSetup = prepare(plan, with_tasks=False)
        self._views = ViewCache(peers.views)
        self._world = self._make_world()

    async def at_gate(self, count: int) -> None:
        """Answers when `count` sessions wait for the attempt to begin, or have ended before it."""
        while self._clock.num_waiting + self._num_ended < count:
            await asyncio.sleep(_GATE_POLL_S)

    async def begin(self, start_utc_s: float) -> None:
        """The attempt begins at this instant."""
        self._clock.begin(start_utc_s)
        self._cpu_before_s = cpu_s()
        self._lag.start()
        if self._peers.board is not None:
            self._views.follow(self._peers.board, wait_s_of(self._peers.signal_age_s, self._clock))

    async def run_session(self, task: Task, ordinal: int, worker: str) -> SessionReport:
        """Run one session to its end; answers when all its rows are committed."""
        from orchestrator.executors.actor_proxies import ActorSink
        from workers.agent_worker import AgentWorker
        from workers.errors import Cancelled, RecorderLost

        sink = ActorSink(self._setup.plan.attempt_id, self._peers.recorder, self._lag)
        agent = AgentWorker(worker, replace(self._world, sink=sink), self._setup.parts)
        running = asyncio.get_running_loop().create_task(agent.run_session(task, ordinal))
        self._open.add(running)
        end: SessionEnd
        try:
            end = await running
            await sink.settle(max_pending=0)
        except asyncio.CancelledError:
            end = Cancelled("the attempt was stopped")
            await _settled(sink)
        except DbError as exc:
            end = RecorderLost(str(exc))
        finally:
            self._open.discard(running)
            self._num_ended += 1
        return SessionReport(end.status, end.invalidates_cell, str(end), sink.num_calls)

    async def stop(self) -> None:
        """Cancel the open sessions; they record themselves as Cancelled and their `run_session` answers."""
        for task in self._open:
            task.cancel()

    async def finish(self) -> WorkerReport:
        """The attempt is over: what was measured."""
        self._lag.stop()
        self._views.stop()
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return WorkerReport(self._lag.max_ms, cpu_s() - self._cpu_before_s, usage.ru_maxrss * 1024)

    def _make_world(self) -> SessionWorld:
        from orchestrator.executors.actor_proxies import ActorSink, connect_replica

        peers = self._peers
        replicas = {
            view.replica_id: connect_replica(
                self._setup, view, peers.replicas[view.replica_id], peers.endpoints[view.replica_id], self._clock
            )
            for view in peers.views
        }
        sink = ActorSink(self._setup.plan.attempt_id, peers.recorder)
        world = self._setup.world(replicas=replicas, views=peers.views, clock=self._clock, sink=sink)
        return replace(world, views=self._views.views)


RemoteAgentWorker: Any = ray.remote(num_cpus=0, max_restarts=0, max_task_retries=0, max_concurrency=1_000)(
    AgentWorkerActor
)


async def _settled(sink: Any) -> None:
    """Wait for a cancelled session's rows; a recorder that is gone too has told others."""
    try:
        await sink.settle(max_pending=0)
    except DbError:
        return

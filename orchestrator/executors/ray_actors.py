"""The wall-clock executor: w agent-worker actors, replica actors, a recorder; for every engine that is not virtual.

Default for real engines. On simulated replicas the attempt's clock runs `clock_speed` times faster than the wall: the
engine keeps its own time and sleeps to it. Ray never retries and never restarts (`max_retries=0`, `max_restarts=0`):
only the driver makes attempts.
"""

from __future__ import annotations

import asyncio
import math
import queue
import threading
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from orchestrator.executors import ray_cluster
from orchestrator.executors.actor_pool import ActorPool
from orchestrator.executors.attempt_run import AttemptRun, RunSettings
from orchestrator.interfaces import AttemptOutcome, AttemptPlan, AttemptProgress
from serving.clock import stopwatch_s

T = TypeVar("T")

_SIMULATED_SPEED = 100.0
_SIMULATED_ENGINE = "serving.engines.simulated."
_CLOSE_TIMEOUT_S = 30.0
_NODE_LOOK_S = 3.0  # how often an idle look at the executor asks whether its Ray node lives


@dataclass
class RayActorsExecutor:
    """Runs attempts on Ray actors in real time.

    Attributes:
        address: Ray cluster, `local` for one of our own.
        parallel: attempts in flight.
        sessions_per_actor: sessions that share one agent-worker process; 1 = one process per session.
        clock_speed: seconds of the attempt per wall second; None = 100 for simulated engines, 1 for all others.
        signal_age_s: how old a router's view of the replicas' load may be, on the attempt's clock.

    Source: architecture sections 3, 5, 8 and 9; ReFold section 4.3 (w agents at once on shared replicas).
    """

    address: str = "local"
    parallel: int = 1
    sessions_per_actor: int = 1
    clock_speed: float | None = None
    signal_age_s: float = 1.0
    _thread: Any = field(default=None, init=False, repr=False)
    _runs: dict[str, AttemptRun] = field(default_factory=dict, init=False, repr=False)
    _outcomes: Any = field(default_factory=queue.SimpleQueue, init=False, repr=False)
    _pool: Any = field(default=None, init=False, repr=False)
    _looked_s: float = field(default=0.0, init=False, repr=False)

    def __post_init__(self) -> None:
        """Refuse what cannot run."""
        for name in ("parallel", "sessions_per_actor"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.clock_speed is not None and not (0 < self.clock_speed < math.inf):
            raise ValueError(f"clock_speed must be above 0, not {self.clock_speed}")
        if not self.signal_age_s > 0:
            raise ValueError(f"signal_age_s must be above 0, not {self.signal_age_s}")

    @property
    def num_parallel(self) -> int:
        """How many attempts may be in flight at once."""
        return self.parallel

    def open(self, *, largest_num_workers: int) -> None:
        """See `Executor`; starts the agent workers of the largest w, in waves."""
        ray_cluster.start_or_join(self.address)
        self._thread = _LoopThread()
        self._pool = ActorPool(is_joined=self.address != "local")
        size = self.parallel * math.ceil(largest_num_workers / self.sessions_per_actor)
        try:
            self._thread.call(self._pool.fill(size))
        except BaseException:
            self.close()
            raise

    def submit(self, plan: AttemptPlan) -> None:
        """See `Executor`."""
        settings = RunSettings(self._speed_for(plan), self.sessions_per_actor, self.signal_age_s)
        run = AttemptRun(plan, self._pool, settings)
        self._runs[plan.attempt_id] = run
        self._thread.start(self._run(run))

    def wait(self, timeout_s: float) -> Sequence[AttemptOutcome]:
        """See `Executor`.

        Raises:
            ClusterError: this driver's Ray node is gone, so that no attempt can run any more.
        """
        outcomes = []
        try:
            outcomes.append(self._outcomes.get(timeout=timeout_s))
            while True:
                outcomes.append(self._outcomes.get_nowait())
        except queue.Empty:
            if not outcomes:
                self._look_at_node()
            return outcomes

    def _look_at_node(self) -> None:
        if stopwatch_s() - self._looked_s > _NODE_LOOK_S:
            self._looked_s = stopwatch_s()
            ray_cluster.require_own_node()

    def progress(self) -> Sequence[AttemptProgress]:
        """See `Executor`."""
        return [run.progress() for run in list(self._runs.values())]

    @property
    def pool(self) -> ActorPool:
        """The actors that outlive an attempt; only while the executor is open."""
        pool: ActorPool = self._pool
        return pool

    def facts_of(self, attempt_id: str) -> dict[str, Any]:
        """What is known of a running attempt: process ids of its workers, replicas and recorder."""
        return dict(self._runs[attempt_id].facts)

    def cancel(self, attempt_id: str, reason: str) -> None:
        """See `Executor`."""
        run = self._runs.get(attempt_id)
        if run is not None:
            self._thread.soon(run.cancel, reason)

    def close(self) -> None:
        """See `Executor`."""
        if self._thread is not None:
            self._thread.end()
            self._thread = None
        ray_cluster.stop()

    async def _run(self, run: AttemptRun) -> None:
        outcome = await run.run()
        self._runs.pop(run.plan.attempt_id, None)
        self._outcomes.put(outcome)

    def _speed_for(self, plan: AttemptPlan) -> float:
        if self.clock_speed is not None:
            return self.clock_speed
        is_simulated = str(plan.config["engine"]["_target_"]).startswith(_SIMULATED_ENGINE)
        return _SIMULATED_SPEED if is_simulated else 1.0


class _LoopThread:
    """An asyncio loop in a thread of its own; attempts live on it."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._tasks: set[Any] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, name="coordinator", daemon=True)
        self._thread.start()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` there and wait for its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run `work` there."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        self._tasks.add(future)
        future.add_done_callback(self._tasks.discard)

    def soon(self, function: Any, *arguments: Any) -> None:
        """Call a function there."""
        self._loop.call_soon_threadsafe(function, *arguments)

    def end(self) -> None:
        """Cancel everything and end the thread."""
        for future in list(self._tasks):
            future.cancel()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_CLOSE_TIMEOUT_S)
        if not self._thread.is_alive():
            self._loop.close()

"""One attempt in virtual time: w agent workers as coroutines over simulated replicas in this process.

The Ray task of `executors/virtual.py` and re-rendering call `run_recorded_attempt`; tests and profiles call
`run_virtual_attempt` with a recorder of their own.
"""

from __future__ import annotations

import asyncio
import resource
import traceback
from collections.abc import Sequence
from typing import Any

from db import records
from db.errors import DbError
from db.recorder import Recorder
from db.store import Store
from orchestrator.attempt import AttemptSetup, engine_of, launch_replica, prepare, replica_plans, view_of
from orchestrator.interfaces import AttemptOutcome, AttemptPlan
from orchestrator.timeless import TimelessSink
from serving.calls import ReplicaSample
from serving.clock import VirtualClock, cpu_s, run_virtual, stopwatch_s
from serving.interfaces import Replica
from workers.agent_worker import AgentWorker
from workers.errors import ConfigurationError, SessionEnd
from workers.interfaces import Task

# Samples are handed to the recorder this often, in virtual seconds.
_DRAIN_EVERY_S = 60.0


class DirectSink:
    """A `RowSink` over a recorder in this process: committing blocks, which costs no virtual time."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self.record_session = recorder.record_session
        self.record_call = recorder.record_call
        self.record_tool_execution = recorder.record_tool_execution

    async def settle(self, *, max_pending: int) -> None:
        """Nothing to wait for: the recorder commits full batches itself, and the attempt flushes at its end."""


class Invalidated(Exception):
    """A session ended in a way that invalidates the whole attempt."""

    def __init__(self, task_id: str, end: SessionEnd) -> None:
        super().__init__(f"{task_id}: {end}")
        self.end = end


def run_recorded_attempt(plan: AttemptPlan) -> AttemptOutcome:
    """Run one attempt that the driver has started, writing its rows through a connection of its own."""
    try:
        store = Store.open(plan.db_url)
    except DbError as exc:
        return AttemptOutcome(plan.attempt_id, "RecorderLost", str(exc))
    try:
        recorder = store.recorder(max_age_s=None)
        recorder.adopt_attempt(plan.attempt_id)
        return run_virtual_attempt(plan, recorder)
    except DbError as exc:
        return AttemptOutcome(plan.attempt_id, "RecorderLost", str(exc))
    finally:
        store.close()


def run_virtual_attempt(plan: AttemptPlan, recorder: Recorder) -> AttemptOutcome:
    """Run one attempt to its end; every failure is an outcome, none is raised."""
    started_s, started_cpu_s = stopwatch_s(), cpu_s()
    facts: dict[str, Any] = {}
    exit_class, message, detail = "ok", "", ""
    try:
        setup = prepare(plan)
        facts["prepare_s"] = stopwatch_s() - started_s
        facts |= run_virtual(lambda clock: _run(setup, clock, recorder))
        recorder.flush()
    except Invalidated as exc:
        exit_class, message = exc.end.status, str(exc)
        detail = str(exc)
    except ConfigurationError as exc:
        exit_class, message = type(exc).__name__, str(exc)
    except DbError as exc:
        exit_class, message = "RecorderLost", str(exc)
    except Exception as exc:  # the attempt boundary: the driver records it and goes on with other cells
        exit_class, message, detail = "Bug", f"{type(exc).__name__}: {exc}", traceback.format_exc()
    if exit_class not in ("ok", "RecorderLost"):
        message += _keep_rows(recorder)
    facts |= {
        "wall_s": stopwatch_s() - started_s,
        "cpu_s": cpu_s() - started_cpu_s,
        "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }
    return AttemptOutcome(plan.attempt_id, exit_class, message, detail, facts)


def _keep_rows(recorder: Recorder) -> str:
    """Commit what a failed attempt has recorded; says so when that fails too."""
    try:
        recorder.flush()
    except DbError as exc:
        return f" (and its last rows could not be written: {exc})"
    return ""


async def _run(setup: AttemptSetup, clock: VirtualClock, recorder: Recorder) -> dict[str, Any]:
    plans = replica_plans(setup.config)
    replicas: dict[str, Replica] = {plan.replica_id: launch_replica(setup, plan, clock) for plan in plans}
    was_cache_warm = any(replica.sample().prefix_hits_tokens for replica in replicas.values())
    has_times = engine_of(setup).has_times
    world = setup.world(
        replicas=replicas,
        views=[view_of(plan) for plan in plans],
        clock=clock,
        sink=DirectSink(recorder) if has_times else TimelessSink(recorder),
    )
    draining = asyncio.create_task(_drain(setup, clock, replicas, recorder))
    try:
        workers = [AgentWorker(f"worker-{index}", world, setup.parts) for index in range(setup.num_workers)]
        await _run_workers(workers, setup.tasks)
        finished_s = clock.now_s()
    finally:
        draining.cancel()
        await asyncio.gather(draining, return_exceptions=True)
        _record_samples(setup, replicas, recorder)
        for replica in replicas.values():
            await replica.close()
    return {
        "sim_s": finished_s if has_times else None,
        "has_times": has_times,
        "was_cache_warm": was_cache_warm,
        "max_loop_lag_ms": None,
    }


async def _run_workers(workers: Sequence[AgentWorker], tasks: Sequence[Task]) -> None:
    """Hand tasks out in order until none is left; the first invalidating end stops all."""
    handing = iter(enumerate(tasks))

    def stop_if_invalid(end: SessionEnd) -> None:
        if end.invalidates_cell:
            raise Invalidated(end.status, end)

    running = [
        asyncio.create_task(worker.run_all(lambda: next(handing, None), stop_if_invalid), name=worker.name)
        for worker in workers
    ]
    try:
        await asyncio.gather(*running)
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def _drain(setup: AttemptSetup, clock: VirtualClock, replicas: dict[str, Replica], recorder: Recorder) -> None:
    while True:
        await clock.sleep(_DRAIN_EVERY_S)
        _record_samples(setup, replicas, recorder)


def _record_samples(setup: AttemptSetup, replicas: dict[str, Replica], recorder: Recorder) -> None:
    for replica_id, replica in replicas.items():
        recorder.record_samples(
            sample_row(setup.plan.attempt_id, replica_id, sample) for sample in replica.drain_samples()
        )


def sample_row(attempt_id: str, replica_id: str, sample: ReplicaSample) -> records.ServerSample:
    """A replica's sample as a row."""
    return records.ServerSample(
        attempt_id=attempt_id,
        replica=replica_id,
        t_s=sample.t_s,
        kv_usage=sample.kv_usage,
        kv_usage_peak=sample.kv_usage_peak,
        num_running=sample.num_running,
        num_waiting=sample.num_waiting,
        num_preemptions_total=sample.num_preemptions_total,
        prefix_queries_tokens=sample.prefix_queries_tokens,
        prefix_hits_tokens=sample.prefix_hits_tokens,
    )

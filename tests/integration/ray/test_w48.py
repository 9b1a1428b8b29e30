"""w = 48: one process per agent worker, and what such a process never imports."""

from __future__ import annotations

from pathlib import Path

import pytest
import ray
from ray._private import state as ray_state

from orchestrator.executors.ray_actors import RayActorsExecutor
from serving.clock import stopwatch_s
from tests.integration.ray.attempts import compose, prepared, waited

pytestmark = [pytest.mark.ray, pytest.mark.timeout(280)]

NEVER_IMPORTED = {"litellm", "swebench", "pyarrow", "vllm", "docker", "torch"}


def test_48_workers_are_48_processes(tmp_path: Path, executor: RayActorsExecutor) -> None:
    """At w = 48 Ray's actor table holds 48 live AgentWorker actors with 48 pids, and all 48 run a session.

    The table is the one behind `ray list actors`, read from the GCS: the state API's own server needs the dashboard.
    """
    config = compose("benchmark=synthetic", "benchmark.num_tasks=48", "limits.max_steps=3", "num_workers=48")
    cell = prepared(tmp_path / "results.db", config)
    executor.submit(cell.plan)
    limit_s = stopwatch_s() + 200
    while not cell.calls:
        assert stopwatch_s() < limit_s, "no calls arrive"
        assert not executor.wait(0.5), "the attempt has ended before its time"
    alive = [
        actor
        for actor in ray_state.actors().values()
        if actor["ActorClassName"] == "AgentWorkerActor" and actor["State"] == "ALIVE"
    ]
    pids = set(executor.facts_of(cell.plan.attempt_id)["worker_pids"])
    assert len(pids) == 48
    assert pids == {actor["Pid"] for actor in alive}
    assert len(alive) == 48
    outcome = waited(executor)
    assert outcome.exit_class == "ok", (outcome.message, outcome.detail)
    assert {session.worker for session in cell.sessions} == {f"worker-{index}" for index in range(48)}


def test_agent_workers_import_nothing_heavy(executor: RayActorsExecutor) -> None:
    """After a session, a worker's `sys.modules` holds no litellm, swebench, pyarrow, vllm, docker or torch."""
    loaded = ray.get([worker.handle.loaded_modules.remote() for worker in executor.pool.idle])
    assert loaded
    for modules in loaded:
        assert {"workers", "serving"} <= modules
        assert modules & NEVER_IMPORTED == set()

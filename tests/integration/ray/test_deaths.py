"""Deaths and cancellations on Ray actors: what each is called, what is kept, and that the next attempt runs."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import ray

from db.store import Store
from orchestrator.executors.actor_proxies import is_own_death
from orchestrator.executors.ray_actors import RayActorsExecutor
from orchestrator.interfaces import AttemptOutcome
from serving.clock import stopwatch_s
from tests.integration.ray.attempts import Prepared, compose, outcome_of, prepared, started, waited

pytestmark = [pytest.mark.ray, pytest.mark.timeout(240)]


def long_cell(tmp_path: Path) -> Prepared:
    """A cell that runs for many seconds."""
    config = compose("benchmark=synthetic", "benchmark.num_tasks=12", "num_workers=3", "replicas_per_model=2")
    return prepared(tmp_path / "results.db", config)


def interrupted(
    executor: RayActorsExecutor, cell: Prepared, act: Callable[[dict[str, Any]], None], *, after_calls: int = 20
) -> AttemptOutcome:
    """Run a cell, act once some of its calls are on disk, and wait for its outcome."""
    executor.submit(cell.plan)
    limit_s = stopwatch_s() + 90
    while len(cell.calls) < after_calls:
        assert stopwatch_s() < limit_s, "no calls arrive"
        assert not executor.wait(0.1), "the attempt has ended before its time"
    act(executor.facts_of(cell.plan.attempt_id))
    return waited(executor)


def kill(pid: int) -> None:
    """Send SIGKILL."""
    os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize(
    ("part", "exit_class"), [("worker", "WorkerLost"), ("replica", "ReplicaLost"), ("recorder", "RecorderLost")]
)
def test_a_killed_process_names_its_kind(
    tmp_path: Path, executor: RayActorsExecutor, capfd: pytest.CaptureFixture[str], part: str, exit_class: str
) -> None:
    """SIGKILL of a worker, replica or recorder ends the attempt as WorkerLost, ReplicaLost or RecorderLost.

    Every session row that exists has all its calls; Ray's notice is an event row and not on stdout; the executor runs
    another attempt at once.
    """
    cell = long_cell(tmp_path)

    def act(facts: dict[str, Any]) -> None:
        pids = {
            "worker": facts["worker_pids"][0],
            "replica": next(iter(facts["replica_pids"].values())),
            "recorder": facts["recorder_pid"],
        }
        kill(pids[part])

    outcome = interrupted(executor, cell, act)
    assert outcome.exit_class == exit_class, outcome.message
    assert len(outcome.message.splitlines()) == 1
    for session in cell.sessions:
        rows = [call for call in cell.calls if call.session_id == session.session_id]
        if session.exit_status != "Cancelled":
            assert len(rows) == session.num_main_calls + session.num_auxiliary_calls
    notices = [event for event in cell.events if event.kind == "ray_notice"]
    assert any("died or was killed" in json.loads(event.detail_json)["text"] for event in notices)
    assert "raylet" not in capfd.readouterr().out

    again = compose("benchmark=synthetic", "benchmark.num_tasks=2", "limits.max_steps=4", "num_workers=3")
    next_cell = prepared(tmp_path / "next.db", again)
    assert outcome_of(executor, next_cell.plan).exit_class == "ok"


def test_cancel_lets_sessions_record_themselves(tmp_path: Path, executor: RayActorsExecutor) -> None:
    """A cancelled attempt ends as Cancelled with the reason; its open sessions have rows that say Cancelled."""
    cell = long_cell(tmp_path)
    outcome = interrupted(executor, cell, lambda _: executor.cancel(cell.plan.attempt_id, "deadline"))
    assert (outcome.exit_class, outcome.message) == ("Cancelled", "deadline")
    assert "Cancelled" in {session.exit_status for session in cell.sessions}


def test_another_owner_stops_the_attempt(tmp_path: Path, executor: RayActorsExecutor) -> None:
    """When another driver takes the cell, the recorder writes not one row more and the attempt ends as RecorderLost."""
    cell = long_cell(tmp_path)
    at_takeover: list[int] = []

    def take(_: dict[str, Any]) -> None:
        Store.open(cell.plan.db_url).mark_lost([cell.plan.cell_key])
        at_takeover.append(len(cell.calls))

    outcome = interrupted(executor, cell, take)
    assert outcome.exit_class == "RecorderLost"
    assert "no longer owns its cell" in outcome.message
    assert len(cell.calls) == at_takeover[0]
    second = started(
        cell.store, cell.plan.config, key=cell.plan.cell_key, owner="test:2", db_url=cell.plan.db_url, states=("lost",)
    )
    assert second.plan.attempt_id.endswith(".2")


def test_a_living_worker_is_not_blamed_for_a_dead_peer(executor: RayActorsExecutor) -> None:
    """The error of a live actor whose callee died is also an actor death by type; it is not its own death."""

    @ray.remote(num_cpus=0, max_restarts=0)
    class Peer:
        def die(self) -> None:
            os._exit(1)

        def ping(self) -> int:
            return 1

    @ray.remote(num_cpus=0, max_restarts=0)
    class Caller:
        def use(self, peer: Any) -> None:
            ray.get(peer.die.remote())

        def ping(self) -> int:
            return 1

    peer, caller = Peer.remote(), Caller.remote()
    with pytest.raises(ray.exceptions.RayActorError) as through_caller:
        ray.get(caller.use.remote(peer))
    assert not is_own_death(through_caller.value)
    assert ray.get(caller.ping.remote()) == 1
    with pytest.raises(ray.exceptions.RayActorError) as direct:
        ray.get(peer.ping.remote())
    assert is_own_death(direct.value)


def test_a_configuration_that_does_not_fit_is_one_line(tmp_path: Path, executor: RayActorsExecutor) -> None:
    """Engine settings that no engine could start with end the attempt with the engine's own line."""
    config = compose("benchmark=synthetic", "benchmark.num_tasks=2", "num_workers=1", "engine.num_kv_blocks=4")
    outcome = outcome_of(executor, prepared(tmp_path / "results.db", config).plan)
    assert outcome.exit_class == "EngineSettingError"
    assert "KV blocks" in outcome.message

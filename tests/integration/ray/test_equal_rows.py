"""The two executors run the same study: what they must agree on, and what only has to be consistent."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from db.records import ToolExecution
from orchestrator.executors.ray_actors import RayActorsExecutor
from orchestrator.virtual_attempt import run_virtual_attempt
from tests.integration.ray.attempts import Prepared, compose, outcome_of, prepared

pytestmark = [pytest.mark.ray, pytest.mark.timeout(240)]

# Stamps on the attempt's clock, and what is measured of the client itself.
STAMPS = {"due_s", "sent_s", "first_token_s", "last_token_s", "tool_result_s", "started_s", "finished_s"}
STAMPS |= {"first_request_s", "last_response_s"}
MEASURED = {"render_ms", "own_ms", "loop_lag_ms", "record_wait_ms"}
# Intervals of the engine: differences of stamps, so that another start moves their last bits.
INTERVALS = {"queue_delay_s", "requeue_s", "prefill_s", "decode_s"}

# What a session decides, whatever else runs beside it.
DECIDED = (
    "session_id",
    "call_index",
    "kind",
    "state",
    "step",
    "prompt_digest",
    "num_prompt_tokens",
    "num_completion_tokens",
    "boundary",
    "num_folded",
    "num_stubs",
    "replica",
    "route_reason",
)


def both(tmp_path: Path, executor: RayActorsExecutor, *overrides: str) -> tuple[Prepared, Prepared]:
    """One cell on each executor; (virtual, actors)."""
    config = compose("benchmark=synthetic", "limits.max_steps=20", "executor=ray_actors", *overrides)
    virtual, actors = prepared(tmp_path / "virtual.db", config), prepared(tmp_path / "actors.db", config)
    recorder = virtual.store.recorder(max_age_s=None)
    recorder.adopt_attempt(virtual.plan.attempt_id)
    assert run_virtual_attempt(virtual.plan, recorder).exit_class == "ok"
    outcome = outcome_of(executor, actors.plan)
    assert outcome.exit_class == "ok", (outcome.message, outcome.detail)
    return virtual, actors


def decided(rows: Prepared) -> list[tuple[Any, ...]]:
    """The calls of a run by what their sessions decided, in a fixed order."""
    return sorted(tuple(getattr(call, name) for name in DECIDED) for call in rows.calls)


def test_one_worker_gives_equal_rows(tmp_path: Path, executor: RayActorsExecutor) -> None:
    """At w = 1 every column of every session and call is equal, wall stamps and our own measurements apart."""
    virtual, actors = both(
        tmp_path, executor, "num_workers=1", "benchmark.num_tasks=2", "renderer=refold", "replicas_per_model=2"
    )
    assert virtual.calls
    for kind in ("sessions", "calls"):
        left, right = getattr(virtual, kind), getattr(actors, kind)
        assert len(left) == len(right)
        for one, other in zip(left, right, strict=True):
            a, b = asdict(one), asdict(other)
            for name in a.keys() - STAMPS - MEASURED - INTERVALS:
                assert a[name] == b[name], name
            for name in INTERVALS & a.keys():
                assert a[name] == pytest.approx(b[name], abs=1e-9), name


def test_several_workers_decide_the_same(tmp_path: Path, executor: RayActorsExecutor) -> None:
    """At w = 4 actions, prompts, tokens, boundary, folds, stubs and routes are equal per session."""
    virtual, actors = both(
        tmp_path, executor, "num_workers=4", "benchmark.num_tasks=5", "renderer=refold", "replicas_per_model=2"
    )
    assert decided(virtual) == decided(actors)
    actions = [
        sorted((one.session_id, one.turn, one.command, one.return_code) for one in rows.rows(ToolExecution))
        for rows in (virtual, actors)
    ]
    assert actions[0]
    assert actions[0] == actions[1]
    ends = [
        sorted((s.session_id, s.exit_status, s.num_steps, s.ordinal) for s in r.sessions) for r in (virtual, actors)
    ]
    assert ends[0] == ends[1]


def test_cache_queue_and_preemptions_are_conserved(tmp_path: Path, executor: RayActorsExecutor) -> None:
    """On a KV pool that is too small, the calls' cached tokens and preemptions add up to the engine's own counters."""
    config = compose(
        "benchmark=synthetic",
        "benchmark.num_tasks=5",
        "limits.max_steps=16",
        "num_workers=4",
        "executor=ray_actors",
        "engine.max_model_len=20000",
        "engine.num_kv_blocks=40",
        "engine.sample_interval_s=0.2",
    )
    cell = prepared(tmp_path / "results.db", config)
    outcome = outcome_of(executor, cell.plan)
    assert outcome.exit_class == "ok", (outcome.message, outcome.detail)
    last = max(cell.samples, key=lambda sample: sample.t_s)
    served = [call for call in cell.calls if call.state == "ok"]
    assert served
    assert last.num_preemptions_total == sum(call.num_preemptions or 0 for call in served)
    assert last.num_preemptions_total > 0
    assert last.prefix_queries_tokens == sum(call.num_prompt_tokens or 0 for call in served)
    assert last.prefix_hits_tokens == sum(call.num_cached_tokens or 0 for call in served)
    assert (last.num_running, last.num_waiting) == (0, 0)
    for call in served:
        assert 0 <= call.num_cached_tokens <= call.num_prompt_tokens
        assert call.queue_delay_s >= 0
        assert call.requeue_s >= 0
        assert call.due_s <= call.sent_s <= call.first_token_s <= call.last_token_s
        client_s = call.last_token_s - call.sent_s
        assert call.queue_delay_s + call.prefill_s + call.decode_s <= client_s + 1e-6


def test_sessions_per_actor_packs(tmp_path: Path, executor: RayActorsExecutor) -> None:
    """`sessions_per_actor=2` runs w = 4 in two worker processes; names and decisions stay those of four workers."""
    config = compose("benchmark=synthetic", "benchmark.num_tasks=4", "limits.max_steps=8", "num_workers=4")
    cell = prepared(tmp_path / "results.db", config)
    executor.sessions_per_actor = 2
    try:
        outcome = outcome_of(executor, cell.plan)
    finally:
        executor.sessions_per_actor = 1
    assert outcome.exit_class == "ok", (outcome.message, outcome.detail)
    assert len(outcome.facts["worker_pids"]) == 2
    workers = Counter(session.worker for session in cell.sessions)
    assert workers == {f"worker-{index}": 1 for index in range(4)}

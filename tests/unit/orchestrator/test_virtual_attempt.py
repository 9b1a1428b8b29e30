"""One attempt in virtual time, without Ray: determinism, equal arms, and how failures become outcomes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import pytest

from db import records
from db.errors import StorageFull
from db.recorder import InMemoryRecorder
from orchestrator.compose import Composer
from orchestrator.interfaces import AttemptOutcome, AttemptPlan, Lease
from orchestrator.virtual_attempt import run_virtual_attempt
from serving.engines.simulated import SimulatedReplica
from serving.errors import ReplicaLost

SMALL = ("benchmark.num_tasks=5", "num_workers=3")


@pytest.fixture(scope="module")
def composer() -> Composer:
    """Composing costs time; one composer serves all tests."""
    return Composer()


def composed(composer: Composer, *overrides: str) -> dict[str, Any]:
    """The small cell's configuration with further overrides."""
    return composer.compose([composer.vocabulary.parse(text) for text in (*SMALL, *overrides)])


def attempt(recorder: InMemoryRecorder, config: Mapping[str, Any]) -> AttemptPlan:
    """A started attempt of `config`."""
    recorder.start_attempt(
        records.Attempt(
            attempt_id="a.1",
            cell_key="a",
            number=1,
            lease_epoch=1,
            owner="me",
            started_utc_s=0.0,
            num_tasks=5,
            engine_kind="simulated",
            policy_kind="replay",
            benchmark_source="synthetic",
        )
    )
    return AttemptPlan("a.1", "a", "a", config, Lease("a", "me", 1), "")


def run(composer: Composer, *overrides: str) -> tuple[AttemptOutcome, InMemoryRecorder]:
    """Run one cell into memory."""
    recorder = InMemoryRecorder()
    outcome = run_virtual_attempt(attempt(recorder, composed(composer, *overrides)), recorder)
    return outcome, recorder


def comparable(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Rows without the columns that may differ between two runs."""
    return [
        {f.name: getattr(row, f.name) for f in fields(row) if f.name not in records.WALL_CLOCK_COLUMNS} for row in rows
    ]


def all_rows(recorder: InMemoryRecorder) -> dict[str, list[dict[str, Any]]]:
    """Every table's comparable rows."""
    return {kind.__name__: comparable(rows) for kind, rows in recorder.rows.items()}


@pytest.mark.parametrize("renderer", ["base", "refold"])
def test_a_cell_run_twice_gives_identical_rows(composer: Composer, renderer: str) -> None:
    """Also after another cell has filled every process-wide cache."""
    outcome, first = run(composer, f"renderer={renderer}")
    assert outcome.exit_class == "ok", outcome
    run(composer, "renderer=mask", "num_workers=2", "seed=7")
    _, second = run(composer, f"renderer={renderer}")
    assert all_rows(first) == all_rows(second)


def test_arms_see_identical_tasks_actions_and_tool_times(composer: Composer) -> None:
    """base and refold execute the same commands for the same times, session by session; only prompts differ."""
    _, base = run(composer, "renderer=base")
    _, refold = run(composer, "renderer=refold")

    def executed(recorder: InMemoryRecorder) -> set[tuple[Any, ...]]:
        return {
            (row.session_id, row.turn, row.command, round(row.finished_s - row.started_s, 6))
            for row in recorder.rows[records.ToolExecution]
        }

    assert executed(base) == executed(refold)
    assert len(base.rows[records.Call]) == len(refold.rows[records.Call])
    tokens = [sum(row.num_prompt_tokens or 0 for row in recorder.rows[records.Call]) for recorder in (base, refold)]
    assert tokens[1] < tokens[0]


def test_every_session_ends_once_and_no_more_than_w_are_open(composer: Composer) -> None:
    """Five tasks, three workers: five session rows, never more than three open at a time, and three from the start."""
    _, recorder = run(composer)
    sessions = recorder.rows[records.Session]
    assert sorted(row.ordinal for row in sessions) == [0, 1, 2, 3, 4]
    events = sorted((t, change) for row in sessions for t, change in ((row.started_s, 1), (row.finished_s, -1)))
    open_now, most = 0, 0
    for _, change in events:
        open_now += change
        most = max(most, open_now)
    assert most == 3
    assert sum(row.started_s == 0.0 for row in sessions) == 3


def test_calls_of_a_session_follow_one_another_on_one_clock(composer: Composer) -> None:
    """due <= sent <= first token <= last token, and the next call is due after the last tool result."""
    _, recorder = run(composer, "renderer=refold")
    by_session: dict[str, list[records.Call]] = {}
    for call in recorder.rows[records.Call]:
        by_session.setdefault(call.session_id, []).append(call)
    for calls in by_session.values():
        assert [call.call_index for call in calls] == list(range(1, len(calls) + 1))
        before = 0.0
        for call in calls:
            stamps = [before, call.due_s, call.sent_s, call.first_token_s, call.last_token_s]
            assert stamps == sorted(stamp for stamp in stamps if stamp is not None)
            before = call.last_token_s or 0.0


def test_a_lost_replica_fails_the_attempt_and_cancels_the_rest(
    composer: Composer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The outcome names ReplicaLost; the session that met it says so, the others say Cancelled; rows are kept."""
    served = SimulatedReplica.generate
    count = 0

    async def fail_at_twenty(self: SimulatedReplica, call: Any) -> Any:
        nonlocal count
        count += 1
        if count == 20:
            raise ReplicaLost("pulled the plug")
        return await served(self, call)

    monkeypatch.setattr(SimulatedReplica, "generate", fail_at_twenty)
    outcome, recorder = run(composer)
    assert outcome.exit_class == "ReplicaLost"
    assert "pulled the plug" in outcome.message
    statuses = [row.exit_status for row in recorder.rows[records.Session]]
    assert statuses.count("ReplicaLost") == 1
    assert set(statuses) <= {"ReplicaLost", "Cancelled", "Submitted"}
    assert len(recorder.rows[records.Call]) >= 17


class FullDisk(InMemoryRecorder):
    """A recorder whose disk is full from the tenth call on."""

    def record_call(self, call: records.Call) -> None:
        if len(self._pending) >= 10:
            raise StorageFull("the disk with the results database is full")
        super().record_call(call)


def test_a_full_disk_is_recorder_lost(composer: Composer) -> None:
    """A database error ends the attempt as RecorderLost with the database's own line."""
    recorder = FullDisk()
    outcome = run_virtual_attempt(attempt(recorder, composed(composer)), recorder)
    assert outcome.exit_class == "RecorderLost"
    assert "full" in outcome.message


def test_a_configuration_error_is_one_line(composer: Composer) -> None:
    """A policy that cannot replay (no replies given) fails the attempt by its own message, without a traceback."""
    outcome, _ = run(composer, "policy=scripted")
    assert outcome.exit_class == "ConfigurationError"
    assert "policy.replies" in outcome.message
    assert outcome.detail == ""

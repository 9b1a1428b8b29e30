"""From outcome and rows to an attempt's end: the exit status decides (architecture, section 6)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from orchestrator.endings import ending, invalidating_session
from orchestrator.interfaces import AttemptOutcome
from orchestrator.trust import AttemptRows

TRUST = {"min_concurrency_share": 0.95, "max_loop_lag_ms": 250.0, "max_lost_calls": 0, "max_negative_s": 1e-6}


@pytest.mark.parametrize(
    "status",
    ["Submitted", "StepLimit", "TokenLimit", "WallLimit", "ContextExhausted", "FormatLoop", "StreamTimeout"],
)
def test_own_results_complete_a_cell(
    session_row: Callable[..., Any], call_row: Callable[..., Any], status: str
) -> None:
    """A limit, an overflow or a timeout is the session's own result: the cell is complete."""
    rows = AttemptRows(
        sessions=[session_row("a", 0, exit_status=status)],
        calls=[call_row("a", 0)],
        num_workers=1,
        num_tasks=1,
        is_wall_clock=False,
    )
    assert ending(AttemptOutcome("a", "ok"), rows, TRUST, finished_utc_s=1.0).state == "complete"


@pytest.mark.parametrize(
    "status",
    [
        "EnvironmentStartFailed",
        "EnvironmentDied",
        "ReplicaLost",
        "ReplicaRejected",
        "WorkerLost",
        "RecorderLost",
        "Cancelled",
        "Bug",
        "NeverHeardOf",
    ],
)
def test_other_ends_invalidate_it(session_row: Callable[..., Any], status: str) -> None:
    """An end that is not the session's own result, or that nobody knows, fails the whole attempt with its name."""
    sessions = [session_row("a", 0), session_row("a", 1, exit_status=status)]
    assert invalidating_session(sessions) is sessions[1]
    rows = AttemptRows(sessions=sessions, calls=[], num_workers=1, num_tasks=2, is_wall_clock=False)
    end = ending(AttemptOutcome("a", "ok"), rows, TRUST, finished_utc_s=1.0)
    assert (end.state, end.exit_class) == ("failed", status)


def test_failed_outcome_keeps_class_message_and_detail(session_row: Callable[..., Any]) -> None:
    """What the executor says of a failure is stored, the message as one line."""
    rows = AttemptRows(sessions=[session_row("a", 0)], calls=[], num_workers=1, num_tasks=2, is_wall_clock=False)
    outcome = AttemptOutcome("a", "WorkerLost", "the process\n is gone", "log", {"wall_s": 3})
    end = ending(outcome, rows, TRUST, finished_utc_s=1.0)
    assert (end.state, end.exit_class, end.message, end.traceback) == (
        "failed",
        "WorkerLost",
        "the process is gone",
        "log",
    )
    assert (end.wall_s, end.sim_s, end.taint_reasons_json) == (3.0, None, None)

"""From an attempt's outcome and rows to its end: complete, tainted, failed or lost, with the reasons. Pure.

Retry, grading and denominators derive from the exit status (architecture section 6): a session that ended in a way
that is not its own result invalidates the whole attempt, whatever the executor says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from db.records import AttemptEnd, Session, to_json
from orchestrator.interfaces import AttemptOutcome
from orchestrator.trust import AttemptRows, judge
from workers import errors as worker_errors

OK = "ok"


def invalidating_session(sessions: Sequence[Session]) -> Session | None:
    """The first session whose end invalidates the attempt, or None."""
    for session in sessions:
        end: Any = getattr(worker_errors, session.exit_status, None)
        is_end = isinstance(end, type) and issubclass(end, worker_errors.SessionEnd)
        if not is_end or end.invalidates_cell:
            return session
    return None


def ending(
    outcome: AttemptOutcome, rows: AttemptRows, thresholds: Mapping[str, Any], *, finished_utc_s: float
) -> AttemptEnd:
    """The end of an attempt the executor has reported."""
    verdict = judge(rows, thresholds)
    reached = verdict.in_flight
    measured: dict[str, Any] = {
        "attempt_id": outcome.attempt_id,
        "finished_utc_s": finished_utc_s,
        "time_weighted_in_flight": None if reached is None else reached.time_weighted,
        "share_full_w": None if reached is None else reached.share_full_w,
        "wall_s": _number(outcome.facts, "wall_s"),
        "sim_s": _number(outcome.facts, "sim_s"),
    }
    if outcome.exit_class != OK:
        return AttemptEnd(
            **measured,
            state="failed",
            exit_class=outcome.exit_class,
            message=_one_line(outcome.message),
            traceback=outcome.detail or None,
        )
    broken = invalidating_session(rows.sessions)
    if broken is not None:
        return AttemptEnd(
            **measured,
            state="failed",
            exit_class=broken.exit_status,
            message=_one_line(f"session {broken.session_id}: {broken.message or broken.exit_status}"),
            traceback=broken.traceback,
        )
    if verdict.reasons:
        return AttemptEnd(**measured, state="tainted", taint_reasons_json=to_json(list(verdict.reasons)))
    return AttemptEnd(**measured, state="complete")


def cut_short(
    attempt_id: str, *, state: str, exit_class: str, message: str, finished_utc_s: float, wall_s: float
) -> AttemptEnd:
    """The end of an attempt that the driver itself has stopped."""
    return AttemptEnd(
        attempt_id=attempt_id,
        state=state,
        exit_class=exit_class,
        message=_one_line(message),
        finished_utc_s=finished_utc_s,
        wall_s=wall_s,
    )


def _number(facts: Mapping[str, Any], name: str) -> float | None:
    value = facts.get(name)
    return None if value is None else float(value)


def _one_line(text: str) -> str:
    return " ".join(text.split())[:1000]

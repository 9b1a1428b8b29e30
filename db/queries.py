"""Named questions to a results database, answered with frozen rows.

A cell is shown by its latest complete attempt. A cell that only has tainted attempts is left out unless tainted ones
are allowed, and then marked. Views of the same meaning for SQL and data frames: `v_cells`, `v_sessions`, `v_calls`,
each also with the suffix `_with_tainted`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, RowMapping, text

from db import metrics
from db.metrics import KvSize, ModelTotals, Prices, SessionTotals
from db.records import Attempt, Cell, Session, SweepCell
from db.rows import read_records, require_sweep

__all__ = ["CellResult", "Metrics", "cell_results", "metrics_of", "shown_attempt"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """ReFold's Table 5 for one attempt; None = not reported."""

    num_sessions: int
    resolved: int | None  # None until every gradable session is graded
    exhausted: int
    timeouts: int
    steps: int | None
    main_steps: int | None
    tokens: float | None  # per task
    cost_cents: float | None  # per task
    cache_hit: float | None  # 0..1
    duration_s: float | None
    kv_bytes: Mapping[str, float]  # per session, by model
    main_peak_prompt_tokens: float | None
    compactions: float | None  # per task
    kv_peak: float | None  # largest share of any replica's pool, 0..1
    kv_peak_by_replica: Mapping[str, float]
    queue_s: float | None
    preemptions: int | None
    preemptions_by_replica: Mapping[str, int]
    time_weighted_in_flight: float | None
    share_full_w: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CellResult:
    """One cell of a grid with the attempt that is shown for it, if any."""

    cell: Cell
    arm: str  # label in the sweep
    axis_labels: Mapping[str, Any]
    attempt: Attempt | None  # None: nothing to show
    metrics: Metrics | None
    is_tainted: bool  # the cell's best attempt is tainted, whether shown or not

    @property
    def status(self) -> str:
        """`complete`, `tainted` (shown or refused), or the cell's state when nothing can be shown."""
        if self.attempt is not None:
            return self.attempt.state
        return "tainted" if self.is_tainted else self.cell.state


def shown_attempt(attempts: tuple[Attempt, ...], *, allow_tainted: bool) -> Attempt | None:
    """The attempt readers use: the latest complete one, else (when allowed) the latest tainted one."""
    for state in ("complete", "tainted") if allow_tainted else ("complete",):
        found = [attempt for attempt in attempts if attempt.state == state]
        if found:
            return max(found, key=lambda attempt: attempt.number)
    return None


def cell_results(
    connection: Connection, *, sweep: str | None = None, allow_tainted: bool = False
) -> tuple[CellResult, ...]:
    """Every cell of a sweep in grid order, or of the database in key order, with its shown attempt's metrics."""
    cells = {cell.cell_key: cell for cell in read_records(connection, Cell)}
    attempts: dict[str, list[Attempt]] = {}
    for attempt in read_records(connection, Attempt, order_by=("cell_key", "number")):
        attempts.setdefault(attempt.cell_key, []).append(attempt)
    if sweep is None:
        places = [(cell, cell.arm, "{}") for cell in cells.values()]
    else:
        require_sweep(connection, sweep)
        members = read_records(connection, SweepCell, order_by=("ordinal",), sweep=sweep)
        places = [(cells[member.cell_key], member.arm, member.axis_labels_json) for member in members]
    results = []
    for cell, arm, labels_json in places:
        tried = tuple(attempts.get(cell.cell_key, ()))
        shown = shown_attempt(tried, allow_tainted=allow_tainted)
        best = shown_attempt(tried, allow_tainted=True)
        results.append(
            CellResult(
                cell=cell,
                arm=arm,
                axis_labels=json.loads(labels_json),
                attempt=shown,
                metrics=None if shown is None else metrics_of(connection, shown, cell.num_workers),
                is_tainted=best is not None and best.state == "tainted",
            )
        )
    return tuple(results)


def metrics_of(connection: Connection, attempt: Attempt, num_workers: int) -> Metrics:
    """The metrics of one attempt."""
    sessions = _session_totals(connection, attempt.attempt_id)
    config = json.loads(attempt.config_json)
    prices = {model: Prices(**price) for model, price in config.get("prices", {}).items()}
    sizes = {model: KvSize(**size) for model, size in config.get("kv", {}).items()}
    kv_peaks, counted = _server_peaks(connection, attempt.attempt_id)
    reached = metrics.in_flight(((s.started_s, s.finished_s) for s in sessions), num_workers=num_workers)
    return Metrics(
        num_sessions=len(sessions),
        resolved=_resolved(connection, attempt.attempt_id),
        exhausted=sum(session.is_exhausted for session in sessions),
        timeouts=sum(session.is_timed_out for session in sessions),
        steps=metrics.steps(sessions),
        main_steps=metrics.main_steps(sessions),
        tokens=metrics.tokens(sessions),
        cost_cents=metrics.cost_cents(sessions, prices),
        cache_hit=metrics.cache_hit(sessions),
        duration_s=metrics.duration_s(sessions),
        kv_bytes=metrics.kv_bytes(sessions, sizes),
        main_peak_prompt_tokens=metrics.main_peak_prompt_tokens(sessions),
        compactions=metrics.compactions(sessions),
        kv_peak=max(kv_peaks.values(), default=None),
        kv_peak_by_replica=kv_peaks,
        queue_s=metrics.queue_s(sessions),
        preemptions=sum(counted.values()) if counted else _preemptions_of_calls(sessions),
        preemptions_by_replica=counted,
        time_weighted_in_flight=_first_known(attempt.time_weighted_in_flight, reached and reached.time_weighted),
        share_full_w=_first_known(attempt.share_full_w, reached and reached.share_full_w),
    )


def _first_known(stored: float | None, computed: float | None) -> float | None:
    return computed if stored is None else stored


# One row per session and model. `*_unknown` counts the successful calls that lack a figure (a failed one may).
# Served calls only: a prompt over the budget was not sent, a judge belongs to no arm, a local scorer has no replica.
_SUMMED = {
    "prompt_tokens": "num_prompt_tokens",
    "cached_tokens": "num_cached_tokens",
    "completion_tokens": "num_completion_tokens",
    "queue_s": "queue_delay_s",
    "num_preemptions": "num_preemptions",
}
_TOTALS = text(
    "SELECT session_id, model,"
    " count(*) FILTER (WHERE try_index = 1) AS num_calls,"
    " count(*) FILTER (WHERE try_index = 1 AND kind = 'main') AS num_main_calls,"
    + "".join(
        f" sum({column}) AS {name}, count(*) FILTER (WHERE {column} IS NULL AND state = 'ok') AS {name}_unknown,"
        for name, column in _SUMMED.items()
    )
    + " sum(num_cached_tokens) FILTER (WHERE is_priced_uncached) AS undiscounted_tokens,"
    " max(num_prompt_tokens) AS peak_prompt_tokens,"
    " max(num_prompt_tokens) FILTER (WHERE kind = 'main') AS main_peak_prompt_tokens,"
    " count(queue_delay_s) AS num_queued"
    " FROM call WHERE attempt_id = :attempt_id AND state <> 'exhausted' AND kind <> 'judge'"
    " AND (kind <> 'scorer' OR replica IS NOT NULL)"
    " GROUP BY session_id, model ORDER BY session_id, model"
)


def _model_totals(row: RowMapping) -> ModelTotals:
    """A row of `_TOTALS`: a sum is None when a successful call lacks its part, 0 when no call could report one."""
    values = {name: _plain(value) for name, value in row.items()}
    sums = {name: None if values[f"{name}_unknown"] else values[name] or 0 for name in _SUMMED}
    cached = sums["cached_tokens"]
    return ModelTotals(
        model=values["model"],
        num_calls=values["num_calls"],
        num_main_calls=values["num_main_calls"],
        discounted_tokens=None if cached is None else cached - (values["undiscounted_tokens"] or 0),
        peak_prompt_tokens=values["peak_prompt_tokens"],
        main_peak_prompt_tokens=values["main_peak_prompt_tokens"],
        num_queued=values["num_queued"],
        **sums,
    )


def _session_totals(connection: Connection, attempt_id: str) -> tuple[SessionTotals, ...]:
    by_session: dict[str, list[ModelTotals]] = {}
    for row in connection.execute(_TOTALS, {"attempt_id": attempt_id}).mappings():
        by_session.setdefault(row["session_id"], []).append(_model_totals(row))
    return tuple(
        SessionTotals(
            task_id=session.task_id,
            started_s=session.started_s,
            finished_s=session.finished_s,
            first_request_s=session.first_request_s,
            last_response_s=session.last_response_s,
            is_exhausted=session.is_exhausted,
            is_timed_out=session.is_timed_out,
            num_compactions=session.num_compactions,
            models=tuple(by_session.get(session.session_id, ())),
        )
        for session in read_records(connection, Session, order_by=("ordinal",), attempt_id=attempt_id)
    )


def _plain(value: Any) -> Any:
    """PostgreSQL sums BIGINTs to NUMERIC, which arrives as Decimal."""
    return value if value is None or isinstance(value, str | float | int) else int(value)


_PEAKS = text(
    "SELECT replica, max(coalesce(kv_usage_peak, kv_usage)) AS peak, max(num_preemptions_total) AS preemptions"
    " FROM server_sample WHERE attempt_id = :attempt_id GROUP BY replica ORDER BY replica"
)


def _server_peaks(connection: Connection, attempt_id: str) -> tuple[dict[str, float], dict[str, int]]:
    rows = connection.execute(_PEAKS, {"attempt_id": attempt_id}).all()
    return (
        {row.replica: row.peak for row in rows if row.peak is not None},
        {row.replica: row.preemptions for row in rows if row.preemptions is not None},
    )


def _preemptions_of_calls(sessions: tuple[SessionTotals, ...]) -> int | None:
    counts = [m.num_preemptions for session in sessions for m in session.models]
    known = [count for count in counts if count is not None]
    return sum(known) if counts and len(known) == len(counts) else None


_GRADES = text(
    "SELECT session.exit_status, grade.status FROM session"
    " LEFT JOIN session_grade ON session_grade.attempt_id = session.attempt_id"
    " AND session_grade.session_id = session.session_id"
    " LEFT JOIN grade ON grade.task_id = session_grade.task_id AND grade.patch_hash = session_grade.patch_hash"
    " AND grade.image_digest = session_grade.image_digest AND grade.harness_version = session_grade.harness_version"
    " WHERE session.attempt_id = :attempt_id"
)


def _resolved(connection: Connection, attempt_id: str) -> int | None:
    """Resolve, or None while a gradable session has no verdict. A timed-out session counts as unresolved ungraded."""
    rows = connection.execute(_GRADES, {"attempt_id": attempt_id}).all()
    verdicts = Counter("unresolved" if row.exit_status == "StreamTimeout" else row.status for row in rows)
    if not rows or verdicts[None] or verdicts["grade_error"]:
        return None
    return verdicts["resolved"]

"""The recorder that commits to SQLite or PostgreSQL.

Rows are buffered and committed in one transaction when there are `max_rows` of them, when the oldest has waited
`max_age_s`, or on `flush`. There is no thread and no timer: the age is looked at whenever a row arrives, and an owner
with an idle loop may call `commit_if_due`. Every transaction first checks the lease of each attempt it writes for.

Invariants: when `flush` returns, everything accepted before is committed; a failed commit keeps its rows for the next
one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

from sqlalchemy import Connection, Engine

from db.engine import begin
from db.errors import RecorderMisuse
from db.gate import Row, row_values
from db.inserts import insert_rows
from db.leases import lease_lost, owns_cell, require_lease
from db.lifecycle import finish_attempt, start_attempt
from db.recorder import AttemptRow, require_terminal
from db.records import Attempt, AttemptEnd, Call, Event, ServerSample, Session, ToolExecution

__all__ = ["SqlRecorder"]


class SqlRecorder:
    """Records the attempts it started or adopted; see `db.recorder.Recorder` for the verbs. One thread may use it.

    Args:
        engine: a writer's engine (`db.engine.open_engine`); the recorder does not close it.
        max_rows: rows that make a transaction.
        max_age_s: how long a row may wait for others, wall clock; None = no limit (a virtual-time run, where nobody
            waits).
    """

    def __init__(
        self,
        engine: Engine,
        *,
        max_rows: int = 256,
        max_age_s: float | None = 0.002,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._engine = engine
        self._max_rows = max_rows
        self._max_age_s = max_age_s
        self._monotonic_s = monotonic_s
        self._pending: list[tuple[type[Row], str, tuple[Any, ...]]] = []  # (record class, attempt id, values)
        self._oldest_s = 0.0
        self._running: set[str] = set()
        self._lost: set[str] = set()

    def start_attempt(self, attempt: Attempt) -> None:
        """See `Recorder`."""
        with begin(self._engine) as connection:
            start_attempt(connection, attempt)
        self._running.add(attempt.attempt_id)

    def adopt_attempt(self, attempt_id: str) -> None:
        """Write for an attempt that another process started (the driver starts it, a worker records it).

        Raises:
            LeaseLost: the attempt was not started, has ended, or no longer owns its cell.
        """
        with begin(self._engine) as connection:
            require_lease(connection, attempt_id)
        self._running.add(attempt_id)

    def record_session(self, session: Session) -> None:
        """See `Recorder`."""
        self._accept(session)

    def record_call(self, call: Call) -> None:
        """See `Recorder`."""
        self._accept(call)

    def record_samples(self, samples: Iterable[ServerSample]) -> None:
        """See `Recorder`."""
        for sample in samples:
            self._accept(sample)

    def record_tool_execution(self, execution: ToolExecution) -> None:
        """See `Recorder`."""
        self._accept(execution)

    def record_event(self, event: Event) -> None:
        """See `Recorder`."""
        self._accept(event)

    def commit_if_due(self) -> None:
        """Commit when the oldest pending row has waited `max_age_s`."""
        if not self._pending or self._max_age_s is None:
            return
        if self._monotonic_s() - self._oldest_s >= self._max_age_s:
            self._commit()

    def flush(self) -> None:
        """See `Recorder`."""
        lost = self._commit()
        if lost:
            raise lease_lost(min(lost))

    def finish_attempt(self, end: AttemptEnd) -> None:
        """See `Recorder`."""
        require_terminal(end)
        self._require_open(end.attempt_id)
        if end.attempt_id in self._commit():
            raise lease_lost(end.attempt_id)
        with begin(self._engine) as connection:
            finish_attempt(connection, end)
        self._running.discard(end.attempt_id)

    def _require_open(self, attempt_id: str) -> None:
        if attempt_id in self._running:
            return
        if attempt_id in self._lost:
            raise lease_lost(attempt_id)
        raise RecorderMisuse(f"attempt {attempt_id!r} was not started with this recorder, or has ended")

    def _accept(self, row: AttemptRow) -> None:
        attempt_id = row.attempt_id
        self._require_open(attempt_id)
        values = row_values(row)
        if not self._pending:
            self._oldest_s = self._monotonic_s()
        self._pending.append((type(row), attempt_id, values))
        if len(self._pending) >= self._max_rows:
            self._commit()
            self._require_open(attempt_id)
        else:
            self.commit_if_due()

    def _commit(self) -> set[str]:
        """Commit what is pending; returns the attempts whose rows were dropped because their lease is lost."""
        if not self._pending:
            return set()
        with begin(self._engine) as connection:
            lost = self._write(connection)
        self._pending.clear()
        self._lost |= lost
        self._running -= lost
        return lost

    def _write(self, connection: Connection) -> set[str]:
        attempts = {attempt_id for _, attempt_id, _ in self._pending}
        owned = {attempt_id for attempt_id in attempts if owns_cell(connection, attempt_id)}
        by_record: dict[type[Row], list[tuple[Any, ...]]] = {}
        for record, attempt_id, values in self._pending:
            if attempt_id in owned:
                by_record.setdefault(record, []).append(values)
        for record, rows in by_record.items():
            insert_rows(connection, record, rows)
        return attempts - owned

"""Where a running attempt puts its rows: the `Recorder` protocol and the in-memory recorder.

`record_*` accept a row and return; nothing is promised until `flush` returns, which means that everything accepted is
committed. Recording never waits for the database in between unless a batch is full or old (`db.sql_recorder`).

Both recorders behave the same, which a contract test shows: a row whose key was recorded before is ignored (a retried
message must not fail), a row of an unknown attempt is refused, an ended attempt takes no more rows, and an attempt
that lost its lease raises `LeaseLost` at the latest from `flush`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, replace
from typing import Any, Protocol

from db.errors import LeaseLost, RecorderMisuse
from db.gate import row_values
from db.records import (
    TERMINAL_STATES,
    Attempt,
    AttemptEnd,
    Call,
    Event,
    ServerSample,
    Session,
    ToolExecution,
)

AttemptRow = Session | Call | ServerSample | ToolExecution | Event

__all__ = ["AttemptRow", "InMemoryRecorder", "Recorder", "ended", "require_terminal"]


class Recorder(Protocol):
    """Takes the rows of one or more attempts. All verbs are synchronous and may commit inside.

    Raises (any verb): LeaseLost when the attempt no longer owns its cell; RowRefused from the gate; StorageFull,
    DbReadOnly or DbUnavailable when a commit fails, in which case unacknowledged rows are kept for the next flush.
    """

    def start_attempt(self, attempt: Attempt) -> None:
        """Commit the attempt's row. It must be claimed: epoch and owner equal the cell's."""
        ...

    def record_session(self, session: Session) -> None:
        """Accept the row of an ended session."""
        ...

    def record_call(self, call: Call) -> None:
        """Accept one call."""
        ...

    def record_samples(self, samples: Iterable[ServerSample]) -> None:
        """Accept server samples."""
        ...

    def record_tool_execution(self, execution: ToolExecution) -> None:
        """Accept one executed action."""
        ...

    def record_event(self, event: Event) -> None:
        """Accept one event."""
        ...

    def flush(self) -> None:
        """Return when every accepted row is committed."""
        ...

    def finish_attempt(self, end: AttemptEnd) -> None:
        """Commit what is pending, then the attempt's end and its cell's state in one transaction."""
        ...


def require_terminal(end: AttemptEnd) -> None:
    """Raise `RecorderMisuse` unless `end.state` is terminal."""
    if end.state not in TERMINAL_STATES:
        raise RecorderMisuse(f"attempt state {end.state!r} is not an end; one of {', '.join(sorted(TERMINAL_STATES))}")


def ended(attempt: Attempt, end: AttemptEnd) -> Attempt:
    """`attempt` with the columns of `end` filled in."""
    return replace(attempt, **{f.name: getattr(end, f.name) for f in fields(end)})


class InMemoryRecorder:
    """Keeps rows in insertion order; for tests, previews and comparing two runs of a cell.

    `rows[Call]` is the list of committed calls, and so on. `lose_lease(attempt_id)` plays a takeover by another owner.
    """

    def __init__(self) -> None:
        self.attempts: dict[str, Attempt] = {}
        self.rows: dict[type[Any], list[Any]] = {
            kind: [] for kind in (Session, Call, ServerSample, ToolExecution, Event)
        }
        self._keys: set[tuple[object, ...]] = set()
        self._pending: list[Any] = []
        self._lost: set[str] = set()

    def start_attempt(self, attempt: Attempt) -> None:
        """See `Recorder`."""
        row_values(attempt)
        self.attempts[attempt.attempt_id] = attempt

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

    def flush(self) -> None:
        """See `Recorder`."""
        pending, self._pending = self._pending, []
        lost = set()
        for row in pending:
            if row.attempt_id in self._lost:
                lost.add(row.attempt_id)
                continue
            key = (type(row), *(getattr(row, name) for name in row.KEY))
            if key not in self._keys:
                self._keys.add(key)
                self.rows[type(row)].append(row)
        if lost:
            raise LeaseLost(f"attempt {min(lost)} no longer owns its cell")

    def finish_attempt(self, end: AttemptEnd) -> None:
        """See `Recorder`."""
        require_terminal(end)
        row_values(ended(self._open(end.attempt_id), end))
        self.flush()
        self.attempts[end.attempt_id] = ended(self.attempts[end.attempt_id], end)

    def lose_lease(self, attempt_id: str) -> None:
        """From now on the attempt's rows are refused, as if another owner had claimed its cell."""
        self._lost.add(attempt_id)

    def _open(self, attempt_id: str) -> Attempt:
        attempt = self.attempts.get(attempt_id)
        if attempt is None:
            raise RecorderMisuse(f"attempt {attempt_id!r} was not started with this recorder")
        if attempt_id in self._lost:
            raise LeaseLost(f"attempt {attempt_id} no longer owns its cell")
        if attempt.state != "running":
            raise RecorderMisuse(f"attempt {attempt_id!r} has ended ({attempt.state}); it takes no more rows")
        return attempt

    def _accept(self, row: AttemptRow) -> None:
        values = row_values(row)
        self._open(row.attempt_id)
        self._pending.append(_escaped(row, values))


def _escaped(row: AttemptRow, values: tuple[Any, ...]) -> AttemptRow:
    """`row` with the gate's escapes applied, as a database would give it back."""
    names = [f.name for f in fields(row)]
    changed = {name: value for name, value in zip(names, values, strict=True) if getattr(row, name) != value}
    return replace(row, **changed) if changed else row

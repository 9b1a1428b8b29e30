"""The fence between owners of a cell: who writes for an attempt first proves that it still owns the cell.

A killed driver's tasks run on for seconds and a paused driver may wake after its cell was taken, so a lease alone
protects nothing; the epoch, checked inside every writing transaction, does. On SQLite BEGIN IMMEDIATE keeps the
answer true until commit, on PostgreSQL the row lock does.
"""

from __future__ import annotations

from sqlalchemy import Connection, text

from db.errors import LeaseLost

__all__ = ["lease_lost", "owns_cell", "require_lease"]

_OWNS = (
    "SELECT 1 FROM attempt JOIN cell ON cell.cell_key = attempt.cell_key"
    " WHERE attempt.attempt_id = :attempt_id AND attempt.state = 'running'"
    " AND cell.lease_epoch = attempt.lease_epoch AND cell.lease_owner = attempt.owner AND cell.state = 'running'"
)
_OWNS_SQLITE = text(_OWNS)
_OWNS_POSTGRESQL = text(f"{_OWNS} FOR SHARE OF cell")


def owns_cell(connection: Connection, attempt_id: str) -> bool:
    """Whether the attempt still runs under its cell's current epoch and owner; true until this transaction ends."""
    query = _OWNS_SQLITE if connection.dialect.name == "sqlite" else _OWNS_POSTGRESQL
    return connection.execute(query, {"attempt_id": attempt_id}).first() is not None


def require_lease(connection: Connection, attempt_id: str) -> None:
    """Raise `LeaseLost` unless `owns_cell`."""
    if not owns_cell(connection, attempt_id):
        raise lease_lost(attempt_id)


def lease_lost(attempt_id: str) -> LeaseLost:
    """The error of an attempt that was fenced off."""
    return LeaseLost(f"attempt {attempt_id} no longer owns its cell; another driver has taken it or ended it")

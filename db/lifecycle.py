"""How an attempt begins and ends inside a transaction; used by the recorder and by the driver's store."""

from __future__ import annotations

from dataclasses import fields

from sqlalchemy import Connection, text

from db.errors import LeaseLost, RecorderMisuse
from db.gate import row_values
from db.inserts import insert_rows
from db.leases import require_lease
from db.recorder import ended, require_terminal
from db.records import Attempt, AttemptEnd, attempt_id_of
from db.rows import one_record

__all__ = ["finish_attempt", "start_attempt"]

_TAKE_NUMBER = text(
    "UPDATE cell SET latest_attempt = :number WHERE cell_key = :cell_key AND state = 'running'"
    " AND lease_epoch = :lease_epoch AND lease_owner = :owner"
)
_END_CELL = text(
    "UPDATE cell SET state = :state, lease_until_utc_s = NULL, lease_owner = NULL WHERE cell_key = :cell_key"
)


def start_attempt(connection: Connection, attempt: Attempt) -> None:
    """Insert the attempt of a claimed cell.

    Raises:
        LeaseLost: the cell is not held under the attempt's owner and epoch.
        RecorderMisuse: the id is not made of cell key and number.
    """
    if attempt.attempt_id != attempt_id_of(attempt.cell_key, attempt.number):
        raise RecorderMisuse(
            f"attempt id {attempt.attempt_id!r} is not {attempt_id_of(attempt.cell_key, attempt.number)!r}"
        )
    values = row_values(attempt)
    claim = {name: getattr(attempt, name) for name in ("number", "cell_key", "lease_epoch", "owner")}
    if connection.execute(_TAKE_NUMBER, claim).rowcount != 1:
        raise LeaseLost(f"cell {attempt.cell_key} is not held by {attempt.owner} under epoch {attempt.lease_epoch}")
    insert_rows(connection, Attempt, [values])


def finish_attempt(connection: Connection, end: AttemptEnd) -> None:
    """Write the attempt's end and its cell's state.

    Raises:
        LeaseLost: the attempt no longer owns its cell; nothing is written.
    """
    require_terminal(end)
    require_lease(connection, end.attempt_id)
    attempt = one_record(connection, Attempt, attempt_id=end.attempt_id)
    row_values(ended(attempt, end))
    names = [field.name for field in fields(end) if field.name != "attempt_id"]
    assignments = ", ".join(f"{name} = :{name}" for name in names)
    connection.execute(
        text(f"UPDATE attempt SET {assignments} WHERE attempt_id = :attempt_id"),
        {field.name: getattr(end, field.name) for field in fields(end)},
    )
    connection.execute(_END_CELL, {"state": end.state, "cell_key": attempt.cell_key})

"""What the driver does with the database: the grid in, cells claimed, attempts begun and ended, rows read back.

A claim is one UPDATE, so of any number of drivers exactly one gets a cell. It raises the cell's epoch, which fences
off the former owner (`db.leases`). Times come from the database server on PostgreSQL and from this host on SQLite,
where all drivers share one host.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, Self

from sqlalchemy import Connection, Engine, bindparam, delete, select, text

from db.engine import begin, connect, display_name, open_engine
from db.errors import DbUnavailable, LeaseLost, UnknownName
from db.gate import Row, row_values
from db.inserts import insert_rows
from db.lifecycle import finish_attempt, start_attempt
from db.records import Attempt, AttemptEnd, Call, Cell, Session, Sweep, SweepCell
from db.rows import read_records, require_sweep
from db.sql_recorder import SqlRecorder
from db.tables import table_of

__all__ = ["Claim", "Store", "owner_name"]

_CLAIM = text(
    "UPDATE cell SET state = 'running', lease_owner = :owner, lease_epoch = lease_epoch + 1,"
    " lease_until_utc_s = :now_utc_s + :lease_s WHERE cell_key = :cell_key"
    " AND (state IN :states OR (state = 'running' AND lease_until_utc_s < :now_utc_s)) RETURNING lease_epoch"
).bindparams(bindparam("states", expanding=True))
_ORPHANS_LOST = text(
    "UPDATE attempt SET state = 'lost', exit_class = 'LeaseExpired', finished_utc_s = :now_utc_s,"
    " message = 'its owner stopped renewing the lease' WHERE cell_key = :cell_key AND state = 'running'"
)
_NEXT_NUMBER = text("SELECT coalesce(max(number), 0) + 1 FROM attempt WHERE cell_key = :cell_key")
_RENEW = text(
    "UPDATE cell SET lease_until_utc_s = :now_utc_s + :lease_s WHERE cell_key = :cell_key AND state = 'running'"
    " AND lease_owner = :owner AND lease_epoch = :epoch"
)
_RELEASE = text(
    "UPDATE cell SET state = :state, lease_owner = NULL, lease_until_utc_s = NULL WHERE cell_key = :cell_key"
    " AND state = 'running' AND lease_owner = :owner AND lease_epoch = :epoch"
)
_EXPIRED = text(
    "SELECT cell_key FROM cell WHERE state = 'running' AND lease_until_utc_s < :now_utc_s ORDER BY cell_key"
)
_LOSE = text(
    "UPDATE cell SET state = 'lost', lease_owner = NULL, lease_until_utc_s = NULL, lease_epoch = lease_epoch + 1"
    " WHERE cell_key = :cell_key AND state = 'running'"
)
_FOREIGN_OWNER = text(
    "SELECT lease_owner FROM cell WHERE state = 'running' AND lease_until_utc_s >= :now_utc_s"
    " AND substr(lease_owner, 1, length(:host)) <> :host LIMIT 1"
)


class Claim(NamedTuple):
    """A held cell: the attempt to start must carry these values."""

    cell_key: str
    owner: str
    epoch: int
    number: int  # of the attempt to start
    taken_from_state: str  # state before the claim


def owner_name(suffix: str = "") -> str:
    """This process as a lease owner: `host:pid`, with an optional suffix; the host part guards SQLite files."""
    return f"{socket.gethostname()}:{os.getpid()}{':' + suffix if suffix else ''}"


class Store:
    """The driver's connection to a results database.

    Args:
        engine: a writer's engine.
        now_utc_s: a clock for tests; by default the server's (PostgreSQL) or this host's (SQLite).
    """

    def __init__(self, engine: Engine, *, now_utc_s: Callable[[], float] | None = None) -> None:
        self.engine = engine
        self._now_override = now_utc_s

    @classmethod
    def open(cls, location: str | Path) -> Self:
        """Open for writing, creating a missing database; see `db.engine.open_engine` for the errors."""
        return cls(open_engine(location, read_only=False))

    def close(self) -> None:
        """Close all connections."""
        self.engine.dispose()

    def recorder(self, *, max_rows: int = 256, max_age_s: float | None = 0.002) -> SqlRecorder:
        """A recorder on this store's engine."""
        return SqlRecorder(self.engine, max_rows=max_rows, max_age_s=max_age_s)

    # ---- the grid

    def register_sweep(self, sweep: Sweep, cells: Sequence[Cell], members: Sequence[SweepCell]) -> None:
        """Put the sweep and its whole grid in, in one transaction.

        Cells that exist (of an earlier start or another sweep) keep their state and attempts. The sweep's specification
        and membership become the given ones; cells that left the grid are kept, they only leave the sweep.
        """
        sweeps, sweep_cells = table_of(Sweep), table_of(SweepCell)
        with begin(self.engine) as connection:
            insert_rows(connection, Sweep, [row_values(sweep)])
            connection.execute(
                sweeps.update().where(sweeps.c.name == sweep.name).values(spec_json=row_values(sweep)[1])
            )
            insert_rows(connection, Cell, [row_values(replace(cell, state="planned")) for cell in cells])
            connection.execute(delete(sweep_cells).where(sweep_cells.c.sweep == sweep.name))
            insert_rows(connection, SweepCell, [row_values(member) for member in members])

    def sweeps(self) -> tuple[Sweep, ...]:
        """All sweeps, oldest first."""
        with connect(self.engine) as connection:
            return read_records(connection, Sweep, order_by=("created_utc_s",))

    def sweep_cells(self, sweep: str) -> tuple[SweepCell, ...]:
        """A sweep's membership rows in grid order.

        Raises:
            UnknownName: no such sweep.
        """
        with connect(self.engine) as connection:
            require_sweep(connection, sweep)
            return read_records(connection, SweepCell, order_by=("ordinal",), sweep=sweep)

    def cells(self, sweep: str | None = None) -> tuple[Cell, ...]:
        """All cells, or those of a sweep in grid order."""
        with connect(self.engine) as connection:
            if sweep is None:
                return read_records(connection, Cell)
            require_sweep(connection, sweep)
            by_key = {cell.cell_key: cell for cell in read_records(connection, Cell)}
            members = read_records(connection, SweepCell, order_by=("ordinal",), sweep=sweep)
            return tuple(by_key[member.cell_key] for member in members)

    def attempts(self, cell_key: str | None = None) -> tuple[Attempt, ...]:
        """All attempts, or one cell's, by cell and number."""
        equals = {} if cell_key is None else {"cell_key": cell_key}
        with connect(self.engine) as connection:
            return read_records(connection, Attempt, order_by=("cell_key", "number"), **equals)

    # ---- leases

    def claim(self, cell_key: str, *, owner: str, lease_s: float, states: Iterable[str] = ("planned",)) -> Claim | None:
        """Take a cell if it is in one of `states`, or running under an expired lease; None when another has it.

        Attempts that the former owner left running become `lost` in the same transaction.

        Raises:
            DbUnavailable: a SQLite file that a driver on another host uses.
        """
        with begin(self.engine) as connection:
            now_utc_s = self._now(connection)
            if connection.dialect.name == "sqlite":
                _refuse_second_host(connection, owner, now_utc_s)
            cell = table_of(Cell)
            before = connection.execute(select(cell.c.state).where(cell.c.cell_key == cell_key)).scalar()
            if before is None:
                raise UnknownName(f"no cell {cell_key}; register the sweep first")
            taken = connection.execute(
                _CLAIM,
                {
                    "cell_key": cell_key,
                    "owner": owner,
                    "lease_s": lease_s,
                    "now_utc_s": now_utc_s,
                    "states": sorted(set(states) - {"running"}),  # a live lease is never taken
                },
            ).scalar()
            if taken is None:
                return None
            connection.execute(_ORPHANS_LOST, {"cell_key": cell_key, "now_utc_s": now_utc_s})
            number = connection.execute(_NEXT_NUMBER, {"cell_key": cell_key}).scalar_one()
        return Claim(cell_key, owner, int(taken), int(number), str(before))

    def renew(self, claim: Claim, *, lease_s: float) -> None:
        """Extend a held lease; also one that has run out but that nobody took.

        Raises:
            LeaseLost: another owner has the cell, or it has ended.
        """
        with begin(self.engine) as connection:
            values = {**_identity(claim), "now_utc_s": self._now(connection), "lease_s": lease_s}
            if connection.execute(_RENEW, values).rowcount != 1:
                raise LeaseLost(f"cell {claim.cell_key} is no longer held by {claim.owner} under epoch {claim.epoch}")

    def release(self, claim: Claim, *, state: str = "planned") -> None:
        """Give back a cell whose attempt was never started. A lost lease is no error here."""
        with begin(self.engine) as connection:
            connection.execute(_RELEASE, {**_identity(claim), "state": state})

    def mark_lost(self, cell_keys: Iterable[str] | None = None) -> tuple[str, ...]:
        """Set running cells to `lost` and fence their owners off; by default those whose lease has expired.

        Returns:
            The keys of the cells that were marked.
        """
        marked = []
        with begin(self.engine) as connection:
            now_utc_s = self._now(connection)
            keys = (
                connection.execute(_EXPIRED, {"now_utc_s": now_utc_s}).scalars().all()
                if cell_keys is None
                else cell_keys
            )
            for cell_key in keys:
                if connection.execute(_LOSE, {"cell_key": cell_key}).rowcount == 1:
                    connection.execute(_ORPHANS_LOST, {"cell_key": cell_key, "now_utc_s": now_utc_s})
                    marked.append(cell_key)
        return tuple(marked)

    # ---- attempts and their rows

    def start_attempt(self, attempt: Attempt) -> None:
        """See `db.lifecycle.start_attempt`."""
        with begin(self.engine) as connection:
            start_attempt(connection, attempt)

    def finish_attempt(self, end: AttemptEnd) -> None:
        """See `db.lifecycle.finish_attempt`."""
        with begin(self.engine) as connection:
            finish_attempt(connection, end)

    def sessions(self, attempt_id: str) -> tuple[Session, ...]:
        """An attempt's sessions in task order."""
        with connect(self.engine) as connection:
            return read_records(connection, Session, order_by=("ordinal",), attempt_id=attempt_id)

    def calls(self, attempt_id: str) -> tuple[Call, ...]:
        """An attempt's calls by session, call and try."""
        with connect(self.engine) as connection:
            return read_records(connection, Call, attempt_id=attempt_id)

    def rows(self, record: type[Row], **equals: Any) -> tuple[Row, ...]:
        """All rows of any record class with these values."""
        with connect(self.engine) as connection:
            return read_records(connection, record, **equals)

    def add(self, rows: Sequence[Row]) -> None:
        """Insert rows outside an attempt's life (grades, judgements, events); existing keys are left as they are."""
        by_record: dict[type[Row], list[tuple[object, ...]]] = {}
        for row in rows:
            by_record.setdefault(type(row), []).append(row_values(row))
        with begin(self.engine) as connection:
            for record, values in by_record.items():
                insert_rows(connection, record, values)

    def _now(self, connection: Connection) -> float:
        if self._now_override is not None:
            return self._now_override()
        if connection.dialect.name == "postgresql":
            return float(connection.exec_driver_sql("SELECT extract(epoch FROM clock_timestamp())").scalar_one())
        return time.time()


def _identity(claim: Claim) -> dict[str, object]:
    return {"cell_key": claim.cell_key, "owner": claim.owner, "epoch": claim.epoch}


def _refuse_second_host(connection: Connection, owner: str, now_utc_s: float) -> None:
    host = owner.split(":")[0] + ":"
    other = connection.execute(_FOREIGN_OWNER, {"host": host, "now_utc_s": now_utc_s}).scalar()
    if other is not None:
        raise DbUnavailable(
            f"{display_name(connection.engine)} is in use by {other} on another host; a SQLite file serves one host,"
            " use PostgreSQL for several"
        )

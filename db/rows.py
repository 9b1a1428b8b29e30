"""Rows back to records: the inverse of `db.inserts`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from sqlalchemy import Connection, select

from db.errors import UnknownName
from db.gate import columns_of
from db.records import Sweep
from db.tables import table_of

__all__ = ["one_record", "read_records", "require_sweep"]

R = TypeVar("R")


def read_records(
    connection: Connection, record: type[R], *, order_by: Iterable[str] = (), **equals: Any
) -> tuple[R, ...]:
    """All rows of `record` whose columns equal the given values, ordered by `order_by`, then by key."""
    table = table_of(record)  # type: ignore[arg-type]
    query = select(table)
    for name, value in equals.items():
        query = query.where(table.c[name] == value)
    order = [*order_by, *(name for name in record.KEY if name not in set(order_by))]  # type: ignore[attr-defined]
    names = [column.name for column in columns_of(record)]  # type: ignore[arg-type]
    rows = connection.execute(query.order_by(*(table.c[name] for name in order)))
    return tuple(record(**dict(zip(names, row, strict=True))) for row in rows)


def one_record(connection: Connection, record: type[R], **equals: Any) -> R:
    """The one row with these values.

    Raises:
        UnknownName: there is none.
    """
    found = read_records(connection, record, **equals)
    if not found:
        listed = ", ".join(f"{name}={value!r}" for name, value in equals.items())
        raise UnknownName(f"no {record.TABLE} with {listed}")  # type: ignore[attr-defined]
    return found[0]


def require_sweep(connection: Connection, name: str) -> Sweep:
    """The sweep of this name.

    Raises:
        UnknownName: lists the sweeps that exist.
    """
    sweeps = {sweep.name: sweep for sweep in read_records(connection, Sweep, order_by=("created_utc_s",))}
    if name not in sweeps:
        raise UnknownName(f"no sweep {name!r} in this database; it holds: {', '.join(sweeps) or 'none'}")
    return sweeps[name]

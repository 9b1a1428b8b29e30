"""Rows back to records: the inverse of `db.inserts`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from sqlalchemy import Connection, select

from db.errors import UnknownName
from db.gate import columns_of
from db.tables import table_of

__all__ = ["one_record", "read_records"]

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

"""Many rows of one record class into its table, fast: tuples through the driver, no ORM, no statement compilation."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from sqlalchemy import Connection

from db.gate import Row, columns_of

__all__ = ["insert_rows"]


@cache
def _statement(record: type[Row], placeholder: str) -> str:
    names = [column.name for column in columns_of(record)]
    return (
        f"INSERT INTO {record.TABLE} ({', '.join(names)}) VALUES ({', '.join([placeholder] * len(names))})"
        f" ON CONFLICT ({', '.join(record.KEY)}) DO NOTHING"
    )


def insert_rows(connection: Connection, record: type[Row], rows: Sequence[tuple[Any, ...]]) -> None:
    """Insert checked value tuples (`db.gate.row_values`); a row whose key exists is left as it is."""
    if not rows:
        return
    placeholder = "?" if connection.dialect.name == "sqlite" else "%s"
    connection.exec_driver_sql(_statement(record, placeholder), list(rows))

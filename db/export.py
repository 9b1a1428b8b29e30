"""Whole views and tables out of the database, for other programs."""

from __future__ import annotations

from pathlib import Path

from db.output import write_rows
from db.reader import Reader

__all__ = ["export"]


def export(reader: Reader, relation: str, *, fmt: str, out: Path | None, allow_tainted: bool) -> int:
    """Write a view or table (see `Reader.select`) and return the number of rows."""
    result = reader.select(relation, allow_tainted=allow_tainted)
    write_rows(result.columns, result.rows, fmt=fmt, out=out)
    return len(result.rows)

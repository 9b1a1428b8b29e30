"""Whole views and tables out of the database, for other programs; rows are streamed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from db.output import write_rows
from db.reader import Reader

__all__ = ["export"]


def export(reader: Reader, relation: str, *, fmt: str, out: Path | None, allow_tainted: bool) -> int:
    """Write a view or table (see `Reader.select`) and return the number of rows."""
    written = 0

    def counted(rows: Iterable[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
        nonlocal written
        for row in rows:
            written += 1
            yield row

    with reader.stream(relation, allow_tainted=allow_tainted) as (columns, rows):
        write_rows(columns, counted(rows), fmt=fmt, out=out)
    return written

"""Rows to csv, json and parquet as they come, so that a table of millions of calls needs no memory of its size."""

from __future__ import annotations

import csv
import importlib
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

from db.errors import DbError
from db.gate import columns_of
from db.tables import RECORDS

__all__ = ["text_target", "write_csv", "write_json", "write_parquet"]

_BATCH_ROWS = 20_000


@contextmanager
def text_target(out: Path | None) -> Iterator[TextIO]:
    """Stdout, or a file that appears under its name only when it is complete."""
    if out is None:
        yield sys.stdout
        return
    with _completed(out) as partial, partial.open("w", encoding="utf-8", newline="") as file:
        yield file


def write_csv(columns: Sequence[str], rows: Iterable[Sequence[Any]], out: Path | None) -> None:
    """One header line, then the rows; None is an empty field."""
    with text_target(out) as target:
        writer = csv.writer(target, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(rows)


def write_json(columns: Sequence[str], rows: Iterable[Sequence[Any]], out: Path | None) -> None:
    """An array of objects, one per line."""
    with text_target(out) as target:
        separator = "[\n"
        for row in rows:
            target.write(separator + json.dumps(dict(zip(columns, row, strict=True))))
            separator = ",\n"
        target.write("[]\n" if separator == "[\n" else "\n]\n")


def write_parquet(columns: Sequence[str], rows: Iterable[Sequence[Any]], out: Path | None) -> None:
    """A Parquet file; columns of the database's tables have their declared types, others those of the first rows.

    Raises:
        DbError: no file was named, or pyarrow is not installed.
    """
    if out is None:
        raise DbError("parquet is binary: name a file with --out FILE")
    try:
        arrow: Any = importlib.import_module("pyarrow")
        parquet: Any = importlib.import_module("pyarrow.parquet")
    except ModuleNotFoundError as error:
        raise DbError("parquet needs the pyarrow package: pip install pyarrow (or use --format csv)") from error
    remaining = iter(rows)
    batch = list(islice(remaining, _BATCH_ROWS))
    schema = _schema(arrow, columns, batch)
    with _completed(out) as partial, parquet.ParquetWriter(partial, schema) as writer:
        while batch:
            arrays = [arrow.array([row[index] for row in batch], type=field.type) for index, field in enumerate(schema)]
            writer.write_table(arrow.Table.from_arrays(arrays, schema=schema))
            batch = list(islice(remaining, _BATCH_ROWS))


def _schema(arrow: Any, columns: Sequence[str], batch: Sequence[Sequence[Any]]) -> Any:
    arrow_types = {str: arrow.string(), int: arrow.int64(), float: arrow.float64(), bool: arrow.bool_()}
    declared = {column.name: arrow_types[column.python_type] for record in RECORDS for column in columns_of(record)}
    found = []
    for index, name in enumerate(columns):
        kind = declared.get(name) or arrow.array([row[index] for row in batch]).type
        found.append((name, arrow.string() if arrow.types.is_null(kind) else kind))
    return arrow.schema(found)


@contextmanager
def _completed(out: Path) -> Iterator[Path]:
    """A name to write to that becomes `out` at the end; nothing is left of a failed one."""
    partial = out.with_name(out.name + ".partial")
    try:
        yield partial
        partial.replace(out)
    except OSError as error:
        raise DbError(f"cannot write {out}: {error.strerror or error}") from error
    finally:
        partial.unlink(missing_ok=True)

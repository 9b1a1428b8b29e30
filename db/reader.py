"""Read-only access to a results database from Python: `db.open(location).frame("v_calls")`.

Readers open their own read-only connection, so they can look while a run writes.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from sqlalchemy import Connection, text

from db.engine import connect, open_engine
from db.errors import DbError, UnknownName
from db.queries import CellResult, cell_results
from db.records import Sweep
from db.rows import read_records, require_sweep
from db.tables import RECORDS
from db.tables_paper import PaperTable, paper_table

__all__ = ["VIEWS", "Reader", "Result", "with_booleans"]

_ROWS_AT_ONCE = 10_000
VIEWS = tuple(f"v_{name}{suffix}" for suffix in ("", "_with_tainted") for name in ("cells", "sessions", "calls"))


def with_booleans(columns: Sequence[str], rows: Iterable[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    """Rows whose `is_*` and `has_*` columns hold booleans, which SQLite gives back as 0 and 1."""
    flags = [index for index, name in enumerate(columns) if name.startswith(("is_", "has_"))]
    for row in rows:
        if flags:
            values = list(row)
            for index in flags:
                values[index] = None if values[index] is None else bool(values[index])
            row = tuple(values)
        yield row


class Result(NamedTuple):
    """Column names and rows."""

    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]


class Reader:
    """A read-only connection to one results database; a context manager.

    Args:
        location: a path or URL; see `db.engine.open_engine` for the errors.
    """

    def __init__(self, location: str | Path) -> None:
        self.engine = open_engine(location, read_only=True)

    def __enter__(self) -> Self:
        """Give the reader itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close."""
        self.close()

    def close(self) -> None:
        """Close all connections."""
        self.engine.dispose()

    def select(self, relation: str, *, allow_tainted: bool = False, **equals: Any) -> Result:
        """All rows of a view or table, optionally where columns equal values.

        Args:
            relation: one of VIEWS, or a table name.
            allow_tainted: for `v_*`, use the form that includes tainted cells (column `attempt_state` marks them).
            equals: column=value conditions.

        Raises:
            UnknownName: no such view or table.
        """
        with self.stream(relation, allow_tainted=allow_tainted, **equals) as (columns, rows):
            return Result(columns, list(rows))

    @contextmanager
    def stream(
        self, relation: str, *, allow_tainted: bool = False, **equals: Any
    ) -> Iterator[tuple[tuple[str, ...], Iterator[tuple[Any, ...]]]]:
        """Columns and an iterator over the rows that `select` gives, without holding them all."""
        known = (*VIEWS, *(record.TABLE for record in RECORDS))
        if relation not in known:
            raise UnknownName(f"no view or table {relation!r}; there are: {', '.join(known)}")
        if allow_tainted and relation in VIEWS and not relation.endswith("_with_tainted"):
            relation += "_with_tainted"
        where = " AND ".join(f"{column} = :{column}" for column in equals)
        query = text(f"SELECT * FROM {relation}" + (f" WHERE {where}" if where else ""))
        with self.connection() as connection:
            found = connection.execution_options(stream_results=True).execute(query, equals)
            columns = tuple(found.keys())
            try:
                yield columns, with_booleans(columns, (tuple(row) for row in found.yield_per(_ROWS_AT_ONCE)))
            finally:
                found.close()

    def frame(self, relation: str, *, allow_tainted: bool = False) -> Any:
        """A view or table as a `pandas.DataFrame`; arguments as in `select`.

        Raises:
            DbError: pandas is not installed.
        """
        try:
            pandas: Any = importlib.import_module("pandas")
        except ModuleNotFoundError as error:
            raise DbError("frame() needs the pandas package: pip install pandas (or use select())") from error
        result = self.select(relation, allow_tainted=allow_tainted)
        return pandas.DataFrame(result.rows, columns=list(result.columns))

    def cells(self, sweep: str | None = None, *, allow_tainted: bool = False) -> tuple[CellResult, ...]:
        """Every cell of a sweep, or of the database, with the metrics of the attempt that is shown."""
        with self.connection() as connection:
            return cell_results(connection, sweep=sweep, allow_tainted=allow_tainted)

    def table(self, name: str, *, sweep: str | None = None, allow_tainted: bool = False) -> PaperTable:
        """The table `name`: of the sweep of that name unless another is given.

        `concurrency` without a sweep of that name shows the only sweep there is.

        Raises:
            UnknownName: lists the sweeps that exist.
        """
        with self.connection() as connection:
            sweeps = [found.name for found in read_records(connection, Sweep, order_by=("created_utc_s",))]
            chosen = sweep if sweep is not None else name
            if sweep is None and name == "concurrency" and name not in sweeps and len(sweeps) == 1:
                (chosen,) = sweeps
            require_sweep(connection, chosen)
            results = cell_results(connection, sweep=chosen, allow_tainted=allow_tainted)
        title = name if chosen == name else f"{name} ({chosen})"
        return paper_table(title, results, allow_tainted=allow_tainted)

    @contextmanager
    def connection(self) -> Iterator[Connection]:
        """A connection inside one read transaction."""
        with connect(self.engine) as connection:
            yield connection

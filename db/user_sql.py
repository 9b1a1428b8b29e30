"""The user's own SQL, run so that it can neither change anything nor run away: read-only, one statement, capped.

SQLite: the file is open read-only, an authorizer allows reading alone (no ATTACH, no PRAGMA), a progress handler ends
it. PostgreSQL: a read-only transaction with a statement timeout, and a prepared cursor, which takes a single SELECT
only.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import Engine

from db.engine import connect
from db.errors import QueryFailed

__all__ = ["Answer", "run_sql"]

_STEPS_BETWEEN_CHECKS = 10_000  # SQLite virtual-machine steps, about a millisecond
_READING = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE})


class Answer(NamedTuple):
    """Columns, rows, and whether the row cap cut some off."""

    columns: Sequence[str]
    rows: list[tuple[Any, ...]]
    is_cut: bool


def run_sql(engine: Engine, statement: str, *, max_rows: int, timeout_s: float) -> Answer:
    """Run one SELECT.

    Args:
        engine: a read-only engine.
        statement: the user's SQL.
        max_rows: rows fetched at most.
        timeout_s: wall-clock limit.

    Raises:
        QueryFailed: wrong SQL, not a single reading statement, or too slow; one line.
    """
    statement = statement.strip().rstrip(";").strip()
    if not statement:
        raise QueryFailed("empty SQL; for example: python -m db sql 'SELECT arm, num_workers FROM v_cells'")
    run = _on_sqlite if engine.dialect.name == "sqlite" else _on_postgresql
    with connect(engine) as connection:
        raw = connection.connection.driver_connection
        try:
            return run(raw, statement, max_rows, timeout_s)
        finally:
            connection.invalidate()  # authorizer and cursor state must not reach the next user of the connection


def _on_sqlite(raw: Any, statement: str, max_rows: int, timeout_s: float) -> Answer:
    end_s = time.monotonic() + timeout_s
    raw.set_authorizer(lambda action, *_: sqlite3.SQLITE_OK if action in _READING else sqlite3.SQLITE_DENY)
    raw.set_progress_handler(lambda: time.monotonic() > end_s, _STEPS_BETWEEN_CHECKS)
    try:
        cursor = raw.execute(statement)
        rows = cursor.fetchmany(max_rows + 1)
        return _answer(cursor.description, rows, max_rows)
    except (sqlite3.Error, sqlite3.Warning) as error:
        text = str(error)
        if text == "interrupted":
            raise QueryFailed(_too_slow(timeout_s)) from error
        if "not authorized" in text or "prohibited" in text:
            raise QueryFailed("only reading is allowed: one SELECT statement") from error
        raise QueryFailed(f"SQL: {text}") from error


def _on_postgresql(raw: Any, statement: str, max_rows: int, timeout_s: float) -> Answer:
    import psycopg

    try:
        with raw.cursor() as cursor:
            cursor.execute("SET TRANSACTION READ ONLY")
            cursor.execute(f"SET LOCAL statement_timeout = {max(1, round(timeout_s * 1000))}")
            cursor.execute(f"DECLARE convoy_user NO SCROLL CURSOR FOR {statement}".encode(), prepare=True)
            cursor.execute(f"FETCH {max_rows + 1} FROM convoy_user".encode())
            return _answer(cursor.description, cursor.fetchall(), max_rows)
    except psycopg.errors.QueryCanceled as error:
        raise QueryFailed(_too_slow(timeout_s)) from error
    except psycopg.errors.ReadOnlySqlTransaction as error:
        raise QueryFailed("only reading is allowed: one SELECT statement") from error
    except psycopg.Error as error:
        raise QueryFailed("SQL: " + str(error).strip().splitlines()[0]) from error


def _answer(description: Any, rows: list[Any], max_rows: int) -> Answer:
    columns = [column[0] for column in description or ()]
    return Answer(columns, [tuple(row) for row in rows[:max_rows]], len(rows) > max_rows)


def _too_slow(timeout_s: float) -> str:
    return f"the query ran longer than {timeout_s:g} s; narrow it, or raise --timeout-s"

"""`python -m db`: ask the results database.

    cells                 every cell: state, attempts, what the shown attempt says
    calls                 the calls of the shown attempts (v_calls)
    table NAME            a table in the paper's layout: `concurrency`, or the name of any sweep; `rerender` and
                          `rerender_trace` for what renderers remove (python -m orchestrator rerender)
    sql 'SELECT ...'      your own question; read-only, one statement, capped in rows and time
    export VIEW           a whole view or table
    migrate               bring an older database to this version's schema

Data goes to stdout, everything else to stderr. Exit code 0, or 2 with one line for a user's mistake.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from db.engine import migrate
from db.errors import DataRefused, DbError
from db.export import export
from db.output import FORMATS, write_paper_table, write_rows
from db.queries import CellResult
from db.reader import Reader, with_booleans
from db.rows import require_sweep
from db.table_rerender import RERENDER_TABLES, rerender_table
from db.tables_paper import budget_text
from db.user_sql import run_sql

__all__ = ["main"]

_MAX_CALLS_SHOWN = 1000  # in a format for people; files for programs hold all rows
_ALL = 2**31 - 2  # as a row cap: SQLite counts in 32 bits


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    arguments = _parser().parse_args(argv)
    run: Callable[[argparse.Namespace], int] = arguments.run
    try:
        code = run(arguments)
        sys.stdout.flush()
    except DbError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # `... | head` is no mistake
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return code


def _cells(arguments: argparse.Namespace) -> int:
    with Reader(arguments.db) as reader:
        results = reader.cells(arguments.sweep, allow_tainted=arguments.allow_tainted)
    columns = ["cell_key", "state", "shown", "arm", "w", "budget", "model", "router", "benchmark", "engine", "seed"]
    columns += ["replicate", "attempt", "sessions", "in_flight", "steps", "tokens", "cache_hit", "duration_s"]
    write_rows(columns, [_cell_row(result) for result in results], fmt=arguments.format, out=arguments.out)
    return 0


def _cell_row(result: CellResult) -> list[object]:
    cell, attempt, metrics = result.cell, result.attempt, result.metrics
    identity = [cell.cell_key, cell.state, result.status, result.arm, cell.num_workers]
    identity += [budget_text(cell.context_budget_tokens), cell.model, cell.router, cell.benchmark, cell.engine]
    identity += [cell.seed, cell.replicate, None if attempt is None else attempt.number]
    if metrics is None:
        return [*identity, None, None, None, None, None, None]
    figures = [metrics.num_sessions, metrics.time_weighted_in_flight, metrics.steps, metrics.tokens]
    return [*identity, *figures, metrics.cache_hit, metrics.duration_s]


def _calls(arguments: argparse.Namespace) -> int:
    suffix = "_with_tainted" if arguments.allow_tainted else ""
    conditions = []
    if arguments.cell is not None:
        conditions.append(f"cell_key LIKE '{_quoted(arguments.cell)}%'")
    if arguments.session is not None:
        conditions.append(f"session_id = '{_quoted(arguments.session)}'")
    if arguments.sweep is not None:
        conditions.append(f"cell_key IN (SELECT cell_key FROM sweep_cell WHERE sweep = '{_quoted(arguments.sweep)}')")
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    limit = arguments.limit
    if limit is None:
        limit = _MAX_CALLS_SHOWN if arguments.format in ("table", "markdown") else _ALL
    statement = f"SELECT * FROM v_calls{suffix}{where} ORDER BY attempt_id, session_id, call_index, try_index"
    with Reader(arguments.db) as reader:
        if arguments.sweep is not None:
            with reader.connection() as connection:
                require_sweep(connection, arguments.sweep)
        answer = run_sql(reader.engine, statement, max_rows=limit, timeout_s=60)
    rows = with_booleans(answer.columns, answer.rows)
    write_rows(answer.columns, rows, fmt=arguments.format, out=arguments.out)
    _say_cut(answer.is_cut, limit, "--limit")
    return 0


def _quoted(text: str) -> str:
    return text.replace("'", "''")


def _table(arguments: argparse.Namespace) -> int:
    if arguments.name in RERENDER_TABLES:
        return _rerender_table(arguments)
    with Reader(arguments.db) as reader:
        table = reader.table(arguments.name, sweep=arguments.sweep, allow_tainted=arguments.allow_tainted)
    if not table.rows:
        raise DataRefused(f"{arguments.db} holds no cells; run a study first")
    write_paper_table(table, fmt=arguments.format, out=arguments.out)
    return 0


def _rerender_table(arguments: argparse.Namespace) -> int:
    with Reader(arguments.db) as reader:
        table = rerender_table(reader, arguments.name, sweep=arguments.sweep, allow_tainted=arguments.allow_tainted)
    write_rows(table.columns, table.rows, fmt=arguments.format, out=arguments.out)
    if arguments.out is None and arguments.format in ("table", "markdown"):
        print("", *table.footers, sep="\n")
    return 0


def _sql(arguments: argparse.Namespace) -> int:
    statement = sys.stdin.read() if arguments.statement == "-" else arguments.statement
    with Reader(arguments.db) as reader:
        answer = run_sql(reader.engine, statement, max_rows=arguments.max_rows, timeout_s=arguments.timeout_s)
    write_rows(answer.columns, answer.rows, fmt=arguments.format, out=arguments.out)
    _say_cut(answer.is_cut, arguments.max_rows, "--max-rows")
    return 0


def _export(arguments: argparse.Namespace) -> int:
    with Reader(arguments.db) as reader:
        num_rows = export(
            reader,
            arguments.relation,
            fmt=arguments.format,
            out=arguments.out,
            allow_tainted=arguments.allow_tainted,
        )
    if arguments.out is not None:
        print(f"{num_rows} rows to {arguments.out}", file=sys.stderr)
    return 0


def _migrate(arguments: argparse.Namespace) -> int:
    before, after = migrate(arguments.db)
    if before == after:
        print(f"schema {after} is up to date")
    else:
        print(f"schema {before or 'none'} -> {after}")
    return 0


def _say_cut(is_cut: bool, cap: int, option: str) -> None:
    if is_cut:
        print(f"only the first {cap} rows are shown; raise {option}", file=sys.stderr)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m db", description="Ask the results database.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    cells = _command(commands, "cells", _cells, "every cell and its state")
    calls = _command(commands, "calls", _calls, "the calls of the shown attempts")
    table = _command(commands, "table", _table, "a table in the paper's layout")
    sql = _command(commands, "sql", _sql, "your own read-only SQL", default_format="table")
    exported = _command(commands, "export", _export, "a whole view or table", default_format="csv")
    for command in (cells, calls, table):
        command.add_argument("--sweep", metavar="NAME", help="only this sweep")
    for command in (cells, calls, table, exported):
        command.add_argument("--allow-tainted", action="store_true", help="include tainted cells, marked")
    calls.add_argument("--cell", metavar="KEY", help="only cells whose key begins so")
    calls.add_argument("--session", metavar="ID", help="only this session")
    limits = f"rows at most (default {_MAX_CALLS_SHOWN} for table and markdown, all for csv, json and parquet)"
    calls.add_argument("--limit", type=_positive, help=limits)
    table.add_argument("name", metavar="NAME", help="concurrency, rerender, rerender_trace, or a sweep's name")
    sql.add_argument("statement", metavar="SQL", help="one SELECT, or - to read it from stdin")
    sql.add_argument("--max-rows", type=_positive, default=10_000, help="rows at most (default %(default)s)")
    sql.add_argument("--timeout-s", type=float, default=30.0, help="seconds at most (default %(default)s)")
    exported.add_argument("relation", metavar="VIEW", help="v_cells, v_sessions, v_calls, or a table")
    _command(commands, "migrate", _migrate, "bring an older database to this version's schema", default_format=None)
    return parser


def _command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    run: Callable[[argparse.Namespace], int],
    text: str,
    *,
    default_format: str | None = "table",
) -> argparse.ArgumentParser:
    command = commands.add_parser(name, help=text, description=text)
    command.set_defaults(run=run)
    command.add_argument(
        "--db", metavar="URL|PATH", default="results.db", help="the database (default results.db in this folder)"
    )
    if default_format is not None:
        command.add_argument("--format", choices=FORMATS, default=default_format)
        command.add_argument("--out", type=Path, metavar="FILE", help="write to a file instead of stdout")
    return command


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())

"""Rows to text or files: csv, json, parquet, markdown, and tables for a terminal.

In csv and json nothing but the data is written; what else a table has to say is an output of the other formats.
"""

from __future__ import annotations

import csv
import importlib
import io
import json
import sys
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

from db.errors import DbError
from db.tables_paper import MEASURES, PaperTable, figure_colour, figure_text, flat_rows

__all__ = ["FORMATS", "write_paper_table", "write_rows"]

FORMATS = ("table", "markdown", "csv", "json", "parquet")


def write_rows(columns: Sequence[str], rows: Sequence[Sequence[Any]], *, fmt: str, out: Path | None) -> None:
    """Write rows under `columns` to `out`, or to stdout when it is None."""
    plain = [[_plain(value) for value in row] for row in rows]
    if fmt == "parquet":
        _write_parquet(columns, plain, out)
    elif fmt == "csv":
        _emit(_csv(columns, plain), out)
    elif fmt == "json":
        _emit(json.dumps([dict(zip(columns, row, strict=True)) for row in plain], indent=1) + "\n", out)
    else:
        texts = [["-" if value is None else _short(value) for value in row] for row in plain]
        _emit(_markdown(columns, texts) if fmt == "markdown" else _terminal(columns, texts, out), out)


def write_paper_table(table: PaperTable, *, fmt: str, out: Path | None) -> None:
    """Write a paper table; csv, json and parquet get plain numbers, the others text with changes and footers."""
    if fmt in ("csv", "json", "parquet"):
        flat = flat_rows(table)
        columns = list(flat[0]) if flat else []
        write_rows(columns, [list(row.values()) for row in flat], fmt=fmt, out=out)
        return
    columns = [*table.key_columns, "arm", *(measure.title for measure in MEASURES)]
    texts, styles = [], []
    for row in table.rows:
        mark = "*" if row.status == "tainted" and row.figures else ""
        shown = list(zip(MEASURES, row.figures, strict=False))
        figures = [figure_text(measure, figure) for measure, figure in shown]
        texts.append([*row.keys, row.arm + mark, *(figures or _nothing(row.status))])
        colours = [figure_colour(measure, figure) for measure, figure in shown]
        styles.append([""] * (len(row.keys) + 1) + colours)
    body = (
        _markdown(columns, texts)
        if fmt == "markdown"
        else _terminal(columns, texts, out, styles, table.title, len(table.key_columns) + 1)
    )
    separator = "\n" if fmt == "markdown" and table.footers else ""
    ending = "  \n" if fmt == "markdown" else "\n"
    _emit(body + separator + "".join(line + ending for line in table.footers), out)


def _nothing(status: str) -> list[str]:
    word = "tainted, left out" if status == "tainted" else f"missing ({status})"
    return [word] + [""] * (len(MEASURES) - 1)


def _plain(value: Any) -> Any:
    return float(value) if isinstance(value, Decimal) else value


def _short(value: Any) -> str:
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    text = " ".join(text.split())
    return text if len(text) <= 80 else text[:77] + "..."


def _csv(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return buffer.getvalue()


def _markdown(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def _terminal(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    out: Path | None,
    styles: Sequence[Sequence[str]] = (),
    title: str | None = None,
    num_left: int = 1,
) -> str:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index < num_left else "right", no_wrap=True)
    for number, row in enumerate(rows):
        row_styles = list(styles[number]) if styles else []
        row_styles += [""] * (len(row) - len(row_styles))
        table.add_row(*(Text(cell, style=style) for cell, style in zip(row, row_styles, strict=True)))
    is_terminal = out is None and sys.stdout.isatty()
    buffer = io.StringIO()
    console = Console(file=buffer, force_terminal=is_terminal, width=None if is_terminal else 10_000, highlight=False)
    if is_terminal:
        console.width = max(Console().width, console.measure(table).maximum)
    console.print(table)
    return "\n".join(line.rstrip() for line in buffer.getvalue().splitlines()).strip("\n") + "\n"


def _write_parquet(columns: Sequence[str], rows: Sequence[Sequence[Any]], out: Path | None) -> None:
    if out is None:
        raise DbError("parquet is binary: name a file with --out FILE")
    try:
        pyarrow: Any = importlib.import_module("pyarrow")
        parquet: Any = importlib.import_module("pyarrow.parquet")
    except ModuleNotFoundError as error:
        raise DbError("parquet needs the pyarrow package: pip install pyarrow (or use --format csv)") from error
    by_column: Mapping[str, list[Any]] = {name: [row[index] for row in rows] for index, name in enumerate(columns)}
    partial = out.with_name(out.name + ".partial")
    try:
        parquet.write_table(pyarrow.table(by_column), partial)
        partial.replace(out)
    except OSError as error:
        raise DbError(f"cannot write {out}: {error.strerror or error}") from error


def _emit(text: str, out: Path | None) -> None:
    if out is None:
        sys.stdout.write(text)
        return
    partial = out.with_name(out.name + ".partial")
    try:
        partial.write_text(text, encoding="utf-8")
        partial.replace(out)
    except OSError as error:
        raise DbError(f"cannot write {out}: {error.strerror or error}") from error

"""Rows and paper tables in the format the user asked for: csv, json, parquet, markdown, or a table for a terminal.

In csv, json and parquet nothing but the data is written; what else a table has to say is part of the other formats.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Iterable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

from db.streams import text_target, write_csv, write_json, write_parquet
from db.tables_paper import MEASURES, PaperTable, figure_colour, figure_text, flat_rows

__all__ = ["FORMATS", "write_paper_table", "write_rows"]

FORMATS = ("table", "markdown", "csv", "json", "parquet")
_STREAMS = {"csv": write_csv, "json": write_json, "parquet": write_parquet}
_LONGEST_CELL = 80  # characters of a value in a table for reading


def write_rows(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, fmt: str, out: Path | None) -> None:
    """Write rows under `columns` to the file `out`, or to stdout when it is None."""
    plain = ([_plain(value) for value in row] for row in rows)
    if fmt in _STREAMS:
        _STREAMS[fmt](columns, plain, out)
        return
    texts = [["-" if value is None else _short(value) for value in row] for row in plain]
    with text_target(out) as target:
        target.write(_markdown(columns, texts) if fmt == "markdown" else _terminal(columns, texts, out=out))


def write_paper_table(table: PaperTable, *, fmt: str, out: Path | None) -> None:
    """Write a paper table; csv, json and parquet get plain numbers, the others text with changes and footers."""
    if fmt in _STREAMS:
        flat = flat_rows(table)
        write_rows(list(flat[0]) if flat else [], [list(row.values()) for row in flat], fmt=fmt, out=out)
        return
    columns = [*table.key_columns, "arm", *(measure.title for measure in MEASURES)]
    texts, styles = _paper_cells(table)
    with text_target(out) as target:
        if fmt == "markdown":
            target.write(_markdown(columns, texts) + "\n" + "".join(f"{line}  \n" for line in table.footers))
            return
        num_keys = len(table.key_columns) + 1
        target.write(f"{table.title}\n\n{_terminal(columns, texts, out=out, styles=styles, num_left=num_keys)}\n")
        target.writelines(f"{line}\n" for line in table.footers)


def _paper_cells(table: PaperTable) -> tuple[list[list[str]], list[list[str]]]:
    """Texts and colours, row by row."""
    texts, styles = [], []
    for row in table.rows:
        shown = list(zip(MEASURES, row.figures, strict=False))  # row.figures goes on with MORE_MEASURES
        figures = [figure_text(measure, figure) for measure, figure in shown] or _nothing(row.status)
        mark = "*" if row.status == "tainted" and shown else ""
        texts.append([*row.keys, row.arm + mark, *figures])
        colours = [figure_colour(measure, figure) for measure, figure in shown]
        styles.append([""] * (len(row.keys) + 1) + (colours or [""] * len(figures)))
    return texts, styles


def _nothing(status: str) -> list[str]:
    word = "tainted, left out" if status == "tainted" else f"missing ({status})"
    return [word] + [""] * (len(MEASURES) - 1)


def _plain(value: Any) -> Any:
    return float(value) if isinstance(value, Decimal) else value


def _short(value: Any) -> str:
    text = " ".join((f"{value:.6g}" if isinstance(value, float) else str(value)).split())
    return text if len(text) <= _LONGEST_CELL else text[: _LONGEST_CELL - 3] + "..."


def _markdown(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def _terminal(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    out: Path | None,
    styles: Sequence[Sequence[str]] | None = None,
    num_left: int = 1,
) -> str:
    """A table with colours on a terminal and without them elsewhere; never narrower than its content."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index < num_left else "right", no_wrap=True)
    for number, row in enumerate(rows):
        row_styles = styles[number] if styles else [""] * len(row)
        table.add_row(*(Text(cell, style=style) for cell, style in zip(row, row_styles, strict=True)))
    buffer = io.StringIO()
    is_terminal = out is None and sys.stdout.isatty()
    console = Console(file=buffer, force_terminal=is_terminal, width=10_000, highlight=False)
    console.print(table)
    return "".join(f"{line.rstrip()}\n" for line in buffer.getvalue().splitlines())

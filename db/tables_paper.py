"""The concurrency table in the layout of the paper's Table 2, as data and as text.

Rows are cells; within one group (model, budget, w and whatever else the sweep varies) each arm stands under the arm
it is compared with, and a bracketed figure is its change from that arm. Below the rows stand the conditions under
which the figures hold: what is simulated, replayed, synthetic or assumed, and which cells are missing or tainted.

Source: ReFold (arXiv 2610.07863) Table 2, appendix A.3 "Reading the tables".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from db.errors import DataRefused
from db.notes import footer_lines
from db.queries import CellResult, Metrics

__all__ = ["MEASURES", "Measure", "PaperRow", "PaperTable", "paper_table", "reference_arm"]

Change = Literal["percent", "points", "count", "none"]  # relative; percentage points of a share; absolute; not shown

# Axis labels that repeat a cell column; they are shown once, as that column.
_CELL_AXES = frozenset(
    {"arm", "renderer", "num_workers", "w", "model", "benchmark", "router", "engine", "executor", "seed", "replicate"}
    | {"budget", "context_budget", "context_budget_tokens"}
)
_NOISE = {"resolved": 4.0}  # appendix A.4: a difference of up to four tasks between two arms is within noise


class Measure(NamedTuple):
    """One column of figures."""

    name: str  # key in machine-readable output; carries the unit
    title: str
    value: Callable[[Metrics], float | None]
    write: Callable[[float], str]
    change: Change
    better: Literal["more", "less", "neither"]


def amount_text(value: float) -> str:
    """Three digits that matter: `1,234`, `56.7`, `8.90`."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


MEASURES: tuple[Measure, ...] = (
    Measure("resolved", "Resolve", lambda m: m.resolved, "{:.0f}".format, "count", "more"),
    Measure("tokens_k", "Tokens k", lambda m: _scaled(m.tokens, 1e-3), amount_text, "percent", "less"),
    Measure("cost_cents", "Cost ¢", lambda m: m.cost_cents, amount_text, "percent", "less"),
    Measure(
        "duration_min", "Duration min", lambda m: _scaled(m.duration_s, 1 / 60), "{:.1f}".format, "percent", "less"
    ),
    Measure("compactions", "Compactions", lambda m: m.compactions, "{:.2f}".format, "percent", "less"),
    Measure("kv_peak", "KV peak", lambda m: m.kv_peak, "{:.0%}".format, "points", "less"),
    Measure("queue_s", "Queue s", lambda m: m.queue_s, "{:.2f}".format, "percent", "less"),
    Measure("cache_hit", "Cache hit", lambda m: m.cache_hit, "{:.1%}".format, "points", "more"),
    Measure("preemptions", "Preemptions", lambda m: m.preemptions, "{:.0f}".format, "count", "less"),
    Measure("exhausted", "Exhausted", lambda m: m.exhausted, "{:.0f}".format, "count", "less"),
    Measure("timeouts", "Timeouts", lambda m: m.timeouts, "{:.0f}".format, "count", "less"),
    Measure("in_flight", "In flight", lambda m: m.time_weighted_in_flight, "{:.1f}".format, "none", "neither"),
)
# In csv, json and parquet only: a terminal row is long enough.
MORE_MEASURES: tuple[Measure, ...] = (
    Measure("steps", "Steps", lambda m: m.steps, "{:.0f}".format, "percent", "neither"),
    Measure("kv_gib", "KV GiB", lambda m: _kv_gib(m), "{:.2f}".format, "percent", "less"),
)


class Figure(NamedTuple):
    """One figure and its change from the reference arm, in the measure's own kind of change."""

    value: float | None
    change: float | None
    reference: float | None


@dataclass(frozen=True, slots=True)
class PaperRow:
    """One cell."""

    keys: tuple[str, ...]  # under PaperTable.key_columns
    arm: str
    reference: str | None  # the arm it is compared with
    status: str  # complete | tainted | planned | running | failed | lost
    figures: tuple[Figure, ...]  # by MEASURES, then MORE_MEASURES; empty when nothing is shown
    result: CellResult


@dataclass(frozen=True, slots=True)
class PaperTable:
    """A table ready to be written in any format."""

    title: str
    key_columns: tuple[str, ...]
    rows: tuple[PaperRow, ...]
    footers: tuple[str, ...]


def paper_table(title: str, results: Sequence[CellResult], *, allow_tainted: bool) -> PaperTable:
    """Lay out a grid's results; missing cells keep their row.

    Raises:
        DataRefused: two cells cannot be told apart by the table's columns.
    """
    key_columns = _key_columns(results)
    keys = [tuple(_key(result, column) for column in key_columns) for result in results]
    groups: dict[tuple[str, ...], dict[str, CellResult]] = {}
    for key, result in zip(keys, results, strict=True):
        twin = groups.setdefault(key, {}).setdefault(result.arm, result)
        if twin is not result:
            raise DataRefused(
                f"cells {twin.cell.cell_key} and {result.cell.cell_key} share {', '.join(key_columns)} and arm"
                f" {result.arm!r}; give their arms different names in the sweep"
            )
    rows = []
    for key, group in groups.items():
        for arm in _paired_order(tuple(group)):
            reference = reference_arm(arm, tuple(group))
            rows.append(_row(key, group[arm], None if reference is None else group[reference]))
    return PaperTable(title, key_columns, tuple(rows), footer_lines(results, allow_tainted=allow_tainted))


def reference_arm(arm: str, arms: Sequence[str]) -> str | None:
    """The arm that `arm` is compared with: `x+refold` with `x`, others with the group's first, that one with None."""
    outer, plus, _inner = arm.rpartition("+")
    if plus and outer in arms:
        return outer
    return arms[0] if arm != arms[0] else None


def _paired_order(arms: tuple[str, ...]) -> tuple[str, ...]:
    """Grid order, but each `x+y` directly under its `x`."""
    ordered: list[str] = []
    for arm in arms:
        reference = reference_arm(arm, arms)
        is_extension = reference is not None and arm.startswith(f"{reference}+")
        if not is_extension:
            ordered.append(arm)
            ordered += [other for other in arms if other.rpartition("+")[0] == arm and other not in ordered]
    return tuple(ordered + [arm for arm in arms if arm not in ordered])


def _row(key: tuple[str, ...], result: CellResult, reference: CellResult | None) -> PaperRow:
    name = None if reference is None else reference.arm
    if result.metrics is None:
        return PaperRow(key, result.arm, name, result.status, (), result)
    other = None if reference is None else reference.metrics
    figures = tuple(_figure(measure, result.metrics, other) for measure in (*MEASURES, *MORE_MEASURES))
    return PaperRow(key, result.arm, name, result.status, figures, result)


def _figure(measure: Measure, own: Metrics, other: Metrics | None) -> Figure:
    value = measure.value(own)
    reference = None if other is None else measure.value(other)
    return Figure(value, change_of(measure, value, reference), reference)


def change_of(measure: Measure, value: float | None, reference: float | None) -> float | None:
    """The change from the reference in the measure's kind; None when a figure is unknown or the change has no sense."""
    if value is None or reference is None or measure.change == "none":
        return None
    if measure.change == "percent":
        return None if reference == 0 else 100 * (value - reference) / reference
    return (value - reference) * (100 if measure.change == "points" else 1)


def figure_text(measure: Measure, figure: Figure) -> str:
    """`19.8 (-53%)`; `-` when not reported; no bracket without a reference."""
    if figure.value is None:
        return "-"
    written = measure.write(figure.value)
    if figure.change is None:
        rose_from_zero = measure.change == "percent" and figure.reference == 0 and figure.value != 0
        return f"{written} (from 0)" if rose_from_zero else written
    unit = {"percent": "%", "points": " pp"}.get(measure.change, "")
    rounded = round(figure.change)
    return f"{written} ({rounded:+d}{unit})" if rounded else f"{written} (0{unit})"


def figure_colour(measure: Measure, figure: Figure) -> str:
    """`green` better, `red` worse, `grey50` no change, within noise or without direction; empty without a change."""
    if figure.change is None:
        return ""
    if measure.better == "neither" or abs(figure.change) <= _NOISE.get(measure.name, 0.0):
        return "grey50"
    return "green" if (figure.change > 0) == (measure.better == "more") else "red"


def budget_text(tokens: int | None) -> str:
    """`16k` for 16,384 tokens, as the paper counts; `full` for no budget."""
    if tokens is None:
        return "full"
    return f"{tokens // 1024}k" if tokens % 1024 == 0 else f"{tokens:,}"


def _key_columns(results: Sequence[CellResult]) -> tuple[str, ...]:
    """model, budget and w always; other cell columns and axes when they vary."""
    varying = [
        name
        for name in ("benchmark", "router", "engine", "executor", "seed", "replicate")
        if len({getattr(result.cell, name) for result in results}) > 1
    ]
    axes = {name: None for result in results for name in result.axis_labels if name.split(".")[-1] not in _CELL_AXES}
    extra = [name for name in axes if len({str(result.axis_labels.get(name, "")) for result in results}) > 1]
    return (*varying, "model", "budget", "w", *extra)


def _key(result: CellResult, column: str) -> str:
    if column == "budget":
        return budget_text(result.cell.context_budget_tokens)
    if column == "w":
        return str(result.cell.num_workers)
    if column in result.axis_labels and column not in _CELL_AXES:
        return str(result.axis_labels[column])
    return str(getattr(result.cell, column, ""))


def flat_rows(table: PaperTable) -> tuple[Mapping[str, Any], ...]:
    """One mapping per cell with plain numbers, for CSV, JSON and Parquet."""
    rows = []
    for row in table.rows:
        cell = row.result.cell
        flat: dict[str, Any] = dict(zip(table.key_columns, row.keys, strict=True))
        del flat["w"], flat["budget"]  # written as numbers instead
        flat |= {"num_workers": cell.num_workers, "context_budget_tokens": cell.context_budget_tokens}
        flat |= {"arm": row.arm, "compared_with": row.reference, "status": row.status}
        for index, measure in enumerate((*MEASURES, *MORE_MEASURES)):
            figure = row.figures[index] if row.figures else Figure(None, None, None)
            flat[measure.name] = figure.value
            if measure.change != "none":
                flat[f"{measure.name}_change_{measure.change}"] = figure.change
        metrics, attempt = row.result.metrics, row.result.attempt
        flat["main_steps"] = None if metrics is None else metrics.main_steps
        flat["main_peak_prompt_tokens"] = None if metrics is None else metrics.main_peak_prompt_tokens
        flat["share_full_w"] = None if metrics is None else metrics.share_full_w
        flat["num_sessions"] = None if metrics is None else metrics.num_sessions
        for name in ("engine_kind", "policy_kind", "benchmark_source", "signals_source", "stale_coverage", "generated"):
            flat[name] = None if attempt is None else getattr(attempt, name)
        flat["attempt_id"] = None if attempt is None else attempt.attempt_id
        rows.append(flat)
    return tuple(rows)


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


def _kv_gib(metrics: Metrics) -> float | None:
    """Per session, summed over models when calls alternate: each model's server holds its own cache."""
    return sum(metrics.kv_bytes.values()) / 2**30 if metrics.kv_bytes else None

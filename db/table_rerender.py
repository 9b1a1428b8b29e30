"""The re-rendering tables: what each renderer removes, what becomes of it, and what the prefix cache makes of the rest.

`rerender` has one row per cell: tokens sent and not cached against the base arm, the best possible hit, the fate of
removed observation tokens and the composition of the peak. `rerender_trace` is the hit of every call, call by call.
They hold for cells with times too (`--sweep`); only `python -m orchestrator rerender` makes them without an engine.

Source: ReFold (arXiv 2610.07863) section 4.4, appendix B.3, Figures 2b, 2e, 2f and 4c.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, text

from db.errors import DataRefused
from db.notes import footer_lines
from db.queries import CellResult, cell_results
from db.reader import Reader
from db.records import Sweep
from db.rows import read_records, require_sweep
from db.tables_paper import paper_table

__all__ = [
    "RERENDER_TABLES",
    "ArmFigures",
    "RerenderRow",
    "TextTable",
    "arm_figures",
    "rerender_rows",
    "rerender_table",
]

RERENDER_TABLES = ("rerender", "rerender_trace")
_TRACE_CALLS = 30  # Figure 2e shows the first 30
Place = tuple[str, int]  # task, step


@dataclass(frozen=True, slots=True)
class TextTable:
    """Columns, rows of plain values and the lines below them."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    footers: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmFigures:
    """Sums over the served calls of one attempt; None = a call did not report its part.

    Attributes:
        shared_tokens: best possible hit, summed over main calls. main_prompt_tokens: what it is a share of.
        removed: observation tokens missing from main prompts, by fate, each counted once per prompt.
        accounted: (task, step) -> observation tokens in its prompt and missing from it.
        steps: (task, step) -> (prompt tokens, uncached tokens) of its calls, auxiliary ones with their main call.
        peak_tokens: median over sessions of the longest main prompt. peak_parts: mean share of each part in it.
    """

    num_sessions: int
    num_calls: int
    num_exhausted: int
    prompt_tokens: int | None
    cached_tokens: int | None
    main_prompt_tokens: int
    shared_tokens: int | None
    removed: Mapping[str, int | None]
    accounted: Mapping[Place, int]
    steps: Mapping[Place, tuple[int, int | None]]
    peak_tokens: float | None
    peak_parts: Mapping[str, float]

    @property
    def uncached_tokens(self) -> int | None:
        """Prompt tokens that the cache did not hold."""
        if self.prompt_tokens is None or self.cached_tokens is None:
            return None
        return self.prompt_tokens - self.cached_tokens


@dataclass(frozen=True, slots=True)
class RerenderRow:
    """One cell beside the arm it is compared with (the group's `base`, else its first).

    Attributes:
        history_tokens: (task, step) -> observation tokens of the history before that step.
    """

    keys: tuple[str, ...]
    arm: str
    own: ArmFigures
    reference: ArmFigures
    history_tokens: Mapping[Place, int]

    def change(self, part: int) -> float | None:
        """Prompt (part 0) or uncached (1) tokens as a ratio to the reference's, over the steps that both arms made.

        A prompt over the budget ends a session, so an arm that removes more makes more steps.
        """
        both = self.own.steps.keys() & self.reference.steps.keys()
        own = [self.own.steps[place][part] for place in both]
        reference = [self.reference.steps[place][part] for place in both]
        if None in own or None in reference:
            return None
        return _ratio(sum(filter(None, own)), sum(filter(None, reference)))

    def fate_share(self, fate: str) -> float | None:
        """Removed tokens of one fate as a share of the history's observation tokens, summed over prompts [choice]."""
        return _ratio(self.own.removed[fate], sum(self.history_tokens[place] for place in self.own.accounted))


_FATES = ("recoverable", "reproducible", "irrecoverable")
_PARTS = ("system_task", "agent", "observation")
_CALLS = text(
    "SELECT session.task_id AS task_id, call.kind AS kind, call.step AS step, num_prompt_tokens, num_cached_tokens,"
    " shared_prefix_tokens, system_task_tokens, agent_tokens, observation_tokens, removed_recoverable_tokens,"
    " removed_reproducible_tokens, removed_irrecoverable_tokens"
    " FROM call JOIN session ON session.attempt_id = call.attempt_id AND session.session_id = call.session_id"
    " WHERE call.attempt_id = :attempt_id AND call.state = 'ok' AND call.kind <> 'judge'"
    " AND (call.kind <> 'scorer' OR call.replica IS NOT NULL) ORDER BY session.ordinal, call.call_index, call.try_index"
)
_EXHAUSTED = text("SELECT count(*) FROM session WHERE attempt_id = :attempt_id AND is_exhausted")
_TRACE = text(
    "SELECT step, sum(num_prompt_tokens) AS prompt, sum(num_cached_tokens) AS cached, count(*) AS num_calls,"
    " count(num_cached_tokens) AS num_known FROM call"
    " WHERE attempt_id = :attempt_id AND state = 'ok' AND kind = 'main' AND step <= :last GROUP BY step ORDER BY step"
)


def arm_figures(connection: Connection, attempt_id: str) -> ArmFigures:
    """The figures of one attempt."""
    calls = [dict(row) for row in connection.execute(_CALLS, {"attempt_id": attempt_id}).mappings()]
    ends = connection.execute(_EXHAUSTED, {"attempt_id": attempt_id}).scalar_one()
    mains = [call for call in calls if call["kind"] == "main"]
    peaks: dict[str, Mapping[str, Any]] = {}
    for call in mains:
        best = peaks.get(call["task_id"])
        if best is None or call["num_prompt_tokens"] > best["num_prompt_tokens"]:
            peaks[call["task_id"]] = call
    return ArmFigures(
        num_sessions=len(peaks),
        num_calls=len(calls),
        num_exhausted=ends,
        prompt_tokens=_total(calls, "num_prompt_tokens"),
        cached_tokens=_total(calls, "num_cached_tokens"),
        main_prompt_tokens=_total(mains, "num_prompt_tokens") or 0,
        shared_tokens=_total(mains, "shared_prefix_tokens"),
        removed={fate: _total(mains, f"removed_{fate}_tokens") for fate in _FATES},
        accounted={(call["task_id"], call["step"]): _accounted(call) for call in mains},
        steps=_by_step(calls),
        peak_tokens=statistics.median(call["num_prompt_tokens"] for call in peaks.values()) if peaks else None,
        peak_parts=_peak_parts(list(peaks.values())),
    )


def _accounted(call: Mapping[str, Any]) -> int:
    return sum(call[column] or 0 for column in ("observation_tokens", *(f"removed_{fate}_tokens" for fate in _FATES)))


def _by_step(calls: Iterable[Mapping[str, Any]]) -> dict[Place, tuple[int, int | None]]:
    """(prompt, uncached) tokens by step; auxiliary calls are made after their step's main call."""
    sums: dict[Place, tuple[int, int | None]] = {}
    step = 1
    for call in calls:
        step = call["step"] if call["kind"] == "main" else step
        prompt, uncached = sums.get((call["task_id"], step), (0, 0))
        cached = call["num_cached_tokens"]
        uncached = None if uncached is None or cached is None else uncached + call["num_prompt_tokens"] - cached
        sums[call["task_id"], step] = (prompt + call["num_prompt_tokens"], uncached)
    return sums


def _history_tokens(reference: ArmFigures, others: Iterable[ArmFigures]) -> dict[Place, int]:
    """Observation tokens of the history by step.

    What base's prompt holds, which lacks nothing. Where base ended earlier, the least that another arm accounts for:
    placeholders in place of removed text are tokens too, so every arm accounts for a little more than there is.
    """
    least: dict[Place, int] = {}
    for figures in others:
        for place, tokens in figures.accounted.items():
            least[place] = min(tokens, least.get(place, tokens))
    return {**least, **reference.accounted}


def _peak_parts(peaks: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Mean over sessions of each part's share of the longest prompt; notes, summaries and the like are the rest."""
    shares = {
        part: statistics.fmean(call[f"{part}_tokens"] / call["num_prompt_tokens"] for call in peaks)
        for part in _PARTS
        if peaks and all(call[f"{part}_tokens"] is not None for call in peaks)
    }
    return {**shares, "other": 1 - sum(shares.values())} if len(shares) == len(_PARTS) else {}


def rerender_rows(
    connection: Connection, results: Sequence[CellResult]
) -> tuple[tuple[str, ...], tuple[RerenderRow, ...]]:
    """(key columns, rows) of the cells that have something to show."""
    laid_out = paper_table("rerender", results, allow_tainted=True)
    groups: dict[tuple[str, ...], list[tuple[CellResult, ArmFigures]]] = {}
    for row in laid_out.rows:
        attempt = row.result.attempt
        if attempt is not None:
            groups.setdefault(row.keys, []).append((row.result, arm_figures(connection, attempt.attempt_id)))
    rows = []
    for keys, members in groups.items():
        reference = next((own for result, own in members if result.cell.renderer == "base"), members[0][1])
        history = _history_tokens(reference, [own for _, own in members])
        rows += [RerenderRow(keys, result.arm, own, reference, history) for result, own in members]
    return laid_out.key_columns, tuple(rows)


def rerender_table(reader: Reader, name: str, *, sweep: str | None, allow_tainted: bool) -> TextTable:
    """The table `name` of RERENDER_TABLES.

    Raises:
        UnknownName: no such sweep. DataRefused: nothing to show, or no sweep chosen where several could be meant.
    """
    with reader.connection() as connection:
        chosen = sweep if sweep is not None else _only_sweep(connection)
        require_sweep(connection, chosen)
        results = cell_results(connection, sweep=chosen, allow_tainted=allow_tainted)
        footers = footer_lines(results, allow_tainted=allow_tainted)
        if name == "rerender_trace":
            table = _trace(connection, results, footers)
        else:
            table = _table(connection, results, footers)
    if not table.rows:
        raise DataRefused(f"sweep {chosen} has nothing to show yet: {' '.join(footers)}")
    return table


def _only_sweep(connection: Connection) -> str:
    names = [sweep.name for sweep in read_records(connection, Sweep, order_by=("created_utc_s",))]
    fitting = [name for name in names if name == "rerender"] or [name for name in names if name.startswith("rerender")]
    if len(fitting) != 1:
        raise DataRefused(f"choose a sweep with --sweep; there are: {', '.join(names) or 'none'}")
    return fitting[0]


def _table(connection: Connection, results: Sequence[CellResult], footers: tuple[str, ...]) -> TextTable:
    keys, rows = rerender_rows(connection, results)
    columns = [
        *keys,
        "arm",
        "runs",
        "exhausted",
        "calls",
        "prompt_k",
        "prompt_x_base",
        "uncached_k",
        "uncached_x_base",
        "hit_pct",
    ]
    columns += ["best_hit_pct", *(f"{fate}_pct" for fate in _FATES), "peak_tokens"]
    columns += [*(f"peak_{part}_pct" for part in _PARTS), "peak_other_pct"]
    return TextTable(tuple(columns), tuple(_values(row) for row in rows), footers)


def _values(row: RerenderRow) -> tuple[Any, ...]:
    own = row.own
    return (
        *(*row.keys, row.arm, own.num_sessions, own.num_exhausted, own.num_calls),
        *(_thousands(own.prompt_tokens), _rounded(row.change(0), 3)),
        *(_thousands(own.uncached_tokens), _rounded(row.change(1), 2)),
        _percent(_ratio(own.cached_tokens, own.prompt_tokens)),
        _percent(_ratio(own.shared_tokens, own.main_prompt_tokens)),
        *(_percent(row.fate_share(fate)) for fate in _FATES),
        _rounded(own.peak_tokens, 0),
        *(_percent(own.peak_parts.get(part)) for part in (*_PARTS, "other")),
    )


def _trace(connection: Connection, results: Sequence[CellResult], footers: tuple[str, ...]) -> TextTable:
    """One row per call, one column per cell: cached / prompt, pooled over the sessions that got so far."""
    shown = [(result, result.attempt.attempt_id) for result in results if result.attempt is not None]
    arms = [result.arm for result, _ in shown]
    names = [arm if arms.count(arm) == 1 else f"{arm} {result.cell.cell_key[:11]}" for (result, _), arm in
             zip(shown, arms, strict=True)]  # fmt: skip
    hits: dict[int, list[float | None]] = {}
    for column, (_, attempt_id) in enumerate(shown):
        for row in connection.execute(_TRACE, {"attempt_id": attempt_id, "last": _TRACE_CALLS}).mappings():
            cells = hits.setdefault(row["step"], [None] * len(shown))
            if row["num_calls"] == row["num_known"]:
                cells[column] = _percent(_ratio(int(row["cached"]), int(row["prompt"])))
    return TextTable(("call", *names), tuple((step, *cells) for step, cells in sorted(hits.items())), footers)


def _total(calls: Iterable[Mapping[str, Any]], column: str) -> int | None:
    """The sum, None when a call did not report it."""
    total = 0
    for call in calls:
        if call[column] is None:
            return None
        total += call[column]
    return total


def _ratio(value: float | None, whole: float | None) -> float | None:
    return None if value is None or not whole else value / whole


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)


def _thousands(value: float | None) -> float | None:
    return None if value is None else round(value / 1000, 1)


def _percent(share: float | None) -> float | None:
    return None if share is None else round(100 * share, 1)

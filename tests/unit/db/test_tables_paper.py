"""The concurrency table: layout, pairs, changes, missing and tainted cells, and the lines below it."""

from __future__ import annotations

from typing import Any

import pytest

from db.errors import DataRefused
from db.notes import HINDSIGHT_LINE
from db.output import write_paper_table
from db.queries import CellResult, Metrics
from db.records import Attempt, Cell, to_json
from db.tables_paper import (
    MEASURES,
    Figure,
    PaperTable,
    budget_text,
    change_of,
    figure_colour,
    figure_text,
    paper_table,
    reference_arm,
)

MEASURE = {measure.name: measure for measure in MEASURES}


def metrics(**changes: Any) -> Metrics:
    """A cell's metrics."""
    values: dict[str, Any] = {
        "num_sessions": 50,
        "resolved": None,
        "exhausted": 0,
        "timeouts": 0,
        "steps": 40,
        "main_steps": 40,
        "tokens": 1_000_000.0,
        "cost_cents": 20.0,
        "cache_hit": 0.9,
        "duration_s": 600.0,
        "kv_bytes": {"27b": 2**30},
        "main_peak_prompt_tokens": 16_384.0,
        "compactions": 0.0,
        "kv_peak": 1.0,
        "kv_peak_by_replica": {},
        "queue_s": 8.96,
        "preemptions": 12,
        "preemptions_by_replica": {},
        "time_weighted_in_flight": 47.5,
        "share_full_w": 0.97,
    }
    return Metrics(**{**values, **changes})


def result(arm: str = "base", w: int = 48, state: str = "complete", **changes: Any) -> CellResult:
    """One cell; `cell`, `attempt`, `measured` and `labels` change its parts."""
    cell_values: dict[str, Any] = {
        "cell_key": f"c1-{arm}-{w}-{changes.get('cell', {})}",
        "spec_json": "{}",
        "arm": arm,
        "num_workers": w,
        "renderer": arm,
        "router": "sticky",
        "model": "27b",
        "engine": "simulated",
        "executor": "virtual",
        "benchmark": "synthetic",
        "context_budget_tokens": None,
        "seed": 0,
        "replicate": 0,
        "state": state,
    }
    attempt_values: dict[str, Any] = {
        "attempt_id": "a.1",
        "cell_key": "c",
        "number": 1,
        "lease_epoch": 1,
        "owner": "o",
        "started_utc_s": 0.0,
        "num_tasks": 50,
        "engine_kind": "simulated",
        "policy_kind": "replay",
        "benchmark_source": "recorded",
        "signals_source": "recorded",
        "stale_coverage": 1.0,
        "generated": "opaque",
        "state": state,
    }
    is_shown = state == "complete" or (state == "tainted" and changes.get("is_shown", False))
    return CellResult(
        cell=Cell(**{**cell_values, **changes.get("cell", {})}),
        arm=arm,
        axis_labels={"arm": arm, "num_workers": w, **changes.get("labels", {})},
        attempt=Attempt(**{**attempt_values, **changes.get("attempt", {})}) if is_shown else None,
        metrics=metrics(**changes.get("measured", {})) if is_shown else None,
        is_tainted=state == "tainted",
    )


def table(*results: CellResult, allow_tainted: bool = False) -> PaperTable:
    """The table of these cells."""
    return paper_table("concurrency", results, allow_tainted=allow_tainted)


def text(made: PaperTable, capsys: pytest.CaptureFixture[str]) -> str:
    """The table as markdown."""
    write_paper_table(made, fmt="markdown", out=None)
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "base", "refold", "expected"),
    [
        ("tokens_k", 1000.0, 470.0, "470 (-53%)"),  # section 4.3: -53 to -70 %
        ("queue_s", 8.96, 0.02, "0.02 (-100%)"),  # w=48: from 8.96 to 0.02 s, 99.8 %
        ("queue_s", 42.2, 23.1, "23.10 (-45%)"),  # w=64
        ("kv_peak", 1.0, 0.92, "92% (-8 pp)"),  # 16 k, w=48: from 100 % to 92 %
        ("resolved", 20, 35, "35 (+15)"),  # w=32
        ("preemptions", 5, 5, "5 (0)"),
        ("compactions", 0.0, 0.0, "0.00"),
        ("compactions", 0.0, 1.5, "1.50 (from 0)"),
        ("in_flight", 47.5, 47.0, "47.0"),
        ("cost_cents", None, 3.0, "3.00"),
        ("cost_cents", 3.0, None, "-"),
    ],
)
def test_a_figure_carries_its_change(name: str, base: float | None, refold: float | None, expected: str) -> None:
    """Relative for amounts, percentage points for shares, absolute for counts; unknown is `-`, never 0."""
    measure = MEASURE[name]
    assert figure_text(measure, Figure(refold, change_of(measure, refold, base), base)) == expected


def test_colours_follow_what_is_better() -> None:
    """Fewer tokens and more solved tasks are green; up to four tasks are within noise (A.4) and grey."""
    assert figure_colour(MEASURE["tokens_k"], Figure(1, -50.0, 2)) == "green"
    assert figure_colour(MEASURE["tokens_k"], Figure(2, 50.0, 1)) == "red"
    assert figure_colour(MEASURE["cache_hit"], Figure(0.5, 3.0, 0.47)) == "green"
    assert figure_colour(MEASURE["resolved"], Figure(24, 4.0, 20)) == "grey50"
    assert figure_colour(MEASURE["resolved"], Figure(25, 5.0, 20)) == "green"
    assert figure_colour(MEASURE["tokens_k"], Figure(1, 0.0, 1)) == "grey50"


@pytest.mark.parametrize(
    ("arm", "arms", "reference"),
    [
        ("refold", ["base", "refold"], "base"),
        ("base", ["base", "refold"], None),
        ("compact+refold", ["base", "refold", "compact", "compact+refold"], "compact"),
        ("compact+refold", ["base", "compact+refold"], "base"),
    ],
)
def test_each_arm_has_its_reference(arm: str, arms: list[str], reference: str | None) -> None:
    """`x+refold` is compared with `x`, others with the first arm."""
    assert reference_arm(arm, arms) == reference


def test_pairs_stand_together_per_budget_and_w() -> None:
    """Grid order, each arm under the one it is compared with, as in Table 2."""
    small = {"context_budget_tokens": 16_384}
    made = table(
        result("base", 16),
        result("compact", 16, cell=small),
        result("base", 32),
        result("refold", 16),
        result("compact+refold", 16, cell=small),
        result("refold", 32),
    )
    assert [(*row.keys, row.arm) for row in made.rows] == [
        ("27b", "full", "16", "base"),
        ("27b", "full", "16", "refold"),
        ("27b", "16k", "16", "compact"),
        ("27b", "16k", "16", "compact+refold"),
        ("27b", "full", "32", "base"),
        ("27b", "full", "32", "refold"),
    ]
    assert made.key_columns == ("model", "budget", "w")


def test_budgets_are_written_as_in_the_paper() -> None:
    """A k is 1,024: 16,384 tokens are the paper's 16 k."""
    assert [budget_text(tokens) for tokens in (None, 16_384, 65_536, 10_000)] == ["full", "16k", "64k", "10,000"]


def test_what_a_sweep_varies_becomes_a_column() -> None:
    """stale_sensitivity: the coverage axis is a key column, and pairs form within each coverage."""
    made = table(
        *(
            result(arm, 48, labels={"policy.stale_coverage": label}, cell={"cell_key": f"{arm}{label}"})
            for label in ("0.0", "0.5")
            for arm in ("base", "refold")
        )
    )
    assert made.key_columns == ("model", "budget", "w", "policy.stale_coverage")
    assert [(row.keys[-1], row.arm, row.reference) for row in made.rows] == [
        ("0.0", "base", None),
        ("0.0", "refold", "base"),
        ("0.5", "base", None),
        ("0.5", "refold", "base"),
    ]


def test_cells_that_look_alike_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """Two cells with the same visible key must not silently become one row."""
    with pytest.raises(DataRefused, match="c1 and c2 share model, budget, w and arm 'base'"):
        table(result(cell={"cell_key": "c1"}), result(cell={"cell_key": "c2"}))


def test_missing_cells_keep_their_row_and_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    """A failed and a planned cell are shown as missing, with their number and names."""
    made = table(result("base"), result("refold", state="failed"), result("base", 64, state="planned"))
    written = text(made, capsys)
    assert "| 27b | full | 48 | refold | missing (failed) |" in written
    assert "Missing: 2 of 3 cells (failed 1, planned 1): refold w=48, base w=64." in written


def test_tainted_cells_are_left_out_or_marked(capsys: pytest.CaptureFixture[str]) -> None:
    """By default no figure of a tainted cell is shown; allowed ones carry a star and their reasons."""
    written = text(table(result("base", state="tainted")), capsys)
    assert "| 27b | full | 48 | base | tainted, left out |" in written
    assert "Tainted: 1 cell left out; --allow-tainted shows them, marked." in written
    reasons = {"taint_reasons_json": to_json(["client lag 80 ms > 50 ms"])}
    shown = result("base", state="tainted", is_shown=True, attempt=reasons)
    written = text(table(shown, allow_tainted=True), capsys)
    assert "| base* | " in written
    assert "* base w=48: client lag 80 ms > 50 ms" in written


def test_the_hindsight_line_stands_below_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    """When any shown row used labels from the recorded future, the table says that its savings depend on them."""
    with_hindsight = table(result("base"), result("refold", attempt={"signals_source": "hindsight"}))
    assert HINDSIGHT_LINE in text(with_hindsight, capsys)
    assert "conditional on the stale labels" in HINDSIGHT_LINE
    assert HINDSIGHT_LINE not in text(table(result("base"), result("refold")), capsys)


def test_the_conditions_stand_below_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    """Simulated, replayed, recorded, stale source and coverage, generated text."""
    written = text(table(result("base", attempt={"stale_coverage": 0.7})), capsys)
    assert "Engine: simulated replicas" in written
    assert "Replies: replayed, pinned to each task's run; generated text in the cache: opaque." in written
    assert "Tasks: recorded runs." in written
    assert "Stale labels: recorded, coverage 0.7." in written


def test_absent_and_shortened_sessions_are_said(capsys: pytest.CaptureFixture[str]) -> None:
    """48 of 50 sessions, or 13 timed-out ones, would otherwise look like savings."""
    written = text(table(result("base", measured={"num_sessions": 48, "timeouts": 13})), capsys)
    assert "Sessions missing: base w=48 has 48 of 50." in written
    assert "Sessions cut short by a silent stream: base w=48 13 of 48;" in written
    assert "Resolve: not graded." in written
    written = text(table(result("base", measured={"resolved": 20})), capsys)
    assert "Sessions" not in written
    assert "not graded" not in written


def test_mixed_conditions_and_versions_are_called_mixed(capsys: pytest.CaptureFixture[str]) -> None:
    """A table over a simulated and a live cell, or over two vLLM versions, says so with counts."""
    written = text(
        table(
            result("base", attempt={"versions_json": to_json({"vllm": "0.32.0", "ray": "2.60.0"})}),
            result(
                "refold",
                attempt={"engine_kind": "vllm_server", "versions_json": to_json({"vllm": "0.33.0", "ray": "2.60.0"})},
            ),
        ),
        capsys,
    )
    assert "Engine: MIXED, " in written
    assert "live: a real vLLM server (1 cell)" in written
    assert "Versions of vllm: MIXED, 0.32.0 (1 cell); 0.33.0 (1 cell)." in written
    assert "ray" not in written


def test_csv_holds_nothing_but_plain_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    """No footers, no brackets; unknown is empty; the change has its own column."""
    write_paper_table(table(result("base"), result("refold", measured={"tokens": 470_000.0})), fmt="csv", out=None)
    header, base, refold = capsys.readouterr().out.splitlines()
    first, second = (dict(zip(header.split(","), line.split(","), strict=True)) for line in (base, refold))
    assert (first["tokens_k"], first["tokens_k_change_percent"], first["resolved"]) == ("1000.0", "", "")
    assert (second["tokens_k"], second["tokens_k_change_percent"]) == ("470.0", "-53.0")
    assert (second["compared_with"], second["num_workers"], second["main_steps"]) == ("base", "48", "40")


def test_a_terminal_table_has_title_rows_and_footers(capsys: pytest.CaptureFixture[str]) -> None:
    """Written to a pipe it has no escape codes and no cut columns."""
    write_paper_table(table(result("base"), result("refold")), fmt="table", out=None)
    written = capsys.readouterr().out
    assert "\x1b" not in written
    assert "In flight" in written
    assert "…" not in written
    assert written.count("27b") == 2

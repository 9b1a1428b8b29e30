"""The line on stale labels tells a comparison (one arm asks, one does not) from a mixture."""

from __future__ import annotations

from db.notes import _stale_line
from db.records import Attempt


def attempt(source: str | None, coverage: float | None) -> Attempt:
    """An attempt with that source."""
    return Attempt(
        attempt_id="a.1",
        cell_key="a",
        number=1,
        lease_epoch=1,
        owner="me",
        started_utc_s=0.0,
        num_tasks=1,
        engine_kind="simulated",
        policy_kind="replay",
        benchmark_source="synthetic",
        signals_source=source,
        stale_coverage=coverage,
    )


def test_a_control_arm_without_labels_is_no_mixture() -> None:
    """base beside refold: the source is said once, and that one cell has none."""
    line = _stale_line([attempt("none", 0.6), attempt("hindsight", 0.6)])
    assert line == "Stale labels: hindsight, coverage 0.6; none in 1 cell."


def test_two_coverages_are_a_mixture() -> None:
    """Cells that differ in coverage must not be read as one experiment."""
    line = _stale_line([attempt("hindsight", 0.2), attempt("hindsight", 0.6)])
    assert line.startswith("Stale labels: MIXED, ")


def test_no_labels_at_all() -> None:
    """A table of arms that ask for nothing."""
    assert _stale_line([attempt("none", None)]) == "Stale labels: none."

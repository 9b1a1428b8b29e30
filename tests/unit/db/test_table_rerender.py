"""The re-rendering table's arithmetic, by hand: paired steps, fates over the history, parts of the peak."""

from __future__ import annotations

from typing import Any

import pytest

from db.table_rerender import ArmFigures, RerenderRow, _by_step, _history_tokens, _peak_parts


def figures(**changes: Any) -> ArmFigures:
    """An arm of one task with nothing in it but `changes`."""
    values: dict[str, Any] = {
        "num_sessions": 1,
        "num_calls": 0,
        "num_exhausted": 0,
        "prompt_tokens": 0,
        "cached_tokens": 0,
        "main_prompt_tokens": 0,
        "shared_tokens": 0,
        "removed": {"recoverable": 0, "reproducible": 0, "irrecoverable": 0},
        "accounted": {},
        "steps": {},
        "peak_tokens": None,
        "peak_parts": {},
        **changes,
    }
    return ArmFigures(**values)


def test_changes_are_over_the_steps_both_arms_made() -> None:
    """Base ends at step 2 (100 + 200 tokens, 150 uncached), the arm goes on: 100 + 140 of its 540 tokens count."""
    base = figures(steps={("t", 1): (100, 100), ("t", 2): (200, 50)})
    arm = figures(steps={("t", 1): (100, 100), ("t", 2): (140, 80), ("t", 3): (300, 200)})
    row = RerenderRow((), "arm", arm, base, {})
    assert row.change(0) == pytest.approx(240 / 300)
    assert row.change(1) == pytest.approx(180 / 150)


def test_an_unreported_figure_is_unknown_not_zero() -> None:
    """One call without cached tokens makes the uncached change unknown; without common steps nothing is compared."""
    base = figures(steps={("t", 1): (100, None)})
    row = RerenderRow((), "arm", figures(steps={("t", 1): (50, 10)}), base, {})
    assert (row.change(0), row.change(1)) == (0.5, None)
    assert RerenderRow((), "arm", figures(steps={("u", 1): (50, 10)}), base, {}).change(0) is None


def test_fates_are_shares_of_the_history_s_observation_tokens() -> None:
    """History 400 + 600 tokens by base; the arm lacks 250 recoverable and 100 irrecoverable of them: 25 % and 10 %."""
    removed = {"recoverable": 250, "reproducible": 0, "irrecoverable": 100}
    arm = figures(removed=removed, accounted={("t", 1): 410, ("t", 2): 620})
    base = figures(accounted={("t", 1): 400, ("t", 2): 600})
    row = RerenderRow((), "arm", arm, base, _history_tokens(base, [arm, base]))
    assert [row.fate_share(fate) for fate in removed] == [0.25, 0.0, 0.1]


def test_where_base_ended_the_least_that_an_arm_accounts_for_counts() -> None:
    """Placeholders only add: of 620 and 605 accounted tokens at step 2 the smaller is nearer to the history's."""
    base = figures(accounted={("t", 1): 400})
    arms = [figures(accounted={("t", 1): 390, ("t", 2): 620}), figures(accounted={("t", 2): 605})]
    assert _history_tokens(base, arms) == {("t", 1): 400, ("t", 2): 605}


def test_auxiliary_calls_belong_to_the_main_call_before_them() -> None:
    """Step 1: a main call of 100 (60 cached) and a summary of 80 (0 cached), then step 2 with 50 (50 cached)."""
    calls = [
        {"task_id": "t", "kind": kind, "step": step, "num_prompt_tokens": prompt, "num_cached_tokens": cached}
        for kind, step, prompt, cached in (("main", 1, 100, 60), ("summary", None, 80, 0), ("main", 2, 50, 50))
    ]
    assert _by_step(calls) == {("t", 1): (180, 120), ("t", 2): (50, 0)}


def test_peak_parts_are_means_of_shares() -> None:
    """Peaks of 100 (10, 40, 50) and 200 (40, 60, 80, 20 in notes): 15, 35, 45 and 5 %."""
    peaks = [
        {"num_prompt_tokens": 100, "system_task_tokens": 10, "agent_tokens": 40, "observation_tokens": 50},
        {"num_prompt_tokens": 200, "system_task_tokens": 40, "agent_tokens": 60, "observation_tokens": 80},
    ]
    assert _peak_parts(peaks) == pytest.approx({"system_task": 0.15, "agent": 0.35, "observation": 0.45, "other": 0.05})
    assert _peak_parts([]) == {}

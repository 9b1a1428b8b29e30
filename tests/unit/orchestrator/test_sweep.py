"""Sweeps: products, zipped axes, explicit cells, arms, and what an override on the command line does to them."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.errors import SweepError
from orchestrator.overrides import Override
from orchestrator.sweep import Expansion, expand
from orchestrator.sweep_file import SweepReader

GROUPS = ("renderer", "router")


def make(key: str, value: Any) -> Override:
    """An override without looking at conf/."""
    return Override(key, value, is_group=key in GROUPS)


def parse(text: str) -> Override:
    """`key=value`, integers as integers."""
    key, _, value = text.partition("=")
    return make(key, int(value) if value.isdigit() else value)


def run(content: dict[str, Any], *command: Override) -> Expansion:
    """Expand a sweep file's content under a command line."""
    return expand(SweepReader(parse, make).read("s", content), command, make)


def cells(expansion: Expansion) -> list[dict[str, Any]]:
    """Key -> value of every combination."""
    return [{o.key: o.value for o in c.overrides} for c in expansion.combinations]


TABLE_2 = {
    "base": ["benchmark.num_tasks=50"],
    "arms": {"base": ["renderer=base"], "refold": ["renderer=refold"]},
    "axes": {"arm": ["base", "refold"], "num_workers": [8, 16]},
    "cells": [{"arm": ["base", "refold"], "num_workers": 64, "benchmark.num_tasks": 71}],
}


def test_product_then_explicit_cells() -> None:
    """2 arms x 2 w over 50 tasks, then w = 64 over 71 tasks for both arms: 6 cells in grid order."""
    expansion = run(TABLE_2)
    rows = [(c["renderer"], c["num_workers"], c["benchmark.num_tasks"]) for c in cells(expansion)]
    assert rows == [
        ("base", 8, 50), ("base", 16, 50), ("refold", 8, 50), ("refold", 16, 50), ("base", 64, 71), ("refold", 64, 71),
    ]  # fmt: skip
    labels = {"arm": "refold", "num_workers": "8", "benchmark.num_tasks": "50"}
    assert dict(expansion.combinations[2].labels) == labels
    assert expansion.combinations[2].title == "arm=refold num_workers=8 benchmark.num_tasks=50"


def test_override_replaces_an_axis_and_says_so() -> None:
    """num_workers=[16,32] gives these two and drops the explicit w = 64 cells; a note says what was replaced."""
    expansion = run(TABLE_2, make("num_workers", [16, 32]))
    assert [c["num_workers"] for c in cells(expansion)] == [16, 32, 16, 32]
    assert expansion.notes == ("num_workers=[16,32] replaces the values of the sweep's axis num_workers",)


def test_a_value_of_explicit_cells_selects_them() -> None:
    """num_workers=64 keeps the explicit cells with their 71 tasks, not a product of 64 with 50."""
    rows = [(c["num_workers"], c["benchmark.num_tasks"]) for c in cells(run(TABLE_2, make("num_workers", 64)))]
    assert rows == [(64, 71), (64, 71)]


def test_arms_are_selected_by_name() -> None:
    """arm=refold keeps refold in the product and in the explicit cells."""
    assert {c["renderer"] for c in cells(run(TABLE_2, make("arm", "refold")))} == {"refold"}
    with pytest.raises(SweepError, match=r"unknown arm 'refld'; did you mean 'refold'\? there are: base, refold"):
        run(TABLE_2, make("arm", "refld"))


def test_command_line_replaces_base_and_reaches_explicit_cells() -> None:
    """benchmark.num_tasks=100 holds for every cell, also where the sweep file names 71."""
    expansion = run(TABLE_2, make("benchmark.num_tasks", 100))
    assert {c["benchmark.num_tasks"] for c in cells(expansion)} == {100}
    assert "benchmark.num_tasks=100 replaces the sweep's own setting" in expansion.notes


def test_override_that_an_arm_contradicts_is_refused() -> None:
    """renderer=mask would lose against the arms: one line says how to choose."""
    with pytest.raises(
        SweepError, match=r"renderer=mask: the sweep's axis 'arm' sets renderer itself; choose with arm="
    ):
        run(TABLE_2, make("renderer", "mask"))


def test_zipped_axes_go_together() -> None:
    """Two zipped axes of two values give two cells; choosing one value takes its whole row."""
    content = {"zip": [{"num_workers": [8, 64], "benchmark.num_tasks": [50, 71]}], "axes": {"seed": [0, 1]}}
    rows = [(c["seed"], c["num_workers"], c["benchmark.num_tasks"]) for c in cells(run(content))]
    assert rows == [(0, 8, 50), (0, 64, 71), (1, 8, 50), (1, 64, 71)]
    chosen = cells(run(content, make("num_workers", 64), make("seed", 0)))
    assert [(c["num_workers"], c["benchmark.num_tasks"]) for c in chosen] == [(64, 71)]
    with pytest.raises(SweepError, match="unknown num_workers '32'"):
        run(content, make("num_workers", 32))


def test_zipped_axes_of_different_lengths_are_refused() -> None:
    """Zipping 2 with 3 values has no meaning."""
    with pytest.raises(SweepError, match=r"zipped axes need equally many values \(a: 2, b: 3\)"):
        run({"zip": [{"a": [1, 2], "b": [1, 2, 3]}]})


def test_inline_arms_and_group_axes() -> None:
    """An axis may map names to lists of overrides; an axis over a group chooses its options."""
    content = {"axes": {"arm": {"compact+refold": ["renderer=compact", "k=5"]}, "router": ["sticky", "round_robin"]}}
    assert cells(run(content)) == [
        {"renderer": "compact", "k": 5, "router": "sticky"},
        {"renderer": "compact", "k": 5, "router": "round_robin"},
    ]


def test_blocks_alone_and_their_own_axes() -> None:
    """A sweep of explicit cells only: base once, refold for each coverage; a list narrows only where the key is."""
    content = {
        "arms": TABLE_2["arms"],
        "cells": [{"arm": "base"}, {"arm": "refold", "policy.coverage": [0.5, 1.0]}],
    }
    assert [c.get("policy.coverage") for c in cells(run(content))] == [None, 0.5, 1.0]
    assert [c.get("policy.coverage") for c in cells(run(content, make("policy.coverage", [0.2])))] == [None, 0.2]


BUDGETS = {
    "cells": [
        {"context_budget_tokens": [16, 24], "num_workers": 8},
        {"context_budget_tokens": 16, "num_workers": 48},
    ]
}


def test_blocks_are_selected_by_values_they_have() -> None:
    """num_workers=8 keeps the cells at 8; 2, which no cell has, replaces it in all, and equal cells become one."""
    budgets = [(c["context_budget_tokens"], c["num_workers"]) for c in cells(run(BUDGETS, make("num_workers", 8)))]
    assert budgets == [(16, 8), (24, 8)]
    budgets = [(c["context_budget_tokens"], c["num_workers"]) for c in cells(run(BUDGETS, make("num_workers", 2)))]
    assert budgets == [(16, 2), (24, 2)]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"axis": {"seed": [1]}}, r"unknown section 'axis'; did you mean 'axes'"),
        ({}, "neither axes nor cells"),
        ({"axes": {"seed": []}}, "axis seed has no values"),
        ({"axes": {"arm": ["base"]}}, "unknown arm 'base'"),
        ({"arms": {"base": "renderer=base"}, "axes": {"arm": ["base"]}}, "must be a list of overrides"),
        ([1], "expected a mapping"),
    ],
)
def test_mistakes_in_a_sweep_file(content: Any, message: str) -> None:
    """Each mistake is one line that names the sweep and what is wrong."""
    with pytest.raises(SweepError, match=message):
        run(content)

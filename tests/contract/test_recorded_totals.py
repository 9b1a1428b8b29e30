"""Every renderer's totals over recorded runs: a golden table, with figures measured by other code as bounds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from scripts.update_totals import GOLDEN, NUM_TASKS, RENDERERS, recorded_runs, stub_shares, totals_of

_REMOVED = ("removed_recoverable", "removed_reproducible", "removed_irrecoverable")
# Renderers whose cuts can be taken back by the agent, and those that remove nothing from what the agent was shown.
_REVERSIBLE = frozenset({"recall", "refold"})
_NOTHING_REMOVED = frozenset({"base", "memory"})


@pytest.fixture(scope="module")
def golden() -> dict[str, Any]:
    """The golden file."""
    content: dict[str, Any] = json.loads(GOLDEN.read_text(encoding="utf-8"))
    return content


def test_the_table_has_every_renderer(golden: dict[str, Any]) -> None:
    """One entry per conf/renderer/*.yaml, made from as many runs as the script says."""
    assert sorted(golden["renderers"]) == sorted(RENDERERS)
    assert golden["num_tasks"] == NUM_TASKS


@pytest.mark.parametrize("name", RENDERERS)
def test_totals_are_the_golden_ones(name: str, golden: dict[str, Any], shared_dir: Path) -> None:
    """Equal to the last token; after a wanted change bump the REVISION and run `python -m scripts.update_totals`."""
    assert totals_of(name) == golden["renderers"][name]


@pytest.mark.parametrize("name", RENDERERS)
def test_a_table_entry_adds_up(name: str, golden: dict[str, Any]) -> None:
    """Cached is part of prompt, parts are at most the whole, and what is removed has the fate its renderer allows."""
    entry = golden["renderers"][name]
    assert 0 < entry["uncached_tokens"] < entry["prompt_tokens"]
    assert entry["shared_prefix_tokens"] < entry["prompt_tokens"]
    parts = entry["system_task_tokens"] + entry["agent_tokens"] + entry["observation_tokens"]
    assert parts <= entry["prompt_tokens"]
    removed = [entry[fate] for fate in _REMOVED]
    if name in _REVERSIBLE:
        assert removed[0] > 0
        assert removed[1:] == [0, 0]
    elif name in _NOTHING_REMOVED:
        assert removed == [0, 0, 0]
    else:
        assert removed[0] == 0
        assert sum(removed) > 0


def test_every_arm_makes_the_recorded_calls(golden: dict[str, Any]) -> None:
    """Open loop: as many main calls as base in every arm, but where a prompt over the budget ends a session."""
    base = golden["renderers"]["base"]
    for entry in golden["renderers"].values():
        if entry["exhausted"] == 0:
            assert entry["main_calls"] == base["main_calls"]
        else:
            assert entry["main_calls"] < base["main_calls"]


def test_clip_and_mask_are_as_measured_with_other_code(golden: dict[str, Any]) -> None:
    """spec/trajectories, 68 runs, characters: clip 0.757, mask 0.576 of base's cumulative prompt.

    On 6 of the runs and in tokens with role frames the same within 15 %.
    """
    base = golden["renderers"]["base"]["prompt_tokens"]
    for name, ratio in {"clip": 0.757, "mask": 0.576}.items():
        assert golden["renderers"][name]["prompt_tokens"] / base == pytest.approx(ratio, rel=0.15)


def test_base_counts_what_the_provider_counted(golden: dict[str, Any], shared_dir: Path) -> None:
    """The recorded usage of the same calls is the provider's own count; our counter is within 15 % of it."""
    runs = recorded_runs()[:NUM_TASKS]
    counts = [step.num_prompt_tokens for run in runs for step in run.steps]
    known = sum(count for count in counts if count is not None)
    share_known = sum(count is not None for count in counts) / len(counts)
    assert share_known > 0.8
    estimate = golden["renderers"]["base"]["prompt_tokens"] * share_known
    assert estimate == pytest.approx(known, rel=0.15)


def test_stubs_stay_under_what_is_repeated(golden: dict[str, Any], shared_dir: Path) -> None:
    """26.2 % of the shipped observation characters repeat in line runs, half of them in reads of one file (the spec).

    Whole outputs are at most those that equal an earlier one (counted here without our code), reads and line runs at
    most the 13 % of same-path reads, all together under 26.2 %; and stubs are there at all.
    """
    runs = recorded_runs()
    shares = stub_shares(runs)
    assert shares == golden["stub_shares_percent"]
    num_chars = num_repeated = 0
    for run in runs:
        seen: set[str] = set()
        for observation in (observation for step in run.steps for observation in step.observations):
            num_chars += len(observation.body)
            num_repeated += len(observation.body) if observation.body in seen else 0
            seen.add(observation.body)
    assert 0 < shares["whole_output"] <= 100 * num_repeated / num_chars
    assert 0 < shares["whole_read"] + shares["line_run"] <= 13.0
    assert sum(shares.values()) <= 26.2

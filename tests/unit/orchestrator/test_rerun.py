"""Decisions from rows: what a plain restart and each rerun word do to a cell in each state."""

from __future__ import annotations

import json
from typing import Any

import pytest

from db.records import Attempt, Cell
from orchestrator.errors import ConfigError
from orchestrator.rerun import Decision, decide, older_results, read_modes, version_changes

NOW = 1000.0


def cell(state: str, **values: Any) -> Cell:
    """A cell's row."""
    base: dict[str, Any] = {
        "cell_key": "v1-a",
        "spec_json": "{}",
        "arm": "base",
        "num_workers": 1,
        "renderer": "base",
        "router": "sticky",
        "model": "m",
        "engine": "simulated",
        "executor": "virtual",
        "benchmark": "synthetic",
        "context_budget_tokens": None,
        "seed": 0,
        "replicate": 1,
        "state": state,
    }
    return Cell(**(base | values))


def attempt(state: str, number: int = 1, **values: Any) -> Attempt:
    """An attempt's row."""
    base: dict[str, Any] = {
        "attempt_id": f"v1-a.{number}",
        "cell_key": "v1-a",
        "number": number,
        "lease_epoch": number,
        "owner": "here:1",
        "started_utc_s": 0.0,
        "num_tasks": 1,
        "engine_kind": "simulated",
        "policy_kind": "replay",
        "benchmark_source": "synthetic",
        "state": state,
    }
    return Attempt(**(base | values))


def decision(row: Cell, *attempts: Attempt, modes: str = "", versions: dict[str, str] | None = None) -> Decision:
    """The decision on one cell."""
    found = frozenset(modes.split(",")) - {""}
    (made,) = decide([row], {"v1-a": attempts}, found, now_utc_s=NOW, versions=versions or {})
    return made


# The table of architecture section 5: state -> what a plain restart does.
@pytest.mark.parametrize(
    ("state", "action"),
    [("planned", "RUN"), ("complete", "REUSE"), ("tainted", "LEAVE"), ("failed", "LEAVE"), ("lost", "LEAVE")],
)
def test_plain_restart(state: str, action: str) -> None:
    """Only what has no terminal row runs; the others say how they can be run again."""
    made = decision(cell(state), attempt("complete" if state == "planned" else state))
    assert made.action.value == action
    if action == "LEAVE":
        assert made.reason.endswith(f"rerun={state} runs it again")


@pytest.mark.parametrize("state", ["complete", "tainted", "failed", "lost"])
@pytest.mark.parametrize("mode", ["failed", "tainted", "lost", "all"])
def test_rerun_words(state: str, mode: str) -> None:
    """A word runs cells in the state of its name; `all` runs every one. The claim is allowed from that state only."""
    made = decision(cell(state), attempt(state, exit_class="Bug" if state == "failed" else None), modes=mode)
    assert (made.action.value == "RERUN") is (mode in (state, "all"))
    assert made.from_states == ((state,) if mode in (state, "all") else ())


def test_running_cells_wait_until_their_lease_is_over() -> None:
    """A live lease is waited for, an expired one is taken, and both name the owner."""
    waiting = decision(cell("running", lease_owner="there:9", lease_until_utc_s=NOW + 30), attempt("running"))
    assert (waiting.action.value, waiting.reason) == ("WAIT", "runs under there:9, whose lease has 30 s left")
    taken = decision(cell("running", lease_owner="there:9", lease_until_utc_s=NOW - 1), attempt("running"))
    assert (taken.action.value, taken.is_pending) == ("TAKE", True)
    assert taken.reason == "there:9 stopped renewing its lease; attempt 1 is lost"


def test_exit_class_selects_by_the_latest_attempt() -> None:
    """rerun=ReplicaLost takes the cell whose newest attempt ended so, not one that once did."""
    first, second = attempt("failed", 1, exit_class="ReplicaLost", message="x"), attempt("failed", 2, exit_class="Bug")
    chosen = decision(cell("failed"), first, modes="ReplicaLost")
    assert chosen.reason == "rerun=ReplicaLost: attempt 1 is failed (ReplicaLost: x)"
    assert decision(cell("failed"), first, second, modes="ReplicaLost").action.value == "LEAVE"
    assert decision(cell("failed"), first, second, modes="failed").last_number == 2


def test_outdated_compares_deciding_packages() -> None:
    """Another vllm makes a result outdated; another numpy, or a package that was not there then, does not."""
    old = attempt("complete", versions_json='{"vllm":"0.31.0","numpy":"1.0"}')
    now = {"vllm": "0.32.0", "numpy": "2.0", "swebench": "5.0"}
    made = decision(cell("complete"), old, modes="outdated", versions=now)
    assert (made.action.value, made.reason) == ("RERUN", "rerun=outdated: vllm 0.31.0 -> 0.32.0")
    assert decision(cell("complete"), old, modes="outdated", versions={"vllm": "0.31.0"}).action.value == "REUSE"
    assert version_changes(old, {}) == ("vllm 0.31.0 -> not installed",)


def test_reasons_of_interrupted_and_tainted_cells() -> None:
    """A planned cell with an attempt was interrupted; a tainted one shows its first reason and how many there are."""
    stopped = attempt("failed", exit_class="Cancelled")
    assert decision(cell("planned"), stopped).reason == "attempt 1 was interrupted (Cancelled)"
    tainted = attempt("tainted", taint_reasons_json='["late","warm"]')
    made = decision(cell("tainted"), tainted)
    assert made.reason == "attempt 1 is tainted: late and 1 more; rerun=tainted runs it again"


def test_older_revisions_are_said() -> None:
    """A cell whose renderer got a new REVISION is a new cell; the plan says that an older result exists."""

    def spec(revision: int, w: int) -> dict[str, Any]:
        components = {"renderer": {"type": "refold.Refold", "settings": {}, "revision": revision}}
        return {"version": 1, "settings": {"num_workers": w}, "components": components, "tasks": []}

    old = cell("complete", cell_key="v1-old", spec_json=json.dumps(spec(1, 8)))
    older = older_results({"v1-new": spec(2, 8), "v1-other": spec(2, 16)}, [old])
    assert older == {"v1-new": "REVISION of renderer 1 -> 2"}
    (made,) = decide([cell("planned", cell_key="v1-new")], {}, frozenset(), now_utc_s=NOW, versions={}, older=older)
    assert made.reason == "not run yet; its older result is outdated: REVISION of renderer 1 -> 2"


def test_words_are_checked() -> None:
    """A mode, an exit class, one seen in the database, a list; anything else lists what exists."""
    assert read_modes(None) == frozenset()
    assert read_modes(["failed", "EnvironmentDied"]) == {"failed", "EnvironmentDied"}
    assert read_modes("OddEnd", ["OddEnd"]) == {"OddEnd"}
    with pytest.raises(ConfigError, match=r"rerun=faild: unknown rerun 'faild'; did you mean 'failed'\?.*ReplicaLost"):
        read_modes("faild")
    with pytest.raises(ConfigError, match="Submitted"):
        read_modes("Submitted")  # a session's own result invalidates nothing
    with pytest.raises(ConfigError, match="unknown rerun 'SessionEnd'"):
        read_modes("SessionEnd")  # the tree's root is no ending

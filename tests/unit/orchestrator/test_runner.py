"""One command from plan to exit code, over a scripted executor."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from db.store import Store
from orchestrator.errors import ConfigError
from orchestrator.plan import SweepPlan
from orchestrator.registration import register
from orchestrator.runner import db_location, run_plan
from orchestrator.stop import StopFlag

Make = Callable[..., Any]


@pytest.fixture
def command(
    store: Store, tmp_path: Path, fake_executor: Make, sweep_plan: Make
) -> Callable[..., tuple[int, list[str], Any]]:
    """Run a plan of the given cells; returns exit code, lines and the executor."""

    def run(*cells: Any, script: dict[str, Any] | None = None, **shared: Any) -> tuple[int, list[str], Any]:
        executor = fake_executor(script)
        plan = sweep_plan(*cells, **({"db": {"url": str(tmp_path / "results.db")}} | shared))
        lines: list[str] = []
        code = run_plan(plan, write=lines.append, stop=StopFlag(), make_executor=lambda node: executor)
        return code, lines, executor

    return run


def test_exit_code_0_only_when_all_cells_are_complete(command: Make, planned_cell: Make) -> None:
    """Complete: 0, again without running anything: 0. One failed: 1, and again 1 without running it."""
    assert command(planned_cell("a"))[0] == 0
    code, lines, executor = command(planned_cell("a"))
    assert (code, executor.submitted) == (0, [])
    assert "nothing to run: every cell is complete" in lines
    code, lines, executor = command(planned_cell("a"), planned_cell("b"), script={"cell=b": "Bug"})
    assert (code, executor.submitted, executor.is_open) == (1, ["cell=b"], False)
    assert lines[-2:] == [
        "run the failed cells again: the same command with rerun=failed",
        "see the results: python -m db table s",
    ]
    code, lines, executor = command(planned_cell("a"), planned_cell("b"))
    assert (code, executor.submitted) == (1, [])
    assert "nothing to run; left as they are: 1 cell" in lines


def test_rerun_prints_its_reasons_first(command: Make, planned_cell: Make) -> None:
    """rerun=failed says RERUN with the reason and makes a new attempt; a second time there is nothing, exit code 0."""
    command(planned_cell("a"), script={"cell=a": "ReplicaLost"})
    code, lines, executor = command(planned_cell("a"), rerun="failed")
    assert code == 0
    assert lines[1] == (
        "RERUN  cell=a  v1-a  2 tasks, 1 steps; rerun=failed: attempt 1 is failed (ReplicaLost: told so)"
    )
    assert executor.submitted == ["cell=a"]
    code, lines, executor = command(planned_cell("a"), rerun="failed")
    assert (code, executor.submitted) == (0, [])
    assert "rerun=failed: no cell of this sweep matches; nothing to run" in lines


def test_wrong_rerun_word_changes_nothing(command: Make, planned_cell: Make, store: Store) -> None:
    """A misspelt word is refused before the grid is written."""
    with pytest.raises(ConfigError, match="unknown rerun 'faild'"):
        command(planned_cell("a"), rerun="faild")
    assert store.cells() == ()


def test_dry_run_creates_no_database(command: Make, planned_cell: Make, tmp_path: Path) -> None:
    """The plan is printed, exit code 0, and not even the file appears; an existing one tells what would be reused."""
    path = tmp_path / "other.db"
    code, lines, executor = command(planned_cell("a"), dry_run=True, db={"url": str(path)})
    assert (code, path.exists(), executor.submitted) == (0, False, [])
    assert lines[0] == "sweep s: a test; 1 cell: 1 RUN"
    command(planned_cell("a"))
    _, lines, _ = command(planned_cell("a"), dry_run=True)
    assert "REUSE  cell=a  v1-a  2 tasks, 1 steps; attempt 1 is complete" in lines


def test_whole_grid_is_there_before_the_first_cell_runs(command: Make, planned_cell: Make, store: Store) -> None:
    """When the first attempt starts, every cell of the grid is a row already."""
    seen: list[int] = []

    def look(plan: Any) -> Any:
        seen.append(len(store.cells()))
        raise RuntimeError

    command(planned_cell("a"), planned_cell("b"), planned_cell("c"), script={"cell=a": look})
    assert seen == [3]


def test_database_stays_valid_sqlite(command: Make, planned_cell: Make, tmp_path: Path) -> None:
    """After failures and reruns the file passes SQLite's own check and no foreign key dangles."""
    command(planned_cell("a"), planned_cell("b"), script={"cell=a": "Bug"})
    command(planned_cell("a"), planned_cell("b"), rerun="all")
    with sqlite3.connect(tmp_path / "results.db") as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
        assert connection.execute("SELECT count(*) FROM attempt").fetchall() == [(4,)]
    connection.close()


def test_paths_become_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers run elsewhere: a relative path is made absolute, a URL is left alone."""
    monkeypatch.chdir(tmp_path)
    assert db_location("results.db") == f"sqlite:///{tmp_path}/results.db"
    assert db_location("postgresql://u@h/n") == "postgresql://u@h/n"


def members(store: Store, name: str = "s") -> list[str]:
    """The cells of a stored sweep in order."""
    return [member.cell_key for member in store.sweep_cells(name)]


def test_narrowed_command_keeps_the_sweep_whole(store: Store, sweep_plan: Make, planned_cell: Make) -> None:
    """`num_workers=[16]` after the whole sweep must not shrink its table: same base, so its cells are added."""
    a, b, c = planned_cell("a"), planned_cell("b"), planned_cell("c")
    register(store, sweep_plan(a, b), now_utc_s=0.0)
    register(store, sweep_plan(b), now_utc_s=1.0)
    assert members(store) == ["v1-a", "v1-b"]
    register(store, sweep_plan(c), now_utc_s=2.0)
    assert members(store) == ["v1-a", "v1-b", "v1-c"]
    register(store, sweep_plan(c, b, a), now_utc_s=3.0)
    assert members(store) == ["v1-c", "v1-b", "v1-a"]


def test_other_settings_replace_the_sweep(store: Store, sweep_plan: Make, planned_cell: Make) -> None:
    """`seed=1` for all cells is another grid of the same name: its table must not mix seeds; the cells are kept."""
    register(store, sweep_plan(planned_cell("a")), now_utc_s=0.0)
    other: SweepPlan = sweep_plan(planned_cell("b"), base=("seed=1",))
    register(store, other, now_utc_s=1.0)
    assert members(store) == ["v1-b"]
    assert {cell.cell_key for cell in store.cells()} == {"v1-a", "v1-b"}


def test_snapshot_has_what_tables_need(command: Make, planned_cell: Make, store: Store) -> None:
    """An attempt's configuration carries prices and cache sizes, but not the database's address with its password."""
    command(planned_cell("a"))
    config = json.loads(store.attempts("v1-a")[0].config_json)
    assert {"prices", "kv", "revisions", "derived"} <= set(config)
    assert "db" not in config


def test_sigterm_while_the_cluster_starts(
    store: Store, fake_executor: Make, sweep_plan: Make, planned_cell: Make, tmp_path: Path
) -> None:
    """Ray's own handler makes it SystemExit: exit code 143, the executor is closed, the cell is still planned."""
    executor = fake_executor(None)

    def terminated(*, largest_num_workers: int) -> None:
        executor.is_open = True
        raise SystemExit(15)

    executor.open = terminated
    plan = sweep_plan(planned_cell("a"), db={"url": str(tmp_path / "results.db")})
    code = run_plan(plan, write=lambda line: None, stop=StopFlag(), make_executor=lambda node: executor)
    assert (code, executor.is_open) == (143, False)
    assert [cell.state for cell in store.cells()] == ["planned"]

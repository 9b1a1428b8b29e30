"""A whole study as a user runs it: complete, resumed, interrupted, broken and run again, on real Ray and SQLite."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import pytest

from db.records import WALL_CLOCK_COLUMNS, Call, ServerSample, Session, ToolExecution

ROOT = Path(__file__).resolve().parents[2]
SMOKE = ("+sweep=smoke",)
# Long enough to be caught in the middle: two cells of some 2,000 calls each.
LONG = ("+sweep=smoke", "benchmark.num_tasks=50", "num_workers=16", "lease_s=4")

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300)]


def start(cwd: Path, *arguments: str) -> subprocess.Popen[str]:
    """Start `python -m orchestrator` in a session of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "orchestrator", *arguments],
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def finish(process: subprocess.Popen[str], timeout_s: float = 200) -> tuple[int, str, str]:
    """Wait for the end; exit code, stdout, stderr."""
    out, err = process.communicate(timeout=timeout_s)
    return process.returncode, out, err


def run(cwd: Path, *arguments: str) -> tuple[int, str, str]:
    """Run to the end."""
    return finish(start(cwd, *arguments))


def query(cwd: Path, sql: str) -> list[tuple[object, ...]]:
    """Rows of the results database, read-only."""
    connection = sqlite3.connect(f"file:{cwd / 'results.db'}?mode=ro", uri=True)
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


def until(condition: Callable[[], bool], what: str, timeout_s: float = 90) -> None:
    """Wait for `condition`, for at most `timeout_s` seconds of wall time."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"waited {timeout_s} s for {what}"
        time.sleep(0.1)


def has_calls(cwd: Path) -> bool:
    """Whether some call has been committed."""
    if not (cwd / "results.db").exists():
        return False
    try:
        return bool(query(cwd, "select 1 from call limit 1"))
    except sqlite3.OperationalError:  # the schema is being made
        return False


def measured(cwd: Path) -> dict[str, list[tuple[object, ...]]]:
    """Every measured row, by cell, without the columns that may differ between two runs."""
    rows = {}
    for record in (Session, Call, ToolExecution, ServerSample):
        columns = [f.name for f in fields(record) if f.name not in WALL_CLOCK_COLUMNS]
        names = ", ".join(f"r.{name}" for name in columns)
        rows[record.TABLE] = query(
            cwd,
            f"select a.cell_key, {names} from {record.TABLE} r join attempt a using (attempt_id) order by 1, {names}",
        )
    return rows


def assert_complete(cwd: Path, num_tasks: int) -> None:
    """Both cells complete; their latest complete attempt has every session once and every call it counted."""
    assert query(cwd, "select state, count(*) from cell group by 1") == [("complete", 2)]
    sessions = query(
        cwd,
        "select a.cell_key, count(*), sum(s.num_main_calls + s.num_auxiliary_calls) from session s"
        " join attempt a using (attempt_id) where a.state = 'complete' group by 1 order by 1",
    )
    calls = query(
        cwd,
        "select a.cell_key, count(*) from call c join attempt a using (attempt_id) where a.state = 'complete'"
        " group by 1 order by 1",
    )
    assert [row[1] for row in sessions] == [num_tasks, num_tasks]
    assert [(row[0], row[2]) for row in sessions] == calls


@pytest.fixture(scope="module")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the complete smoke study."""
    folder = tmp_path_factory.mktemp("smoke")
    code, out, err = run(folder, *SMOKE)
    assert code == 0, (out, err)
    assert "2 complete" in out
    assert err == ""
    return folder


def test_a_study_completes_and_the_same_command_runs_nothing(smoke: Path) -> None:
    """Exit code 0, every session and call present, and the second start reuses both cells without Ray."""
    assert_complete(smoke, num_tasks=4)
    code, out, _ = run(smoke, *SMOKE)
    assert code == 0
    assert "nothing to run" in out
    assert query(smoke, "select max(number) from attempt") == [(1,)]


def test_the_table_shows_both_arms_and_its_conditions(smoke: Path) -> None:
    """`python -m db table concurrency` names the arms, and says simulated, replayed, synthetic and hindsight."""
    done = subprocess.run(
        [sys.executable, "-m", "db", "table", "concurrency"],
        cwd=smoke,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=60,
        check=True,
    )
    for word in ("base", "refold", "simulated", "replayed", "synthetic", "hindsight", "conditional"):
        assert word in done.stdout


def test_another_number_of_ray_workers_gives_identical_rows(smoke: Path, tmp_path: Path) -> None:
    """One Ray worker runs the cells one after another in one process, two run them side by side: the same rows."""
    code, out, err = run(tmp_path, *SMOKE, "executor.parallel=1")
    assert code == 0, (out, err)
    assert measured(tmp_path) == measured(smoke)


def test_kill_9_in_the_middle_then_the_same_command(tmp_path: Path) -> None:
    """The killed driver's cells run again once their lease is over; the table is complete and nothing is doubled."""
    process = start(tmp_path, *LONG)
    until(lambda: has_calls(tmp_path), "the first committed call")
    process.kill()
    finish(process)
    code, out, err = run(tmp_path, *LONG)
    assert code == 0, (out, err)
    assert_complete(tmp_path, num_tasks=50)


def test_sigterm_leaves_a_consistent_database(tmp_path: Path) -> None:
    """Exit code 143, no cell left running, and the same study can be completed."""
    process = start(tmp_path, *LONG)
    until(lambda: has_calls(tmp_path), "the first committed call")
    process.send_signal(signal.SIGTERM)
    code, out, _ = finish(process)
    assert code == 143, out
    assert query(tmp_path, "select count(*) from cell where state = 'running'") == [(0,)]
    assert query(tmp_path, "select count(*) from attempt where state = 'running'") == [(0,)]
    run(tmp_path, *LONG)
    code, out, err = run(tmp_path, *LONG, "rerun=failed")
    assert code == 0, (out, err)
    assert_complete(tmp_path, num_tasks=50)


def test_a_killed_ray_worker_fails_its_cell_and_rerun_completes_it(tmp_path: Path) -> None:
    """The other cell goes on; exit code 1; `rerun=failed` says why it runs the cell again, and completes it."""
    process = start(tmp_path, *LONG)
    until(lambda: has_calls(tmp_path), "the first committed call")
    victims = [pid for pid in descendants(process.pid) if "ray::_run_in_task" in command_line(pid)]
    assert victims
    os.kill(victims[0], signal.SIGKILL)
    code, out, err = finish(process)
    assert code == 1, (out, err)
    states = query(tmp_path, "select state, exit_class from attempt order by state")
    assert states == [("complete", None), ("failed", "WorkerLost")]
    code, out, err = run(tmp_path, *LONG, "rerun=failed")
    assert code == 0, (out, err)
    assert "RERUN" in out
    assert "REUSE" in out
    assert_complete(tmp_path, num_tasks=50)


def test_recorded_runs_end_to_end(tmp_path: Path, shared_dir: Path) -> None:
    """Real recorded runs of several formats are loaded, replayed by both arms, and complete."""
    code, out, err = run(
        tmp_path,
        "+sweep=smoke",
        "benchmark=recorded",
        f"benchmark.path={shared_dir / 'trajectories' / 'original' / 'swe-agent'}",
        "benchmark.skip_foreign=true",
        "benchmark.num_tasks=null",
        "num_workers=1",
    )
    assert code == 0, (out, err)
    assert query(tmp_path, "select state, count(*) from cell group by 1") == [("complete", 2)]
    assert query(tmp_path, "select distinct benchmark_source from attempt") == [("recorded",)]


def descendants(pid: int) -> list[int]:
    """All processes below `pid`."""
    found, todo = [], [pid]
    while todo:
        parent = todo.pop()
        for task in Path(f"/proc/{parent}/task").glob("*/children"):
            children = [int(child) for child in task.read_text().split()]
            found += children
            todo += children
    return found


def command_line(pid: int) -> str:
    """The title of a process, empty when it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""

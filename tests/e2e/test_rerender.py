"""`python -m orchestrator rerender` from the command line to the table: cells like any other, without a time."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


def run(module: str, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run `python -m <module>` in a folder of its own."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", module, *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, env=environment, timeout=240, check=False)


def rows(folder: Path, statement: str) -> list[tuple[Any, ...]]:
    """Ask the folder's database."""
    with sqlite3.connect(folder / "results.db") as connection:
        return connection.execute(statement).fetchall()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which three synthetic runs were rendered again by three renderers."""
    where = tmp_path_factory.mktemp("rerender")
    done = run("orchestrator", "rerender", "benchmark.num_tasks=3", "renderer=refold,mask", cwd=where)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-2:] == [
        "sweep rerender: 3 complete",
        "see the results: python -m db table rerender",
    ]
    return where


def test_every_named_renderer_and_base_is_a_complete_cell(folder: Path) -> None:
    """Base is added as the first arm; no cell is tainted for the times it cannot have."""
    found = rows(
        folder,
        "SELECT cell.arm, cell.state, cell.engine, engine_kind, policy_kind, taint_reasons_json, sim_s"
        " FROM cell JOIN attempt USING (cell_key) JOIN sweep_cell USING (cell_key) ORDER BY ordinal",
    )
    assert [row[0] for row in found] == ["base", "refold", "mask"]
    assert {row[1:] for row in found} == {("complete", "prefix_cache", "re-rendered", "replay", None, None)}


def test_calls_have_tokens_and_no_times(folder: Path) -> None:
    """Prompt, cached, shared and removed tokens in every call; every stamp, wait and preemption count is NULL."""
    tokens = "num_prompt_tokens num_cached_tokens num_completion_tokens shared_prefix_tokens observation_tokens".split()
    tokens += [f"removed_{fate}_tokens" for fate in ("recoverable", "reproducible", "irrecoverable")]
    times = "due_s sent_s first_token_s last_token_s tool_result_s queue_delay_s requeue_s prefill_s decode_s".split()
    times += ["num_preemptions", "recomputed_tokens"]
    columns = ", ".join(f"count({name})" for name in (*tokens, *times))
    ((total, *counts),) = rows(folder, f"SELECT count(*), {columns} FROM call")
    assert total > 0
    assert counts[: len(tokens)] == [total] * len(tokens)
    assert counts[len(tokens) :] == [0] * len(times)
    assert rows(folder, "SELECT count(first_request_s), count(last_response_s) FROM session") == [(0, 0)]
    assert rows(folder, "SELECT count(*) FROM server_sample") == [(0,)]


def test_a_cached_prefix_is_never_longer_than_what_is_shared(folder: Path) -> None:
    """The cache works in whole blocks: at most the prompt minus one token, and blocks of one size."""
    found = rows(folder, "SELECT num_cached_tokens, num_prompt_tokens FROM call")
    assert all(0 <= cached < prompt for cached, prompt in found)
    assert {cached % 784 for cached, _ in found} == {0}  # Qwen3.6-27B's block on two GPUs
    assert rows(folder, "SELECT min(num_cached_tokens) FROM call WHERE call_index = 1 AND session_id = ("
                        "SELECT session_id FROM session ORDER BY ordinal LIMIT 1)") == [(0,)]  # fmt: skip


def test_the_table_compares_with_base(folder: Path) -> None:
    """Base is 1 by definition and removes nothing; refold's removals can all be shown again, mask's cannot.

    Sliding edits of old text cost the prefix cache, chunked ones keep it (ReFold section 4.4): mask sends several times
    the uncached tokens of base, refold less than mask.
    """
    done = run("db", "table", "rerender", "--format", "json", cwd=folder)
    assert done.returncode == 0
    table = {row["arm"]: row for row in json.loads(done.stdout)}
    fates = ("recoverable_pct", "reproducible_pct", "irrecoverable_pct")
    assert (table["base"]["prompt_x_base"], table["base"]["uncached_x_base"]) == (1.0, 1.0)
    assert [table["base"][fate] for fate in fates] == [0.0, 0.0, 0.0]
    assert table["refold"]["recoverable_pct"] > 0
    assert [table["refold"][fate] for fate in fates[1:]] == [0.0, 0.0]
    assert table["mask"]["recoverable_pct"] == 0
    assert table["mask"]["reproducible_pct"] + table["mask"]["irrecoverable_pct"] > 10
    assert table["mask"]["uncached_x_base"] > 3 > table["refold"]["uncached_x_base"]
    parts = [f"peak_{part}_pct" for part in ("system_task", "agent", "observation", "other")]
    assert all(abs(sum(row[part] for part in parts) - 100) < 0.3 for row in table.values())


def test_the_trace_has_a_row_per_call(folder: Path) -> None:
    """Figure 2e: cached / prompt of the first 30 calls, one column per arm; a cold cache hits least."""
    done = run("db", "table", "rerender_trace", "--format", "json", cwd=folder)
    trace = json.loads(done.stdout)
    assert [row["call"] for row in trace] == list(range(1, 31))
    assert all(row["base"] > trace[0]["base"] for row in trace[1:])


def test_the_same_command_again_runs_nothing_and_rerun_runs_all(folder: Path) -> None:
    """Re-rendered cells are reused and run again like those of any study."""
    again = run("orchestrator", "rerender", "benchmark.num_tasks=3", "renderer=refold,mask", cwd=folder)
    assert again.returncode == 0
    assert "nothing to run: every cell is complete" in again.stdout
    forced = run("orchestrator", "rerender", "benchmark.num_tasks=3", "renderer=mask", "rerun=all", cwd=folder)
    assert forced.returncode == 0
    assert rows(folder, "SELECT count(*) FROM attempt") == [(5,)]
    twice = rows(
        folder,
        "SELECT count(DISTINCT total) FROM (SELECT cell_key, sum(num_prompt_tokens) || '/' || sum(num_cached_tokens)"
        " AS total FROM call JOIN attempt USING (attempt_id) GROUP BY attempt_id) GROUP BY cell_key",
    )
    assert twice == [(1,)] * 3


def test_a_mistake_is_one_line_and_starts_nothing(tmp_path: Path) -> None:
    """Exit code 2, one line on stderr, no database (all mistakes: tests/unit/orchestrator/test_rerender)."""
    done = run("orchestrator", "rerender", "renderer=refold,msk", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: unknown renderer 'msk'; did you mean 'mask'? there are: ")
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "results.db").exists()


def test_a_sweep_of_a_study_is_stored_under_a_name_of_its_own(tmp_path: Path) -> None:
    """`rerender +sweep=smoke` never takes the place of the study `smoke` that has times."""
    done = run("orchestrator", "rerender", "+sweep=smoke", "benchmark.num_tasks=2", cwd=tmp_path)
    assert done.returncode == 0
    assert rows(tmp_path, "SELECT name FROM sweep") == [("rerender_smoke",)]
    table = run("db", "table", "rerender", cwd=tmp_path)
    assert table.returncode == 0
    assert "Engine: none: recorded runs rendered again, prefix cache only (no times)." in table.stdout


def test_recorded_runs_as_the_specification_measured_them(tmp_path: Path, shared_dir: Path) -> None:
    """Strategy replay on the 68 shipped runs of at least 5 steps (spec/trajectories, in characters).

    Cumulative prompt: clip 0.757, mask 0.576 of base's; uncached: mask 8.1 times base's, replies counted as uncached
    (`generated=opaque`). In tokens, with role frames and whole blocks of 16, the same within a tenth.
    """
    done = run(
        "orchestrator",
        "rerender",
        f"benchmark.path={shared_dir / 'trajectories' / 'neutral.jsonl.gz'}",
        "benchmark.min_steps=5",
        "engine.block_size=16",
        "policy.generated=opaque",
        "renderer=clip,mask",
        cwd=tmp_path,
    )
    assert done.returncode == 0
    shown = run("db", "table", "rerender", "--format", "json", cwd=tmp_path)
    table = {row["arm"]: row for row in json.loads(shown.stdout)}
    assert table["base"]["runs"] == 68
    assert table["clip"]["prompt_x_base"] == pytest.approx(0.757, rel=0.1)
    assert table["mask"]["prompt_x_base"] == pytest.approx(0.576, rel=0.1)
    assert table["clip"]["uncached_x_base"] == pytest.approx(1.56, rel=0.1)
    assert table["mask"]["uncached_x_base"] == pytest.approx(8.1, rel=0.1)

"""A whole study from the command line into PostgreSQL: the same rows as into SQLite."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import db

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.ray
@pytest.mark.timeout(240)
def test_the_smoke_study_completes_and_is_reused(blank_location: str, tmp_path: Path) -> None:
    """`db.url=...` of either database: both cells complete with all their calls; the same command runs nothing more."""
    group = "postgresql" if blank_location.startswith("postgresql") else "sqlite"
    command = [sys.executable, "-m", "orchestrator", "+sweep=smoke", "benchmark.num_tasks=2", "limits.max_steps=5"]
    for expected in ("2 complete", "nothing to run"):
        done = subprocess.run(
            [*command, f"db={group}", f"db.url={blank_location}"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            timeout=200,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert expected in done.stdout
    with db.open(blank_location) as reader:
        # Two arms, two tasks, five steps each: the step limit ends every session after its fifth call.
        assert len(reader.select("v_calls").rows) == 2 * 2 * 5

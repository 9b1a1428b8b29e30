"""The command line as a user runs it, on small simulated cells."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

REPO_ROOT = Path(__file__).resolve().parents[3]
BASE = (
    "executor=ray_actors",
    "benchmark=synthetic",
    "benchmark.num_tasks=4",
    "num_workers=2",
    "trust.max_loop_lag_ms=1000000",
    "trust.min_concurrency_share=0.01",
)


def start(db: Path, *overrides: str, env: dict[str, str] | None = None) -> subprocess.Popen[str]:
    """Start `python -m orchestrator` with output captured; overrides take the place of the base's."""
    keys = {text.partition("=")[0] for text in overrides}
    base = [text for text in BASE if text.partition("=")[0] not in keys]
    return subprocess.Popen(
        [sys.executable, "-m", "orchestrator", *base, f"db.url={db}", *overrides],
        cwd=REPO_ROOT,
        env={**os.environ, **(env or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def stop(process: subprocess.Popen[str]) -> None:
    """Make sure that it has ended, whatever the test found."""
    process.kill()
    process.communicate()


def run(
    db: Path, *overrides: str, env: dict[str, str] | None = None, timeout_s: float = 150.0
) -> subprocess.CompletedProcess[str]:
    """Run it to its end."""
    process = start(db, *overrides, env=env)
    try:
        out, err = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        raise AssertionError(f"no end within {timeout_s} s: {out}\n{err}") from None
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)

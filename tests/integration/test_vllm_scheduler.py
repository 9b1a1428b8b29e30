"""The simulated scheduler against the installed vLLM, on fresh random workloads."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

_ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.vllm
@pytest.mark.timeout(300)
def test_fuzz_finds_no_difference() -> None:
    """3,000 steps of dense and hybrid workloads: every decision of every step is vLLM's."""
    command = [sys.executable, "-m", "scripts.fuzz_scheduler", "--steps", "3000", "--seed", "90000"]
    done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    assert ", 0 differences" in done.stdout

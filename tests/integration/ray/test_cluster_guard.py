"""The guard ends what still carries its mark when its driver is gone, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.executors import cluster_guard

pytestmark = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")

_SLEEP = [sys.executable, "-c", "import time; time.sleep(60)"]


def test_a_leftover_is_ended_and_a_stranger_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """After its stdin closes the guard gives Ray five seconds, then kills what carries its mark."""
    mark = f"test-{os.getpid()}"
    stranger = subprocess.Popen(_SLEEP, env={**os.environ, cluster_guard.MARK_VARIABLE: "another"})
    leftover = subprocess.Popen(_SLEEP, env={**os.environ, cluster_guard.MARK_VARIABLE: mark})
    guard = cluster_guard.start(mark)
    try:
        assert set(cluster_guard.marked(mark)) == {leftover.pid}
        assert guard.stdin is not None
        guard.stdin.close()
        assert leftover.wait(30) == -9
        assert guard.wait(30) == 0
        assert stranger.poll() is None
    finally:
        for process in (stranger, leftover, guard):
            process.kill()
            process.wait()


def test_without_leftovers_it_ends_at_once() -> None:
    """A guard with nothing to end returns as soon as its driver has gone."""
    guard = cluster_guard.start("nobody-carries-this")
    assert guard.stdin is not None
    guard.stdin.close()
    assert guard.wait(10) == 0

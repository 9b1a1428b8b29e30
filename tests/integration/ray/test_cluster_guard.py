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
        assert set(cluster_guard.cluster_processes(mark, os.getpid())) == {leftover.pid}
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


def test_an_agent_that_lost_its_mark_is_known_by_its_session(tmp_path: Path) -> None:
    """Agents write their title over their environment; the session folder they log to ends with the driver's pid."""
    logs = tmp_path / f"session_2026-01-01_00-00-00_000000_{os.getpid()}" / "logs"
    other = tmp_path / f"session_2026-01-01_00-00-00_000000_1{os.getpid()}" / "logs"
    for folder in (logs, other):
        folder.mkdir(parents=True)
    with (logs / "agent.out").open("wb") as ours, (other / "agent.out").open("wb") as foreign:
        agent = subprocess.Popen(["ray::Agent", *_SLEEP[1:]], executable=sys.executable, stdout=ours)
        stranger = subprocess.Popen(["ray::Agent", *_SLEEP[1:]], executable=sys.executable, stdout=foreign)
        not_rays = subprocess.Popen(_SLEEP, stdout=ours)
    try:
        assert set(cluster_guard.cluster_processes("no-mark", os.getpid())) == {agent.pid}
    finally:
        for process in (agent, stranger, not_rays):
            process.kill()
            process.wait()

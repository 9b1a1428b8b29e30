"""A driver that sleeps past its lease: what it and its actors may still write."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from db.records import Attempt, Call, Session, attempt_id_of
from db.store import Store, owner_name
from serving.clock import stopwatch_s, utc_s
from tests.integration.ray import commands

pytestmark = [pytest.mark.ray, pytest.mark.timeout(240)]


def test_a_stopped_driver_cannot_write_after_a_takeover(tmp_path: Path) -> None:
    """A driver stopped by SIGSTOP past its lease writes nothing once another owner has its cell.

    Its actors are not stopped and try to; neither they nor the driver, when it wakes, add a row or end an attempt.
    """
    db = tmp_path / "r.db"
    driver = commands.start(db, "lease_s=2", "executor.clock_speed=10", "limits.max_steps=60")
    try:
        store, first = _running_attempt(db, calls=8)
        driver.send_signal(signal.SIGSTOP)
        second = _take_over(store, first)
        written = _rows(store, first)
        _let_pass(4.0)
        assert _rows(store, first) == written
        driver.send_signal(signal.SIGCONT)
        out, err = driver.communicate(timeout=90)
    finally:
        commands.stop(driver)
    assert driver.returncode != 0, out + err
    assert "another driver" in out
    assert _rows(store, first) == written
    states = {attempt.attempt_id: attempt.state for attempt in store.attempts()}
    assert states == {first.attempt_id: "lost", second: "running"}


def _running_attempt(db: Path, *, calls: int) -> tuple[Store, Attempt]:
    limit_s = stopwatch_s() + 90
    while not db.exists():
        assert stopwatch_s() < limit_s
    store = Store.open(str(db))
    while True:
        assert stopwatch_s() < limit_s, f"fewer than {calls} calls on disk after 90 s"
        attempts = store.attempts()
        if attempts and len(store.calls(attempts[0].attempt_id)) >= calls:
            return store, attempts[0]
        _let_pass(0.2)


def _take_over(store: Store, first: Attempt) -> str:
    """Claim the cell as soon as its lease is over and start the next attempt; returns its id."""
    limit_s = stopwatch_s() + 20
    while (claim := store.claim(first.cell_key, owner=owner_name("other"), lease_s=600, states=())) is None:
        assert stopwatch_s() < limit_s, "the lease does not run out"
        _let_pass(0.2)
    attempt_id = attempt_id_of(claim.cell_key, claim.number)
    store.start_attempt(
        Attempt(
            attempt_id=attempt_id,
            cell_key=claim.cell_key,
            number=claim.number,
            lease_epoch=claim.epoch,
            owner=claim.owner,
            started_utc_s=utc_s(),
            num_tasks=4,
            engine_kind="simulated",
            policy_kind="replay",
            benchmark_source="synthetic",
        )
    )
    return attempt_id


def _rows(store: Store, attempt: Attempt) -> tuple[int, int]:
    return tuple(len(store.rows(kind, attempt_id=attempt.attempt_id)) for kind in (Call, Session))  # type: ignore[return-value]


def _let_pass(seconds: float) -> None:
    import time

    time.sleep(seconds)

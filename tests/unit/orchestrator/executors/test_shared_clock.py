"""The wall clock that stands until the attempt begins, and the lag meter beside it."""

from __future__ import annotations

import asyncio
import time

import pytest

from orchestrator.executors.loop_lag import LoopLag
from orchestrator.executors.shared_clock import SharedClock
from orchestrator.executors.view_board import wait_s_of
from serving.clock import stopwatch_s, utc_s


def test_it_stands_at_zero_until_its_instant() -> None:
    """Before `begin`, and until the instant that it names, the clock shows exactly 0."""
    clock = SharedClock(speed=100.0)
    assert clock.now_s() == 0.0
    clock.begin(utc_s() + 60)
    assert clock.now_s() == 0.0


def test_it_counts_scaled_seconds_from_the_instant() -> None:
    """One wall second after the instant a clock of speed 100 shows 100 s."""
    clock = SharedClock(speed=100.0)
    clock.begin(utc_s() - 1.0)
    assert clock.now_s() == pytest.approx(100.0, abs=20.0)


def test_two_clocks_agree() -> None:
    """Clocks told the same instant differ by no more than the time between two readings."""
    start_utc_s = utc_s() - 5.0
    one, other = SharedClock(), SharedClock()
    one.begin(start_utc_s)
    other.begin(start_utc_s)
    before_s, between_s, after_s = one.now_s(), other.now_s(), one.now_s()
    assert before_s - 1e-3 <= between_s <= after_s + 1e-3


def test_nobody_passes_before_it_runs() -> None:
    """`begun` holds tasks back until the instant is over and counts those that wait."""

    async def run() -> None:
        clock = SharedClock()
        waiting = [asyncio.create_task(clock.begun()) for _ in range(3)]
        await asyncio.sleep(0)
        assert clock.num_waiting == 3
        clock.begin(utc_s() + 0.05)
        await asyncio.gather(*waiting)
        assert clock.now_s() > 0
        assert clock.num_waiting == 0
        await clock.begun()

    asyncio.run(run())


def test_a_scaled_sleep_is_short() -> None:
    """At speed 1000 ten seconds take ten milliseconds."""
    started_s = stopwatch_s()
    asyncio.run(SharedClock(speed=1000.0).sleep(10.0))
    assert 0.009 <= stopwatch_s() - started_s < 5.0


@pytest.mark.parametrize("speed", [0.0, -1.0, float("nan")])
def test_an_impossible_speed_is_refused(speed: float) -> None:
    """A clock that stands still or runs backwards is no clock."""
    with pytest.raises(ValueError, match="above 0"):
        SharedClock(speed)


def test_a_blocked_loop_shows_as_lag() -> None:
    """A loop that is blocked for 200 ms is at least 100 ms late at its next tick."""

    async def run() -> float:
        lag = LoopLag()
        lag.start()
        await asyncio.sleep(0.01)
        time.sleep(0.2)
        await asyncio.sleep(0.1)
        lag.stop()
        return lag.max_ms

    assert asyncio.run(run()) >= 100.0


def test_signals_are_not_polled_faster_than_processes_answer() -> None:
    """At speed 100 a signal age of 1 s would be 10 ms of wall time; 20 ms is the least. At speed 1 it is 1 s."""
    assert wait_s_of(1.0, SharedClock(100.0)) == 0.02
    assert wait_s_of(1.0, SharedClock(1.0)) == 1.0

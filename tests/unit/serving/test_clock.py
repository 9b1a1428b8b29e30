"""The clocks: virtual time jumps, never runs away, and repeats itself."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from serving.clock import VirtualClock, WallClock, run_virtual
from serving.errors import ForeignWakeUp

pytestmark = pytest.mark.timeout(20)


def test_sleep_jumps_to_the_timer() -> None:
    """An hour of virtual sleep ends at exactly 3,600 s and takes almost no real time."""

    async def main(clock: VirtualClock) -> float:
        await clock.sleep(3600.0)
        return clock.now_s()

    started = time.monotonic()
    assert run_virtual(main) == pytest.approx(3600.0, abs=1e-6)
    assert time.monotonic() - started < 10


def test_starts_at_zero_and_zero_sleep_takes_no_time() -> None:
    """Virtual time begins at 0 and `sleep(0)` only yields."""

    async def main(clock: VirtualClock) -> list[float]:
        before = clock.now_s()
        await clock.sleep(0)
        return [before, clock.now_s()]

    assert run_virtual(main) == [0.0, 0.0]


def test_tasks_wake_in_order_of_time_then_of_creation() -> None:
    """Sleepers of 3, 1, 2 and 1 s wake as 1 (first created), 1, 2, 3."""

    async def main(clock: VirtualClock) -> list[tuple[str, float]]:
        woken: list[tuple[str, float]] = []

        async def sleeper(name: str, seconds: float) -> None:
            await clock.sleep(seconds)
            woken.append((name, round(clock.now_s(), 6)))

        await asyncio.gather(sleeper("a", 3.0), sleeper("b", 1.0), sleeper("c", 2.0), sleeper("d", 1.0))
        return woken

    assert run_virtual(main) == [("b", 1.0), ("d", 1.0), ("c", 2.0), ("a", 3.0)]


def test_time_never_goes_back_and_sums_up() -> None:
    """A thousand sleeps of 0.1 s end at 100 s."""

    async def main(clock: VirtualClock) -> float:
        last = clock.now_s()
        for _ in range(1000):
            await clock.sleep(0.1)
            assert clock.now_s() >= last
            last = clock.now_s()
        return last

    assert run_virtual(main) == pytest.approx(100.0, abs=1e-6)


def test_a_timeout_fires_in_virtual_time() -> None:
    """`asyncio.timeout(600)` around an endless wait raises after 600 virtual seconds."""

    async def main(clock: VirtualClock) -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(600.0):
                await asyncio.Event().wait()
        return clock.now_s()

    assert run_virtual(main) == pytest.approx(600.0, abs=1e-6)


def test_a_thread_awaited_outside_the_clock_raises() -> None:
    """Awaiting a thread without `outside()` raises ForeignWakeUp instead of letting virtual time run away."""

    async def main(clock: VirtualClock) -> None:
        loop = asyncio.get_running_loop()
        done = loop.create_future()
        thread = threading.Thread(target=lambda: loop.call_soon_threadsafe(done.set_result, None))
        thread.start()
        thread.join()
        await asyncio.wait_for(done, 3600.0)
        await clock.sleep(1.0)

    with pytest.raises(ForeignWakeUp, match="outside"):
        run_virtual(main)


def test_outside_stops_virtual_time() -> None:
    """A 0.2 s thread awaited inside `outside()` moves virtual time by nothing, with a timer pending."""

    async def main(clock: VirtualClock) -> tuple[float, float]:
        background = asyncio.create_task(clock.sleep(5.0))
        await clock.sleep(1.0)
        async with clock.outside():
            await asyncio.to_thread(time.sleep, 0.2)
        after = clock.now_s()
        await background
        return after, clock.now_s()

    after, end = run_virtual(main)
    assert after == pytest.approx(1.0, abs=1e-6)
    assert end == pytest.approx(5.0, abs=1e-6)


def test_nested_outside_stops_until_the_last_one_ends() -> None:
    """Two overlapping `outside()` blocks keep time stopped until both are over."""

    async def main(clock: VirtualClock) -> float:
        async def wait(seconds: float) -> None:
            async with clock.outside():
                await asyncio.to_thread(time.sleep, seconds)

        background = asyncio.create_task(clock.sleep(50.0))
        await asyncio.gather(wait(0.05), wait(0.15))
        after = clock.now_s()
        background.cancel()
        return after

    assert run_virtual(main) == 0.0


def test_a_deadlock_raises() -> None:
    """When every task waits and no timer is set, the loop says so instead of hanging."""

    async def main(clock: VirtualClock) -> None:
        await asyncio.Event().wait()

    with pytest.raises(RuntimeError, match="deadlock"):
        run_virtual(main)


def test_an_error_inside_comes_out() -> None:
    """An exception of the main coroutine is raised by `run_virtual` unchanged."""

    async def main(clock: VirtualClock) -> None:
        await clock.sleep(1.0)
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        run_virtual(main)


def test_two_runs_are_identical() -> None:
    """The same program gives the same order and the same times, bit for bit."""

    async def main(clock: VirtualClock) -> list[tuple[int, float]]:
        log: list[tuple[int, float]] = []

        async def walker(number: int) -> None:
            for step in range(20):
                await clock.sleep(0.1 * ((number * 7 + step * 3) % 5))
                log.append((number, clock.now_s()))

        await asyncio.gather(*(walker(number) for number in range(8)))
        return log

    first, second = run_virtual(main), run_virtual(main)
    assert first == second
    assert len(first) == 160


def test_the_wall_clock_is_scaled() -> None:
    """With speed 100, a sleep of 5 s ends after at least 5 scaled seconds, in about 50 ms of real time."""

    async def main() -> tuple[float, float]:
        clock = WallClock(speed=100.0)
        started = time.monotonic()
        await clock.sleep(5.0)
        async with clock.outside():
            pass
        return clock.now_s(), time.monotonic() - started

    scaled, real = asyncio.run(main())
    assert scaled >= 5.0
    assert real < 5.0

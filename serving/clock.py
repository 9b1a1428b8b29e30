"""Wall clock, scaled wall clock and virtual clock. Nothing else in Convoy reads the time.

The virtual clock is an asyncio loop whose time jumps to the next timer: `loop.time()` is virtual, and the selector
never waits. A wake-up from outside the loop (a thread, a socket, a Ray reference) would let virtual time run away while
real time passes (an awaited 0.2 s thread once moved such a clock by 16,660 s), so it is only allowed inside
`async with clock.outside()`, which stops virtual time; anywhere else the loop raises `ForeignWakeUp`.
"""

from __future__ import annotations

import asyncio
import selectors
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from serving.errors import ForeignWakeUp

T = TypeVar("T")


def stopwatch_s() -> float:
    """A monotonic stamp for measuring our own work (render time); never enters simulated results."""
    return time.perf_counter()


def cpu_s() -> float:
    """CPU seconds of this process, for reports of our own cost."""
    return time.process_time()


def utc_s() -> float:
    """Seconds since the epoch, for `_utc_s` columns and leases."""
    return time.time()


class WallClock:
    """Real time since `start`, optionally `speed` times faster than the wall.

    With speed 100 a `sleep(1.0)` takes 10 ms of wall time; simulated engines on Ray actors use this.
    """

    def __init__(self, speed: float = 1.0, start_monotonic_s: float | None = None) -> None:
        self.speed = speed
        self._start_s = time.monotonic() if start_monotonic_s is None else start_monotonic_s

    def now_s(self) -> float:
        """Scaled seconds since the start."""
        return (time.monotonic() - self._start_s) * self.speed

    async def sleep(self, seconds: float) -> None:
        """Sleep `seconds` of scaled time."""
        await asyncio.sleep(max(0.0, seconds) / self.speed)

    @asynccontextmanager
    async def outside(self) -> AsyncIterator[None]:
        """Real time needs no stopping."""
        yield


class _VirtualSelector(selectors.BaseSelector):
    """A selector that moves the loop's time forward instead of waiting."""

    def __init__(self) -> None:
        self._real = selectors.DefaultSelector()
        self.now_s = 0.0
        self.num_outside = 0
        self.is_over = False

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if self.is_over:
            return self._select_real_time(timeout)
        if self.num_outside:
            return self._real.select(0.0 if timeout == 0 else 0.05)
        ready = self._real.select(0)
        if ready:
            self.is_over = True
            raise ForeignWakeUp(
                "something outside the virtual clock woke the loop; wrap the await in `async with clock.outside()`"
            )
        if timeout is None:
            self.is_over = True
            raise RuntimeError("virtual time stands still: every task waits and no timer is set (a deadlock)")
        self.now_s += timeout
        return ready

    def _select_real_time(self, timeout: float | None) -> list[tuple[selectors.SelectorKey, int]]:
        """After the attempt the loop's own clean-up (joined threads, cancelled tasks) takes real time."""
        wait_s = None if timeout is None else min(timeout, 0.05)
        ready = self._real.select(wait_s)
        self.now_s += wait_s or 0.0
        return ready

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._real.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._real.unregister(fileobj)

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._real.modify(fileobj, events, data)

    def get_map(self) -> Any:
        return self._real.get_map()

    def close(self) -> None:
        self._real.close()


class _VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop on virtual time."""

    def __init__(self, selector: _VirtualSelector) -> None:
        self._virtual = selector
        super().__init__(selector)
        # A timer fires when its time is within this of now; it only has to cover float rounding of `now + timeout`.
        self._clock_resolution = 1e-9

    def time(self) -> float:
        return self._virtual.now_s


class VirtualClock:
    """Virtual time of one attempt; make one per `run_virtual`."""

    def __init__(self, selector: _VirtualSelector) -> None:
        self._selector = selector

    def now_s(self) -> float:
        """Virtual seconds since the start."""
        return self._selector.now_s

    async def sleep(self, seconds: float) -> None:
        """Let `seconds` of virtual time pass."""
        await asyncio.sleep(seconds)

    @asynccontextmanager
    async def outside(self) -> AsyncIterator[None]:
        """Stop virtual time while a thread, socket or Ray reference is awaited."""
        self._selector.num_outside += 1
        try:
            yield
        finally:
            self._selector.num_outside -= 1


def is_virtual() -> bool:
    """Whether the running loop keeps virtual time."""
    return isinstance(asyncio.get_running_loop(), _VirtualLoop)


async def aside(function: Callable[[], T]) -> T:
    """Run a blocking call: in a thread on a wall clock, in place in virtual time, which stands still meanwhile."""
    return function() if is_virtual() else await asyncio.to_thread(function)


def run_virtual(main: Callable[[VirtualClock], Coroutine[Any, Any, T]]) -> T:
    """Run `main(clock)` to its end in virtual time and return its result."""
    selector = _VirtualSelector()

    async def attempt() -> T:
        try:
            return await main(VirtualClock(selector))
        finally:
            selector.is_over = True

    with asyncio.Runner(loop_factory=lambda: _VirtualLoop(selector)) as runner:
        return runner.run(attempt())

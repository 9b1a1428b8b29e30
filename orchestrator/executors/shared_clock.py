"""One wall clock for all processes of an attempt: 0 until the attempt begins, then all count from one instant.

The first w sessions are handed out while it stands and so begin at exactly 0, as in virtual time; nothing is sent to a
replica before it runs (`begun`). Otherwise the time it takes to hand out w sessions would look like a concurrency not
reached.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from serving.clock import stopwatch_s, utc_s

# Readings of the two clocks; the pair that lay closest together decides, so that a process that was put aside between
# them does not shift its clock.
_NUM_READINGS = 8


class SharedClock:
    """A `Clock` on wall time that `begin` starts, `speed` times faster than the wall.

    Processes agree on the instant in UTC and then count on their own monotonic clock, so that a clock adjustment during
    an attempt moves no stamp.
    """

    def __init__(self, speed: float = 1.0) -> None:
        if not speed > 0:
            raise ValueError(f"clock speed must be above 0, not {speed}")
        self.speed = speed
        self.num_waiting = 0  # tasks in `begun`
        self._start_s: float | None = None
        self._begins = asyncio.Event()

    def begin(self, start_utc_s: float) -> None:
        """Count from this instant (epoch seconds)."""
        pairs = []
        for _ in range(_NUM_READINGS):
            before_s, now_utc_s, after_s = stopwatch_s(), utc_s(), stopwatch_s()
            pairs.append((after_s - before_s, before_s - now_utc_s))
        self._start_s = start_utc_s + min(pairs)[1]
        self._begins.set()

    def now_s(self) -> float:
        """Scaled seconds since the attempt began; 0 before."""
        if self._start_s is None:
            return 0.0
        return max(0.0, (stopwatch_s() - self._start_s) * self.speed)

    async def begun(self) -> None:
        """Return when the clock runs; at once when it does."""
        self.num_waiting += 1
        try:
            await self._begins.wait()
        finally:
            self.num_waiting -= 1
        assert self._start_s is not None
        if (left_s := self._start_s - stopwatch_s()) > 0:
            await asyncio.sleep(left_s)

    async def sleep(self, seconds: float) -> None:
        """Sleep `seconds` of scaled time."""
        await asyncio.sleep(max(0.0, seconds) / self.speed)

    @asynccontextmanager
    async def outside(self) -> AsyncIterator[None]:
        """Real time needs no stopping."""
        yield

"""How late an event loop runs: a client that answers late bends the arrival process it measures."""

from __future__ import annotations

import asyncio

from serving.clock import stopwatch_s

_TICK_S = 0.05


class LoopLag:
    """Measures the lateness of a 50 ms ticker on the running loop, in milliseconds."""

    def __init__(self) -> None:
        self.max_ms = 0.0
        self._recent_ms = 0.0
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin a measurement; an earlier one is forgotten."""
        self.stop()
        self.max_ms = self._recent_ms = 0.0
        self._task = asyncio.get_running_loop().create_task(self._tick())

    def stop(self) -> None:
        """End the measurement; `max_ms` keeps its result."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    def take_ms(self) -> float:
        """The largest lag since the last call of this function."""
        recent_ms, self._recent_ms = self._recent_ms, 0.0
        return recent_ms

    async def _tick(self) -> None:
        while True:
            due_s = stopwatch_s() + _TICK_S
            await asyncio.sleep(_TICK_S)
            lag_ms = max(0.0, stopwatch_s() - due_s) * 1e3
            self.max_ms = max(self.max_ms, lag_ms)
            self._recent_ms = max(self._recent_ms, lag_ms)

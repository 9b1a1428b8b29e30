"""SIGINT and SIGTERM as a flag: the first one ends the run in order, a second one at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class StopFlag:
    """Set by a signal. `exit_code` is the shell's: 130 for SIGINT, 143 for SIGTERM."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._signal: signal.Signals | None = None

    @property
    def is_set(self) -> bool:
        """Whether the run is to end."""
        return self._event.is_set()

    @property
    def reason(self) -> str:
        """For messages and rows."""
        return "interrupted" if self._signal is None else f"interrupted by {self._signal.name}"

    @property
    def exit_code(self) -> int:
        """128 + the signal's number."""
        return 128 + (signal.SIGINT if self._signal is None else self._signal)

    def set(self, number: int = signal.SIGINT) -> None:
        """Ask the run to end."""
        self._signal = signal.Signals(number)
        self._event.set()

    def wait(self, timeout_s: float) -> bool:
        """Sleep for a while, or until it is set."""
        return self._event.wait(timeout_s)

    @contextmanager
    def handling(self) -> Iterator[None]:
        """Handle both signals inside the block; main thread only."""

        def handle(number: int, _frame: FrameType | None) -> None:
            if self.is_set:
                raise KeyboardInterrupt
            self.set(number)

        before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

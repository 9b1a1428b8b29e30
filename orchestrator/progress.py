"""What a running sweep shows: one line per event, and on a terminal a live line with rates and the time left.

Everything goes to stdout and nothing else does; without a terminal there are plain lines only, so that logs stay
readable.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TextIO

from db.records import AttemptEnd, Session
from orchestrator.interfaces import AttemptProgress
from orchestrator.plan import PlannedCell
from serving.clock import stopwatch_s

_PLAIN_EVERY_S = 60.0


@dataclass(frozen=True, slots=True)
class Standing:
    """Where the driver stands. Weights are relative durations (`PlannedCell.weight`)."""

    num_pending: int
    num_elsewhere: int
    running: tuple[tuple[str, str], ...]
    progress: tuple[AttemptProgress, ...]
    pending_weight: float
    running_weight: float


class Display(Protocol):
    """Told of everything; shows what suits its medium."""

    def line(self, text: str) -> None:
        """One event, as one line that stays."""
        ...

    def ended(self, cell: PlannedCell, end: AttemptEnd, sessions: Sequence[Session]) -> None:
        """An attempt has ended."""
        ...

    def update(self, standing: Standing) -> None:
        """Called every half second or so."""
        ...

    def close(self) -> None:
        """Leave the terminal as it was."""
        ...


class Tally:
    """Counts of this run and what follows from them: rates and the time left."""

    def __init__(self, *, num_cells: int, num_reused: int, clock_s: Callable[[], float] = stopwatch_s) -> None:
        self.num_cells = num_cells
        self.num_reused = num_reused
        self.states: Counter[str] = Counter()
        self._clock_s = clock_s
        self._started_s = clock_s()
        self._num_sessions = 0
        self._num_calls = 0
        self._done_weight = 0.0

    def add(self, cell: PlannedCell, end: AttemptEnd, sessions: Sequence[Session]) -> None:
        """Count an ended attempt."""
        self.states[end.state] += 1
        self._num_sessions += len(sessions)
        self._num_calls += num_calls_of(sessions)
        self._done_weight += cell.weight

    def text(self, standing: Standing) -> str:
        """`3/10 cells, 2 running, 1 failed, 150 sessions, 42 calls/s, 12 min left`."""
        elapsed_s = max(self._clock_s() - self._started_s, 1e-9)
        sessions = self._num_sessions + sum(p.sessions_done for p in standing.progress)
        calls = self._num_calls + sum(p.calls for p in standing.progress)
        done = self.num_reused + self.states["complete"]
        parts = [f"{done}/{self.num_cells} cells complete", f"{len(standing.running)} running"]
        parts += [f"{self.states[state]} {state}" for state in ("failed", "tainted", "lost") if self.states[state]]
        if standing.num_elsewhere:
            parts.append(f"{standing.num_elsewhere} under other drivers")
        opened = sum(p.sessions_open for p in standing.progress)
        parts.append(f"{sessions} sessions" + (f" ({opened} open)" if opened else ""))
        parts.append(f"{calls / elapsed_s:.0f} calls/s")
        left_s = self._left_s(standing, elapsed_s)
        return ", ".join(parts if left_s is None else [*parts, f"{duration(left_s)} left"])

    def _left_s(self, standing: Standing, elapsed_s: float) -> float | None:
        """Time left at the rate so far; running cells count half. None before the first cell has ended."""
        if not self._done_weight:
            return None
        half = standing.running_weight / 2
        return (standing.pending_weight + half) * elapsed_s / (self._done_weight + half)


def num_calls_of(sessions: Sequence[Session]) -> int:
    """All calls of these sessions, auxiliary ones included."""
    return sum(session.num_main_calls + session.num_auxiliary_calls for session in sessions)


def progress_of_rows(cell: PlannedCell, attempt_id: str, sessions: Sequence[Session]) -> AttemptProgress:
    """A running attempt's counters as its recorded sessions tell them; calls of open sessions are not in them."""
    left = cell.num_tasks - len(sessions)
    return AttemptProgress(
        attempt_id=attempt_id,
        sessions_done=len(sessions),
        sessions_total=cell.num_tasks,
        sessions_open=min(cell.num_workers, left),
        calls=num_calls_of(sessions),
        clock_s=max((session.finished_s for session in sessions), default=0.0),
    )


def duration(seconds: float) -> str:
    """`45 s`, `12 min`, `3.5 h`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def ending_line(cell: PlannedCell, end: AttemptEnd, sessions: Sequence[Session]) -> str:
    """One line on an ended attempt, with the first reason when it is not complete."""
    clock = f", {duration(end.sim_s)} on its clock" if end.sim_s is not None else ""
    wall = f", {end.wall_s:.1f} s" if end.wall_s is not None else ""
    text = f"{end.state:<9} {cell.title}: {len(sessions)} sessions, {num_calls_of(sessions)} calls{clock}{wall}"
    if end.state == "tainted" and end.taint_reasons_json:
        text += f"; {'; '.join(json.loads(end.taint_reasons_json))}"
    elif end.exit_class:
        text += f"; {end.exit_class}: {end.message}"
    return text


class PlainDisplay:
    """Lines only: every event, and a standing each minute."""

    def __init__(self, tally: Tally, *, out: TextIO | None = None, clock_s: Callable[[], float] = stopwatch_s) -> None:
        self._tally = tally
        self._out = sys.stdout if out is None else out
        self._clock_s = clock_s
        self._next_s = clock_s() + _PLAIN_EVERY_S

    def line(self, text: str) -> None:
        """See `Display`."""
        print(text, file=self._out, flush=True)

    def ended(self, cell: PlannedCell, end: AttemptEnd, sessions: Sequence[Session]) -> None:
        """See `Display`."""
        self._tally.add(cell, end, sessions)
        self.line(ending_line(cell, end, sessions))

    def update(self, standing: Standing) -> None:
        """See `Display`."""
        if self._clock_s() >= self._next_s:
            self._next_s = self._clock_s() + _PLAIN_EVERY_S
            self.line(self._tally.text(standing))

    def close(self) -> None:
        """See `Display`."""


class LiveDisplay:
    """A terminal: events scroll by above one live line and the running cells."""

    def __init__(self, tally: Tally, *, out: TextIO | None = None) -> None:
        from rich.console import Console
        from rich.live import Live

        self._tally = tally
        self._console = Console(file=out, force_terminal=True if out is not None else None, highlight=False)
        self._live = Live(console=self._console, refresh_per_second=4, transient=True, redirect_stderr=False)
        self._live.start()

    def line(self, text: str) -> None:
        """See `Display`."""
        self._console.print(text, markup=False, soft_wrap=True)

    def ended(self, cell: PlannedCell, end: AttemptEnd, sessions: Sequence[Session]) -> None:
        """See `Display`."""
        from rich.text import Text

        self._tally.add(cell, end, sessions)
        colours = {"complete": "green", "tainted": "yellow"}
        text = ending_line(cell, end, sessions)
        self._console.print(Text(text, style=colours.get(end.state, "red")), soft_wrap=True)

    def update(self, standing: Standing) -> None:
        """See `Display`."""
        from rich.text import Text

        counts = {p.attempt_id: p for p in standing.progress}
        lines = [self._tally.text(standing)]
        for title, attempt_id in standing.running:
            p = counts.get(attempt_id)
            detail = f"  {p.sessions_done}/{p.sessions_total} sessions, {p.calls} calls" if p is not None else ""
            lines.append(f"  running  {title}{detail}")
        self._live.update(Text("\n".join(lines)))

    def close(self) -> None:
        """See `Display`."""
        self._live.stop()


def make_display(tally: Tally) -> Display:
    """Live on a terminal, plain lines elsewhere."""
    return LiveDisplay(tally) if sys.stdout.isatty() else PlainDisplay(tally)

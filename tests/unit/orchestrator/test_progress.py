"""What is shown: counts, rates, time left, and plain lines without a terminal."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from typing import Any

from db.records import AttemptEnd
from orchestrator.interfaces import AttemptProgress
from orchestrator.progress import LiveDisplay, PlainDisplay, Standing, Tally, duration, ending_line

Make = Callable[..., Any]


def standing(**values: Any) -> Standing:
    """Nothing running, nothing pending."""
    base: dict[str, Any] = {
        "num_pending": 0,
        "num_elsewhere": 0,
        "running": (),
        "progress": (),
        "pending_weight": 0.0,
        "running_weight": 0.0,
    }
    return Standing(**(base | values))


def end(state: str = "complete", **values: Any) -> AttemptEnd:
    """An attempt's end."""
    return AttemptEnd(attempt_id="a", state=state, finished_utc_s=0.0, **values)


def test_counts_rates_and_time_left(planned_cell: Make, session_row: Make) -> None:
    """After 10 s: 1 of 4 cells reused, 1 done with 2 sessions and 2 calls, 3 open in one running: 22 calls / 10 s.

    Weight 4 is done, 2 pending, 2 running (half counts): 10 s * (2 + 1) / (4 + 1) = 6 s are left.
    """
    now = [0.0]
    tally = Tally(num_cells=4, num_reused=1, clock_s=lambda: now[0])
    tally.add(planned_cell("a", weight=4), end(), [session_row("a", 0), session_row("a", 1)])
    now[0] = 10.0
    running = AttemptProgress("b", sessions_done=5, sessions_total=9, sessions_open=3, calls=20, clock_s=1.0)
    text = tally.text(standing(running=(("cell=b", "b"),), progress=(running,), pending_weight=2.0, running_weight=2.0))
    assert text == "2/4 cells complete, 1 running, 7 sessions (3 open), 2 calls/s, 6 s left"


def test_failures_come_before_rates(planned_cell: Make) -> None:
    """Failed, tainted and lost cells are counted by name; cells of other drivers too."""
    tally = Tally(num_cells=3, num_reused=0, clock_s=lambda: 1.0)
    tally.add(planned_cell("a"), end("failed"), [])
    tally.add(planned_cell("b"), end("tainted"), [])
    text = tally.text(standing(num_elsewhere=1))
    assert text.startswith("0/3 cells complete, 0 running, 1 failed, 1 tainted, 1 under other drivers, 0 sessions")


def test_ending_lines(planned_cell: Make, session_row: Make) -> None:
    """One line each: complete with its figures, tainted with every reason, failed with class and message."""
    cell, sessions = planned_cell("a"), [session_row("a", 0)]
    assert ending_line(cell, end(wall_s=1.25, sim_s=7200.0), sessions) == (
        "complete  cell=a: 1 sessions, 1 calls, 2.0 h on its clock, 1.2 s"
    )
    tainted = end("tainted", taint_reasons_json='["late","warm"]')
    assert ending_line(cell, tainted, sessions).endswith("; late; warm")
    failed = end("failed", exit_class="Bug", message="KeyError: 'x'")
    assert ending_line(cell, failed, []) == "failed    cell=a: 0 sessions, 0 calls; Bug: KeyError: 'x'"


def test_plain_lines(planned_cell: Make) -> None:
    """Events at once, a standing each minute and not oftener, nothing else."""
    now, out = [0.0], io.StringIO()
    clock: Callable[[], float] = lambda: now[0]  # noqa: E731
    display = PlainDisplay(Tally(num_cells=1, num_reused=0, clock_s=clock), out=out, clock_s=clock)
    display.line("started")
    for seconds in (30.0, 61.0, 90.0, 122.0):
        now[0] = seconds
        display.update(standing())
    display.ended(planned_cell("a"), end(), [])
    display.close()
    assert out.getvalue().splitlines() == [
        "started",
        "0/1 cells complete, 0 running, 0 sessions, 0 calls/s",
        "0/1 cells complete, 0 running, 0 sessions, 0 calls/s",
        "complete  cell=a: 0 sessions, 0 calls",
    ]


def test_live_display(planned_cell: Make) -> None:
    """On a terminal every event stays as a line, with brackets left alone, and the running cells are shown live."""
    out = io.StringIO()
    display = LiveDisplay(Tally(num_cells=2, num_reused=0), out=out)
    display.line("started   num_workers=[8]")
    running = AttemptProgress("b", sessions_done=1, sessions_total=9, sessions_open=3, calls=20, clock_s=1.0)
    display.update(standing(running=(("cell=b", "b"),), progress=(running,)))
    display.ended(planned_cell("a"), end("failed", exit_class="Bug", message="[red]x[/red]"), [])
    display.close()
    shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", out.getvalue())
    assert "started   num_workers=[8]" in shown
    assert "failed    cell=a: 0 sessions, 0 calls; Bug: [red]x[/red]" in shown
    assert "running  cell=b  1/9 sessions, 20 calls" in shown


def test_durations() -> None:
    """Seconds below 90, minutes below 90, then hours."""
    assert [duration(s) for s in (45, 720, 12_600)] == ["45 s", "12 min", "3.5 h"]

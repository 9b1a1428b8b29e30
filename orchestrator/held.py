"""A cell this driver holds, and the writing of its attempt's end: the effects around `orchestrator.endings`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from db.errors import RowRefused
from db.records import AttemptEnd, Event, to_json
from db.store import Claim, Store
from orchestrator.endings import cut_short, ending
from orchestrator.interfaces import AttemptOutcome
from orchestrator.plan import PlannedCell
from orchestrator.trust import AttemptRows
from serving.clock import stopwatch_s, utc_s


@dataclass(slots=True)
class Stopped:
    """Why the driver itself ended an attempt, as it will be stored."""

    state: str
    exit_class: str
    message: str


@dataclass(slots=True)
class Held:
    """A cell this driver runs. Times on the driver's monotonic clock.

    Attributes:
        stopped: set once the driver has cancelled the attempt.
        give_up_s: when to stop waiting for the cancelled attempt's answer.
    """

    cell: PlannedCell
    claim: Claim
    attempt_id: str
    started_s: float
    deadline_s: float
    stopped: Stopped | None = None
    give_up_s: float | None = None


class Closer:
    """Writes the ends of attempts.

    Args:
        clock_s: monotonic seconds, the clock of `Held`. now_utc_s: the wall clock, for rows.
    """

    def __init__(
        self, store: Store, *, clock_s: Callable[[], float] = stopwatch_s, now_utc_s: Callable[[], float] = utc_s
    ) -> None:
        self._store = store
        self._clock_s = clock_s
        self._now_utc_s = now_utc_s

    def close(self, held: Held, outcome: AttemptOutcome) -> AttemptEnd:
        """Judge a reported attempt's rows and write its end; one the driver has stopped gets the driver's reason.

        Raises:
            LeaseLost: the attempt no longer owns its cell; nothing is written.
        """
        if held.stopped is not None:
            end = self._cut_short(held, held.stopped)
        else:
            rows = AttemptRows(
                sessions=self._store.sessions(held.attempt_id),
                calls=self._store.calls(held.attempt_id),
                num_workers=held.cell.num_workers,
                num_tasks=held.cell.num_tasks,
                is_wall_clock=held.cell.kinds["executor"] != "virtual",
                facts=outcome.facts,
            )
            end = ending(outcome, rows, held.cell.config["trust"], finished_utc_s=self._now_utc_s())
        self._store.finish_attempt(end)  # first: it checks the lease, and without that nothing may be written
        if outcome.facts:
            self._store.add([_facts_event(held.attempt_id, outcome)])
        return end

    def abandon(self, held: Held, message: str) -> None:
        """Write an attempt as cancelled whose outcome will not be waited for."""
        self._store.finish_attempt(self._cut_short(held, Stopped("failed", "Cancelled", message)))

    def put_back(self, claim: Claim, *, lease_s: float) -> None:
        """Make a cell `planned` again whose attempt was cancelled, so that a plain restart runs it."""
        again = self._store.claim(claim.cell_key, owner=claim.owner, lease_s=lease_s, states=("failed",))
        if again is not None:
            self._store.release(again, state="planned")

    def _cut_short(self, held: Held, stopped: Stopped) -> AttemptEnd:
        return cut_short(
            held.attempt_id,
            state=stopped.state,
            exit_class=stopped.exit_class,
            message=stopped.message,
            finished_utc_s=self._now_utc_s(),
            wall_s=self._clock_s() - held.started_s,
        )


def _facts_event(attempt_id: str, outcome: AttemptOutcome) -> Event:
    facts = {key: value for key, value in outcome.facts.items() if _is_storable(value)}
    return Event(attempt_id=attempt_id, source="driver", sequence=1, kind="facts", detail_json=to_json(facts))


def _is_storable(value: object) -> bool:
    try:
        to_json(value)
    except RowRefused:
        return False
    return True

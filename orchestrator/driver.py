"""The driver: claims cells, starts attempts, watches over them and writes their ends. The only one that makes attempts.

One thread decides; the executor runs. Several drivers may work on one database: a claim is atomic, a held cell's lease
is renewed by a thread, and a cell whose driver died is taken when its lease is over. Nothing here imports Ray or
SQLAlchemy.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from db.errors import DbError, LeaseLost
from db.records import Cell
from db.store import Store
from orchestrator.held import Closer, Held, Stopped
from orchestrator.interfaces import AttemptOutcome, AttemptPlan, AttemptProgress, Executor, Lease
from orchestrator.lease_keeper import LeaseKeeper
from orchestrator.plan import PlannedCell
from orchestrator.progress import Display, Standing, progress_of_rows
from orchestrator.registration import attempt_row
from orchestrator.rerun import Action, Decision
from orchestrator.stop import StopFlag
from serving.clock import stopwatch_s, utc_s

_WAIT_S = 0.5  # how long one look at the executor may take; a signal is noticed within it
_POLL_OTHERS_S = 2.0  # how often cells that other drivers hold are looked at
_COUNT_ROWS_S = 3.0  # how often the sessions of running attempts are counted for the display
_CANCEL_GRACE_S = 20.0  # how long a cancelled attempt may take to report


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverSettings:
    """How this driver works. `owner` names it in leases; `num_parallel` limits the cells held at once."""

    owner: str
    lease_s: float
    num_parallel: int
    db_url: str


class Driver:
    """Runs the pending cells of one plan to their ends.

    Args:
        display: told of everything that happens.
        stop: asked between any two steps whether to end.
        clock_s: seconds for deadlines, monotonic. now_utc_s: the wall clock, for rows.
    """

    def __init__(
        self,
        store: Store,
        executor: Executor,
        settings: DriverSettings,
        *,
        display: Display,
        stop: StopFlag,
        clock_s: Callable[[], float] = stopwatch_s,
        now_utc_s: Callable[[], float] = utc_s,
    ) -> None:
        self._store = store
        self._executor = executor
        self._settings = settings
        self._display = display
        self._stop = stop
        self._closer = Closer(store, clock_s=clock_s, now_utc_s=now_utc_s)
        self._clock_s = clock_s
        self._now_utc_s = now_utc_s
        self._pending: list[tuple[PlannedCell, Decision]] = []
        self._elsewhere: list[tuple[PlannedCell, Decision]] = []
        self._held: dict[str, Held] = {}
        self._next_poll_s = 0.0
        self._next_count_s = 0.0
        self._num_told = 0
        self._counted: tuple[AttemptProgress, ...] = ()

    def run(self, cells: Sequence[PlannedCell], decisions: Sequence[Decision]) -> None:
        """Run every pending cell, longest first; returns when none is left or the stop flag has been obeyed.

        Raises:
            DbError: the database failed; what was running has been cancelled and will be found as lost.
        """
        pairs = [(cell, decision) for cell, decision in zip(cells, decisions, strict=True) if decision.is_pending]
        pairs.sort(key=lambda pair: -pair[0].weight)
        self._pending = [pair for pair in pairs if pair[1].action is not Action.wait]
        self._elsewhere = [pair for pair in pairs if pair[1].action is Action.wait]
        with LeaseKeeper(self._store, lease_s=self._settings.lease_s) as keeper:
            self._keeper = keeper
            try:
                while (self._pending or self._elsewhere or self._held) and not self._stop.is_set:
                    self._turn()
                if self._stop.is_set:
                    self._obey_stop()
            except BaseException:
                self._abandon()
                raise

    def _turn(self) -> None:
        """One round: fill up, look at the executor, enforce deadlines and leases."""
        self._look_elsewhere()
        while self._pending and len(self._held) < self._settings.num_parallel and not self._stop.is_set:
            self._start(*self._pending.pop(0))
        if self._held:
            for outcome in self._executor.wait(_WAIT_S):
                self._ended(outcome)
            self._enforce()
        elif self._elsewhere:
            self._wait_for_others()
        self._show()

    # ---- starting

    def _start(self, cell: PlannedCell, decision: Decision) -> None:
        """Claim a cell and start an attempt, or leave it to the driver that was faster."""
        claim = self._store.claim(
            cell.key, owner=self._settings.owner, lease_s=self._settings.lease_s, states=decision.from_states
        )
        if claim is None:
            if self._row(cell.key).state == "running":
                self._elsewhere.append((cell, decision))
            else:
                self._display.line(f"{cell.title}: another driver has run it")
            return
        if decision.action is Action.rerun and claim.number > decision.last_number + 1:
            self._store.release(claim, state=claim.taken_from_state)
            self._display.line(f"{cell.title}: another driver has run it again")
            return
        attempt = attempt_row(cell, claim, now_utc_s=self._now_utc_s())
        self._store.start_attempt(attempt)
        now_s = self._clock_s()
        held = Held(cell, claim, attempt.attempt_id, now_s, now_s + float(cell.config["deadline_s"]))
        self._held[attempt.attempt_id] = held
        self._keeper.hold(claim)
        self._display.line(f"started   {cell.title} (attempt {claim.number}, {cell.num_tasks} tasks)")
        plan = AttemptPlan(
            attempt_id=attempt.attempt_id,
            cell_key=cell.key,
            title=cell.title,
            config=cell.config,
            lease=Lease(cell.key, claim.owner, claim.epoch),
            db_url=self._settings.db_url,
        )
        try:
            self._executor.submit(plan)
        except Exception as exc:  # the attempt boundary: one attempt fails, the others go on
            text = f"{type(exc).__name__}: {exc}"
            self._ended(AttemptOutcome(attempt.attempt_id, "Bug", text, traceback.format_exc()))

    def _look_elsewhere(self) -> None:
        """Cells that other drivers hold: take those whose lease is over, drop those that have ended."""
        if not self._elsewhere or self._clock_s() < self._next_poll_s:
            return
        self._next_poll_s = self._clock_s() + _POLL_OTHERS_S
        waiting, self._elsewhere = self._elsewhere, []
        for cell, decision in waiting:
            row = self._row(cell.key)
            is_over = row.state == "running" and (row.lease_until_utc_s or 0.0) < self._now_utc_s()
            if row.state == "planned" or is_over:
                self._pending.append((cell, decision))
            elif row.state == "running":
                self._elsewhere.append((cell, decision))
            else:
                self._display.line(f"{row.state:<9} {cell.title} (run by another driver)")

    def _wait_for_others(self) -> None:
        if self._num_told != len(self._elsewhere):
            self._num_told = len(self._elsewhere)
            self._display.line(f"waiting for other drivers' cells: {self._num_told}")
        self._stop.wait(_WAIT_S)

    def _row(self, cell_key: str) -> Cell:
        (row,) = self._store.rows(Cell, cell_key=cell_key)
        assert isinstance(row, Cell)
        return row

    # ---- watching

    def _enforce(self) -> None:
        """Cancel attempts beyond their deadline or without their lease; give up those that do not answer."""
        now_s = self._clock_s()
        lost = set(self._keeper.lost())
        for held in list(self._held.values()):
            if held.stopped is None and held.cell.key in lost:
                self._cancel(held, Stopped("lost", "LeaseExpired", "another driver has taken the cell"))
            elif held.stopped is None and now_s > held.deadline_s:
                limit_s = float(held.cell.config["deadline_s"])
                message = f"not done {limit_s:.0f} s after its start (deadline_s)"
                self._cancel(held, Stopped("lost", "DeadlineExceeded", message))
            elif held.give_up_s is not None and now_s > held.give_up_s:
                self._ended(AttemptOutcome(held.attempt_id, "Cancelled", "did not answer to being cancelled"))

    def _cancel(self, held: Held, stopped: Stopped) -> None:
        held.stopped = stopped
        held.give_up_s = self._clock_s() + _CANCEL_GRACE_S
        self._executor.cancel(held.attempt_id, stopped.message)

    # ---- ending

    def _ended(self, outcome: AttemptOutcome) -> None:
        """Judge an attempt's rows and write its end; a lost lease means that it is no longer ours to write."""
        held = self._held.get(outcome.attempt_id)
        if held is None:
            return  # given up before; its lease epoch keeps its rows out
        try:
            end = self._closer.close(held, outcome)
        except LeaseLost:
            self._display.line(f"lost      {held.cell.title}: another driver has taken it")
        else:
            self._display.ended(held.cell, end, self._store.sessions(end.attempt_id))
        finally:
            self._held.pop(held.attempt_id, None)
            self._keeper.drop(held.cell.key)

    def _obey_stop(self) -> None:
        """Cancel what runs, write `failed` with `Cancelled`, and put the cells back so that a restart runs them."""
        self._display.line(f"{self._stop.reason}: cancelling what runs ({len(self._held)})")
        for held in list(self._held.values()):
            if held.stopped is None:
                self._cancel(held, Stopped("failed", "Cancelled", self._stop.reason))
        running = list(self._held.values())
        while self._held:
            for outcome in self._executor.wait(_WAIT_S):
                self._ended(outcome)
            self._enforce()
        for held in running:
            if held.stopped is not None and held.stopped.exit_class == "Cancelled":
                self._closer.put_back(held.claim, lease_s=self._settings.lease_s)

    def _abandon(self) -> None:
        """Something broke in the driver itself: stop what runs and write what can still be written."""
        for held in list(self._held.values()):
            try:
                self._executor.cancel(held.attempt_id, "the driver failed")
                self._closer.abandon(held, "the driver failed")
                self._closer.put_back(held.claim, lease_s=self._settings.lease_s)
            except DbError:
                continue  # its lease runs out and the next driver finds it as lost
            finally:
                self._keeper.drop(held.cell.key)
        self._held.clear()

    def _progress(self) -> tuple[AttemptProgress, ...]:
        """What the executor knows of running attempts; for those it knows nothing of, what their rows tell."""
        known = {progress.attempt_id: progress for progress in self._executor.progress()}
        unknown = [held for held in self._held.values() if held.attempt_id not in known]
        if unknown and self._clock_s() >= self._next_count_s:
            self._next_count_s = self._clock_s() + _COUNT_ROWS_S
            self._counted = tuple(
                progress_of_rows(held.cell, held.attempt_id, self._store.sessions(held.attempt_id)) for held in unknown
            )
        counted = [progress for progress in self._counted if progress.attempt_id in self._held]
        return (*known.values(), *(progress for progress in counted if progress.attempt_id not in known))

    def _show(self) -> None:
        self._display.update(
            Standing(
                num_pending=len(self._pending),
                num_elsewhere=len(self._elsewhere),
                running=tuple((held.cell.title, held.attempt_id) for held in self._held.values()),
                progress=self._progress(),
                pending_weight=sum(cell.weight for cell, _ in self._pending),
                running_weight=sum(held.cell.weight for held in self._held.values()),
            )
        )

"""The driver over a scripted executor and a real SQLite file: order, endings, deadlines, leases, signals, sharing."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from db.errors import StorageFull
from db.records import Cell, Event
from db.store import Store
from orchestrator.driver import Driver, DriverSettings
from orchestrator.interfaces import AttemptOutcome, AttemptPlan
from orchestrator.plan import PlannedCell, SweepPlan
from orchestrator.registration import register
from orchestrator.rerun import Decision, decide
from orchestrator.stop import StopFlag
from serving.clock import utc_s


class Clock:
    """Moves by `step` at every look."""

    def __init__(self, step: float) -> None:
        self.now, self.step = 0.0, step

    def __call__(self) -> float:
        self.now += self.step
        return self.now


Run = Callable[..., tuple[Decision, ...]]


@pytest.fixture
def run(store: Store, display: Any) -> Run:
    """Register a plan, decide and drive it; returns the decisions."""

    def run(
        plan: SweepPlan,
        executor: Any,
        *,
        modes: frozenset[str] = frozenset(),
        stop: StopFlag | None = None,
        owner: str = "here:1",
        decisions: Sequence[Decision] | None = None,
        clock_s: Callable[[], float] | None = None,
    ) -> tuple[Decision, ...]:
        register(store, plan, now_utc_s=utc_s())
        made = tuple(decisions) if decisions is not None else plan_decisions(store, plan, modes)
        settings = DriverSettings(owner=owner, lease_s=60.0, num_parallel=executor.num_parallel, db_url="x")
        options: dict[str, Any] = {} if clock_s is None else {"clock_s": clock_s}
        driver = Driver(store, executor, settings, display=display, stop=stop or StopFlag(), **options)
        driver.run(plan.cells, made)
        return made

    return run


def plan_decisions(store: Store, plan: SweepPlan, modes: frozenset[str] = frozenset()) -> tuple[Decision, ...]:
    """What a command would decide now."""
    rows = {cell.cell_key: cell for cell in store.cells()}
    attempts = {key: store.attempts(key) for key in rows}
    return decide([rows[c.key] for c in plan.cells], attempts, modes, now_utc_s=utc_s(), versions={})


def states(store: Store) -> dict[str, str]:
    """Cell name -> state."""
    return {cell.cell_key.removeprefix("v1-"): cell.state for cell in store.cells()}


Make = Callable[..., Any]


def test_longest_first_and_never_more_than_parallel(
    run: Run, planned_cell: Make, sweep_plan: Make, fake_executor: Make, store: Store
) -> None:
    """Weights 1, 3, 2 run as 3, 2, 1, at most two at once, and all end complete with their measurements."""
    executor = fake_executor(num_parallel=2)
    cells = [planned_cell(name, weight=weight) for name, weight in (("a", 1), ("b", 3), ("c", 2))]
    run(sweep_plan(*cells), executor)
    assert executor.submitted == ["cell=b", "cell=c", "cell=a"]
    assert executor.most_in_flight == 2
    assert states(store) == {"a": "complete", "b": "complete", "c": "complete"}
    (attempt,) = store.attempts("v1-a")
    assert (attempt.wall_s, attempt.sim_s) == (1.0, 2.0)
    assert (attempt.time_weighted_in_flight, attempt.share_full_w) == (1.0, 1.0)
    assert json.loads(attempt.config_json)["prices"] == {}


def test_a_failed_attempt_leaves_the_others_alone(
    run: Run, planned_cell: Make, sweep_plan: Make, fake_executor: Make, store: Store
) -> None:
    """One lost replica fails its cell with class, message and detail; the other cell completes."""
    run(sweep_plan(planned_cell("a"), planned_cell("b")), fake_executor({"cell=a": "ReplicaLost"}))
    assert states(store) == {"a": "failed", "b": "complete"}
    (attempt,) = store.attempts("v1-a")
    assert (attempt.exit_class, attempt.message, attempt.traceback) == ("ReplicaLost", "told so", "trace")


def test_submit_that_raises_fails_the_attempt(
    run: Run, planned_cell: Make, sweep_plan: Make, fake_executor: Make, store: Store
) -> None:
    """An executor that cannot even start an attempt makes it `failed` with `Bug` and its traceback."""

    def explode(plan: AttemptPlan) -> AttemptOutcome:
        raise RuntimeError("no room")

    run(sweep_plan(planned_cell("a"), planned_cell("b")), fake_executor({"cell=a": explode}))
    assert states(store) == {"a": "failed", "b": "complete"}
    assert store.attempts("v1-a")[0].message == "RuntimeError: no room"


def test_session_that_invalidates_fails_an_attempt_called_ok(
    run: Run, planned_cell: Make, sweep_plan: Make, fake_executor: Make, store: Store, session_row: Make
) -> None:
    """An executor says ok but a session died with its environment: the cell is failed, whatever the executor says."""

    def died(plan: AttemptPlan) -> AttemptOutcome:
        recorder = store.recorder()
        recorder.adopt_attempt(plan.attempt_id)
        recorder.record_session(session_row(plan.attempt_id, 0, exit_status="EnvironmentDied", message="oom"))
        recorder.flush()
        return AttemptOutcome(plan.attempt_id, "ok")

    run(sweep_plan(planned_cell("a")), fake_executor({"cell=a": died}))
    (attempt,) = store.attempts("v1-a")
    assert (attempt.state, attempt.exit_class, attempt.message) == ("failed", "EnvironmentDied", "session t0: oom")


def test_missing_sessions_taint(
    run: Run, planned_cell: Make, sweep_plan: Make, fake_executor: Make, store: Store
) -> None:
    """An attempt called ok that recorded 2 of 3 sessions is tainted and says so."""
    run(sweep_plan(planned_cell("a", num_tasks=3)), fake_executor())
    (attempt,) = store.attempts("v1-a")
    assert attempt.state == "tainted"
    assert json.loads(str(attempt.taint_reasons_json)) == ["2 sessions of 2 tasks are recorded, 3 were to run"]


def test_restart_runs_only_what_has_no_terminal_row(
    run: Run, planned_cell: Make, sweep_plan: Make, fake_executor: Make, store: Store
) -> None:
    """The same command again runs nothing complete or failed; rerun=failed adds a second attempt."""
    plan = sweep_plan(planned_cell("a"), planned_cell("b"))
    run(plan, fake_executor({"cell=a": "WorkerLost"}))
    again = fake_executor()
    decisions = run(plan, again)
    assert again.submitted == []
    assert [d.action.value for d in decisions] == ["LEAVE", "REUSE"]
    run(plan, again, modes=frozenset({"failed"}))
    assert again.submitted == ["cell=a"]
    assert [(a.number, a.state) for a in store.attempts("v1-a")] == [(1, "failed"), (2, "complete")]
    assert states(store) == {"a": "complete", "b": "complete"}


@pytest.mark.parametrize("behaviour", ["hang", "deaf"])
def test_deadline_is_enforced_by_the_driver(
    run: Run, planned_cell: Make, sweep_plan: Make, fake_executor: Make, store: Store, behaviour: str
) -> None:
    """A cell that hangs past its deadline is cancelled and lost, answer or no answer; the next one runs."""
    executor = fake_executor({"cell=a": behaviour})
    plan = sweep_plan(planned_cell("a", weight=2, deadline_s=5.0), planned_cell("b"))
    run(plan, executor, clock_s=Clock(step=1.0))
    assert states(store) == {"a": "lost", "b": "complete"}
    (attempt,) = store.attempts("v1-a")
    assert attempt.exit_class == "DeadlineExceeded"
    assert list(executor.cancelled.values()) == ["not done 5 s after its start (deadline_s)"]


@pytest.mark.parametrize("behaviour", ["hang", "deaf"])
def test_stop_cancels_and_puts_cells_back(
    run: Run, planned_cell: Make, sweep_plan: Make, fake_executor: Make, store: Store, behaviour: str
) -> None:
    """After a signal the running attempt is failed (Cancelled), its cell planned again, and a restart runs it."""
    stop = StopFlag()

    def interrupt(plan: AttemptPlan) -> AttemptOutcome:
        stop.set(signal.SIGTERM)
        return AttemptOutcome(plan.attempt_id, "WorkerLost", "killed too")

    executor = fake_executor({"cell=a": behaviour, "cell=b": interrupt}, num_parallel=2)
    plan = sweep_plan(planned_cell("a", weight=3), planned_cell("b", weight=2), planned_cell("c"))
    run(plan, executor, stop=stop, clock_s=Clock(step=1.0))
    assert stop.exit_code == 143
    assert states(store)["a"] == "planned"
    assert states(store)["c"] == "planned"
    (attempt,) = store.attempts("v1-a")
    assert (attempt.state, attempt.exit_class, attempt.message) == ("failed", "Cancelled", "interrupted by SIGTERM")
    again = fake_executor()
    (decision, *_) = run(plan, again)
    assert decision.reason == "attempt 1 was interrupted (Cancelled)"
    assert states(store)["a"] == "complete"
    assert "cell=c" in again.submitted


def test_expired_lease_is_taken_and_the_old_attempt_lost(
    run: Run, planned_cell: Make, sweep_plan: Make, fake_executor: Make, store: Store
) -> None:
    """A cell whose driver was killed is run again once its lease is over; the orphaned attempt is kept as lost."""
    plan = sweep_plan(planned_cell("a"))
    register(store, plan, now_utc_s=utc_s())
    dead = Driver(
        store,
        fake_executor({"cell=a": "hang"}),
        DriverSettings(owner="here:0", lease_s=-1.0, num_parallel=1, db_url="x"),
        display=_Quiet(),
        stop=StopFlag(),
    )
    dead._keeper = _NoKeeper()  # type: ignore[assignment]  # a killed driver renews nothing
    dead._start(plan.cells[0], plan_decisions(store, plan)[0])
    (decision,) = run(plan, fake_executor())
    assert decision.action.value == "TAKE"
    assert [(a.number, a.state, a.exit_class) for a in store.attempts("v1-a")] == [
        (1, "lost", "LeaseExpired"),
        (2, "complete", None),
    ]


def test_two_drivers_share_a_grid(
    run: Run, planned_cell: Make, sweep_plan: Make, fake_executor: Make, store: Store
) -> None:
    """While driver 1 runs its first cell driver 2 runs the rest; driver 1 then finds nothing to do twice."""
    plan = sweep_plan(planned_cell("a", weight=2), planned_cell("b"))
    register(store, plan, now_utc_s=utc_s())
    decisions = plan_decisions(store, plan)
    second = fake_executor()

    def meanwhile(attempt: AttemptPlan) -> AttemptOutcome:
        row = _row(store, "v1-a")
        assert row.state == "running"
        other = Driver(
            store,
            second,
            DriverSettings(owner="here:2", lease_s=60.0, num_parallel=1, db_url="x"),
            display=_Quiet(),
            stop=StopFlag(),
        )
        only_b = [d for d in plan_decisions(store, plan) if d.cell_key == "v1-b"]
        other.run(plan.cells[1:], only_b)
        return AttemptOutcome(attempt.attempt_id, "WorkerLost", "x")

    first = fake_executor({"cell=a": meanwhile})
    run(plan, first, decisions=decisions, owner="here:1")
    assert first.submitted == ["cell=a"]
    assert second.submitted == ["cell=b"]
    assert states(store) == {"a": "failed", "b": "complete"}


def test_rerun_is_not_done_twice_by_two_drivers(
    run: Run, planned_cell: Make, sweep_plan: Make, fake_executor: Make, store: Store, display: Any
) -> None:
    """Two drivers plan rerun=failed; the second finds a newer attempt, also failed, and leaves the cell as it is."""
    plan = sweep_plan(planned_cell("a"))
    failing = {"cell=a": "WorkerLost"}
    run(plan, fake_executor(failing))
    decisions = plan_decisions(store, plan, frozenset({"failed"}))
    run(plan, fake_executor(failing), decisions=decisions, owner="here:1")
    late = fake_executor()
    run(plan, late, decisions=decisions, owner="here:2")
    assert late.submitted == []
    assert states(store) == {"a": "failed"}
    assert display.lines[-1] == "cell=a: another driver has run it again"


def test_waits_for_a_cell_another_driver_holds(
    run: Run, planned_cell: Make, sweep_plan: Make, fake_executor: Make, store: Store, display: Any
) -> None:
    """A cell held elsewhere is waited for; here its driver ends it while we look."""
    plan = sweep_plan(planned_cell("a"))
    register(store, plan, now_utc_s=utc_s())
    claim = store.claim("v1-a", owner="here:9", lease_s=60.0)
    assert claim is not None
    (decision,) = plan_decisions(store, plan)
    assert decision.action.value == "WAIT"
    store.release(claim, state="complete")
    run(plan, fake_executor(), decisions=[decision])
    assert display.lines == ["complete  cell=a (run by another driver)"]


def test_lost_lease_is_not_written_over(
    run: Run, planned_cell: Make, sweep_plan: Make, fake_executor: Make, store: Store, display: Any
) -> None:
    """A driver that was paused and whose cell was taken writes no end: the new owner's attempt stands."""

    def taken(attempt: AttemptPlan) -> AttemptOutcome:
        store.mark_lost(["v1-a"])
        return AttemptOutcome(attempt.attempt_id, "ok", facts={"wall_s": 1.0})

    run(sweep_plan(planned_cell("a")), fake_executor({"cell=a": taken}))
    assert states(store) == {"a": "lost"}
    assert store.rows(Event) == ()
    assert display.lines[-1] == "lost      cell=a: another driver has taken it"


class _FullStore(Store):
    """A database whose disk fills up before the attempt's end is written."""

    def finish_attempt(self, end: object) -> None:
        raise StorageFull("results.db: the disk is full")


def test_full_disk_ends_the_run_and_leaves_the_cell_to_its_lease(
    planned_cell: Make, sweep_plan: Make, fake_executor: Make, store: Store, display: Any
) -> None:
    """When an attempt's end cannot be written the error is one line and the cell stays running for its lease."""
    plan = sweep_plan(planned_cell("a"))
    register(store, plan, now_utc_s=utc_s())
    settings = DriverSettings(owner="here:1", lease_s=60.0, num_parallel=1, db_url="x")
    driver = Driver(_FullStore(store.engine), fake_executor(), settings, display=display, stop=StopFlag())
    with pytest.raises(StorageFull, match="the disk is full"):
        driver.run(plan.cells, plan_decisions(store, plan))
    assert states(store) == {"a": "running"}


class _Quiet:
    def line(self, text: str) -> None: ...
    def ended(self, cell: PlannedCell, end: object, sessions: object) -> None: ...
    def update(self, standing: object) -> None: ...
    def close(self) -> None: ...


class _NoKeeper:
    def hold(self, claim: object) -> None: ...
    def drop(self, cell_key: str) -> None: ...
    def lost(self) -> tuple[str, ...]:
        return ()


def _row(store: Store, key: str) -> Cell:
    (row,) = store.rows(Cell, cell_key=key)
    assert isinstance(row, Cell)
    return row

"""One command from plan to exit code: dry run, registration, decisions, executor, driver, summary."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from db.engine import connect, open_engine
from db.errors import DbError, DbUnavailable
from db.records import Attempt, Cell
from db.rows import read_records
from db.store import Store, owner_name
from orchestrator.build import build
from orchestrator.driver import Driver, DriverSettings
from orchestrator.errors import UserError
from orchestrator.interfaces import Executor
from orchestrator.plan import SweepPlan
from orchestrator.plan_text import nothing_to_run, plan_lines, summary_lines
from orchestrator.progress import Tally, make_display
from orchestrator.registration import cell_row, register
from orchestrator.rerun import Action, Decision, decide, older_results, read_modes
from orchestrator.stop import StopFlag
from orchestrator.versions import installed_versions
from serving.clock import utc_s

EXIT_OK, EXIT_INCOMPLETE = 0, 1

MakeExecutor = Callable[[Mapping[str, Any]], Executor]


def run_plan(
    plan: SweepPlan, *, write: Callable[[str], None], stop: StopFlag, make_executor: MakeExecutor | None = None
) -> int:
    """Run a plan's pending cells, or print the plan (`dry_run=true`).

    Args:
        write: takes one line for stdout.
        make_executor: for tests; by default the configured one is built.
    Returns:
        0 when every cell of the plan is complete, 1 when not, 130 or 143 after a signal.
    Raises:
        UserError, DbError, ClusterError: one line each.
    """
    location = db_location(plan.shared["db"]["url"])
    if plan.shared["dry_run"]:
        decisions, _ = _decisions(plan, *_stored_rows(location))
        for line in plan_lines(plan, decisions, verbose=True):
            write(line)
        return EXIT_OK
    try:
        store = Store.open(location)
    except DbError as exc:  # nothing has been started: a wrong address or no permission is the user's to repair
        raise UserError(str(exc)) from exc
    try:
        return _run(plan, store, location, write=write, stop=stop, make_executor=make_executor)
    finally:
        store.close()


def db_location(url: str) -> str:
    """The database as a URL that means the same in every process: a relative path becomes absolute."""
    if "://" in url:
        return url
    return f"sqlite:///{Path(url).expanduser().absolute()}"


def _run(
    plan: SweepPlan,
    store: Store,
    location: str,
    *,
    write: Callable[[str], None],
    stop: StopFlag,
    make_executor: MakeExecutor | None,
) -> int:
    attempts = store.attempts()
    read_modes(plan.shared["rerun"], _exit_classes(attempts))  # refuse a wrong word before anything is written
    register(store, plan, now_utc_s=utc_s())
    decisions, modes = _decisions(plan, store.cells(), attempts)
    for line in plan_lines(plan, decisions, verbose=False, with_reused=bool(modes)):
        write(line)
    if not any(decision.is_pending for decision in decisions):
        write(nothing_to_run(decisions, modes))
        states = _states(plan, store)
        for line in summary_lines(plan, states):
            write(line)
        return EXIT_OK if modes or _all_complete(states) else EXIT_INCOMPLETE
    _drive(plan, store, decisions, location=location, stop=stop, make_executor=make_executor or _configured_executor)
    states = _states(plan, store)
    for line in summary_lines(plan, states):
        write(line)
    if stop.is_set:
        return stop.exit_code
    return EXIT_OK if _all_complete(states) else EXIT_INCOMPLETE


def _drive(
    plan: SweepPlan,
    store: Store,
    decisions: Sequence[Decision],
    *,
    location: str,
    stop: StopFlag,
    make_executor: MakeExecutor,
) -> None:
    executor = make_executor(plan.shared["executor"])
    pending = [cell for cell, decision in zip(plan.cells, decisions, strict=True) if decision.is_pending]
    try:
        executor.open(largest_num_workers=max(cell.num_workers for cell in pending))
    except SystemExit:  # Ray's own handler of SIGTERM, which it sets while it starts
        stop.set(signal.SIGTERM)
        executor.close()
        return
    num_reused = sum(decision.action is Action.reuse for decision in decisions)
    display = make_display(Tally(num_cells=len(plan.cells), num_reused=num_reused))
    settings = DriverSettings(
        owner=owner_name(),
        lease_s=plan.shared["lease_s"],
        num_parallel=executor.num_parallel,
        db_url=location,
    )
    try:
        with stop.handling():  # after open(): Ray sets handlers of its own
            Driver(store, executor, settings, display=display, stop=stop).run(plan.cells, decisions)
    finally:
        display.close()
        executor.close()


def _configured_executor(node: Mapping[str, Any]) -> Executor:
    executor: Executor = build(node, "executor")
    return executor


def _stored_rows(location: str) -> tuple[Sequence[Cell], Sequence[Attempt]]:
    """What the database holds, without creating or changing it; nothing when there is none yet."""
    path = location.removeprefix("sqlite:///")
    if path != location and not Path(path).exists():
        return (), ()
    try:
        engine = open_engine(location, read_only=True)
    except DbError as exc:
        if isinstance(exc, DbUnavailable) and "is empty" in str(exc):
            return (), ()
        raise UserError(str(exc)) from exc
    try:
        with connect(engine) as connection:
            return read_records(connection, Cell), read_records(connection, Attempt)
    finally:
        engine.dispose()


def _decisions(
    plan: SweepPlan, cells: Sequence[Cell], attempts: Sequence[Attempt]
) -> tuple[tuple[Decision, ...], frozenset[str]]:
    modes = read_modes(plan.shared["rerun"], _exit_classes(attempts))
    stored = {cell.cell_key: cell for cell in cells}
    by_cell: dict[str, list[Attempt]] = {}
    for attempt in attempts:
        by_cell.setdefault(attempt.cell_key, []).append(attempt)
    now_utc_s = utc_s()
    rows = [stored.get(cell.key) or cell_row(cell, now_utc_s=now_utc_s) for cell in plan.cells]
    older = older_results({cell.key: cell.spec for cell in plan.cells}, cells)
    made = decide(rows, by_cell, modes, now_utc_s=now_utc_s, versions=installed_versions(), older=older)
    return made, modes


def _exit_classes(attempts: Sequence[Attempt]) -> frozenset[str]:
    return frozenset(attempt.exit_class for attempt in attempts if attempt.exit_class)


def _states(plan: SweepPlan, store: Store) -> dict[str, str]:
    keys = {cell.key for cell in plan.cells}
    return {cell.cell_key: cell.state for cell in store.cells() if cell.cell_key in keys}


def _all_complete(states: Mapping[str, str]) -> bool:
    return all(state == "complete" for state in states.values())

"""The driver's operations: the grid, claims, leases, attempts."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import Any

import pytest

from db.errors import DbUnavailable, LeaseLost, RecorderMisuse, UnknownName
from db.records import AttemptEnd, Call, Event, Grade
from db.store import Claim, Store, owner_name

CLAIM_ALL = """
import sys
from db.store import Store
store = Store.open(sys.argv[1])
print(sum(store.claim(f"c1-base-{w}", owner=sys.argv[2], lease_s=60) is not None for w in range(1, 41)))
"""


def test_the_whole_grid_is_stored_before_the_first_run(store: Store, study: Any) -> None:
    """register_sweep leaves every cell planned, in grid order."""
    cells = [study.cell("refold", 8), study.cell("base", 8), study.cell("base", 2)]
    study.register(store, *cells)
    assert [(cell.cell_key, cell.state) for cell in store.cells("concurrency")] == [
        ("c1-refold-8", "planned"),
        ("c1-base-8", "planned"),
        ("c1-base-2", "planned"),
    ]
    assert [member.ordinal for member in store.sweep_cells("concurrency")] == [0, 1, 2]


def test_registering_again_keeps_states_and_attempts(store: Store, study: Any) -> None:
    """A restart finds its finished cells, and a new grid adds cells without dropping old ones."""
    first, second = study.cell("base", 2), study.cell("base", 4)
    study.register(store, first)
    study.run(store, first)
    study.register(store, second, first)
    assert {cell.cell_key: cell.state for cell in store.cells()} == {"c1-base-2": "complete", "c1-base-4": "planned"}
    study.register(store, second)
    assert [cell.cell_key for cell in store.cells("concurrency")] == ["c1-base-4"]
    assert len(store.cells()) == 2, "a cell that left the grid is kept"


def test_an_unknown_sweep_names_what_exists(store: Store, study: Any) -> None:
    """The error lists the sweeps."""
    study.register(store, study.cell())
    with pytest.raises(UnknownName, match="no sweep 'conc'.*holds: concurrency"):
        store.cells("conc")


def test_a_claim_gives_the_next_epoch_and_number(store: Store, study: Any) -> None:
    """The first claim is epoch 1, attempt 1; a claimed cell cannot be claimed."""
    cell = study.cell()
    study.register(store, cell)
    assert study.claim(store, cell) == Claim("c1-base-2", "here:1", 1, 1, "planned")
    assert store.claim(cell.cell_key, owner="here:2", lease_s=60) is None


def test_rerun_states_decide_what_can_be_claimed(store: Store, study: Any) -> None:
    """A complete cell is claimed only when asked for, and becomes attempt 2."""
    cell = study.cell()
    study.register(store, cell)
    study.run(store, cell)
    assert store.claim(cell.cell_key, owner="here:1", lease_s=60) is None
    assert store.claim(cell.cell_key, owner="here:1", lease_s=60, states=("failed",)) is None
    again = study.claim(store, cell, states=("complete",))
    assert (again.number, again.epoch, again.taken_from_state) == (2, 2, "complete")


def test_of_many_threads_one_gets_the_cell(store: Store, study: Any) -> None:
    """Eight simultaneous claims of one cell: exactly one wins."""
    cell = study.cell()
    study.register(store, cell)
    barrier, won = threading.Barrier(8), []

    def claim(number: int) -> None:
        barrier.wait()
        if store.claim(cell.cell_key, owner=f"here:{number}", lease_s=60) is not None:
            won.append(number)

    threads = [threading.Thread(target=claim, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1


def test_two_processes_share_a_grid_without_overlap(store: Store, location: str, study: Any) -> None:
    """Two drivers that claim 40 cells at once get 40 together, without a `database is locked`."""
    study.register(store, *(study.cell("base", w) for w in range(1, 41)))
    drivers = [
        subprocess.Popen(
            [sys.executable, "-c", CLAIM_ALL, location, f"here:{number}"], stdout=subprocess.PIPE, text=True
        )
        for number in range(2)
    ]
    counts = [int(driver.communicate(timeout=60)[0]) for driver in drivers]
    assert [driver.returncode for driver in drivers] == [0, 0]
    assert sum(counts) == 40
    assert {cell.lease_epoch for cell in store.cells()} == {1}


def test_an_expired_lease_is_taken_and_the_old_owner_is_fenced_off(store: Store, study: Any) -> None:
    """After a takeover the old owner's rows are refused and its attempt is lost; the new owner's rows are kept."""
    now = [1000.0]
    clocked = Store(store.engine, now_utc_s=lambda: now[0])
    cell = study.cell()
    study.register(store, cell)
    old_attempt = study.attempt(study.claim(clocked, cell, owner="here:old"))
    old = clocked.recorder()
    old.start_attempt(old_attempt)
    old.record_call(study.call(old_attempt.attempt_id, call_index=1))
    old.flush()
    now[0] = 1059.0
    assert clocked.claim(cell.cell_key, owner="here:new", lease_s=60) is None, "the lease still holds"
    now[0] = 1061.0
    claim = study.claim(clocked, cell, owner="here:new")
    assert (claim.number, claim.taken_from_state) == (2, "running")
    new_attempt = study.attempt(claim)
    new = clocked.recorder()
    new.start_attempt(new_attempt)
    old.record_call(study.call(old_attempt.attempt_id, call_index=2))
    with pytest.raises(LeaseLost):
        old.flush()
    with pytest.raises(LeaseLost):
        old.finish_attempt(AttemptEnd(attempt_id=old_attempt.attempt_id, state="complete", finished_utc_s=1.0))
    new.record_call(study.call(new_attempt.attempt_id))
    new.finish_attempt(AttemptEnd(attempt_id=new_attempt.attempt_id, state="complete", finished_utc_s=2.0))
    assert [attempt.state for attempt in store.attempts(cell.cell_key)] == ["lost", "complete"]
    assert len(store.calls(old_attempt.attempt_id)) == 1
    assert store.cells()[0].state == "complete"


def test_a_renewed_lease_holds_and_a_lost_one_says_so(store: Store, study: Any) -> None:
    """Renew extends from now; it works late while nobody took the cell, and raises after a takeover."""
    now = [0.0]
    clocked = Store(store.engine, now_utc_s=lambda: now[0])
    cell = study.cell()
    study.register(store, cell)
    mine = study.claim(clocked, cell)
    now[0] = 50.0
    clocked.renew(mine, lease_s=60)
    now[0] = 100.0
    assert clocked.claim(cell.cell_key, owner="here:2", lease_s=60) is None
    now[0] = 200.0
    clocked.renew(mine, lease_s=60)
    now[0] = 300.0
    study.claim(clocked, cell, owner="here:2")
    with pytest.raises(LeaseLost, match="no longer held by here:1 under epoch 1"):
        clocked.renew(mine, lease_s=60)


def test_finish_sets_attempt_and_cell_together(store: Store, study: Any) -> None:
    """The cell takes its attempt's end state and its lease ends."""
    cell = study.cell()
    study.register(store, cell)
    study.run(store, cell, state="failed")
    (stored,) = store.cells()
    assert (stored.state, stored.lease_owner, stored.lease_until_utc_s, stored.latest_attempt) == (
        "failed",
        None,
        None,
        1,
    )


def test_an_attempt_needs_its_claim(store: Store, study: Any) -> None:
    """A wrong epoch or an id that is not made of cell and number is refused."""
    cell = study.cell()
    study.register(store, cell)
    claim = study.claim(store, cell)
    with pytest.raises(LeaseLost):
        store.start_attempt(study.attempt(claim._replace(epoch=7)))
    with pytest.raises(RecorderMisuse, match="attempt id"):
        store.start_attempt(study.attempt(claim, attempt_id="other"))


def test_a_released_cell_can_be_claimed_again(store: Store, study: Any) -> None:
    """Release undoes a claim whose attempt never started."""
    cell = study.cell()
    study.register(store, cell)
    store.release(study.claim(store, cell))
    assert store.cells()[0].state == "planned"
    assert study.claim(store, cell).epoch == 2


def test_stuck_cells_become_lost(store: Store, study: Any) -> None:
    """mark_lost takes running cells whose lease is over, with their attempts, and fences their owners off."""
    now = [0.0]
    clocked = Store(store.engine, now_utc_s=lambda: now[0])
    stuck, alive = study.cell("base", 2), study.cell("base", 4)
    study.register(store, stuck, alive)
    attempt = study.attempt(study.claim(clocked, stuck))
    recorder = clocked.recorder()
    recorder.start_attempt(attempt)
    now[0] = 61.0
    study.claim(clocked, alive)
    assert clocked.mark_lost() == (stuck.cell_key,)
    assert {cell.cell_key: cell.state for cell in store.cells()} == {"c1-base-2": "lost", "c1-base-4": "running"}
    assert store.attempts(stuck.cell_key)[0].state == "lost"
    recorder.record_call(study.call(attempt.attempt_id))
    with pytest.raises(LeaseLost):
        recorder.flush()


def test_a_sqlite_file_serves_one_host(store: Store, study: Any) -> None:
    """With SQLite a driver on a second host is refused while another works; PostgreSQL takes both."""
    cells = study.cell("base", 2), study.cell("base", 4)
    study.register(store, *cells)
    study.claim(store, cells[0], owner="node1:77")
    if store.engine.dialect.name == "sqlite":
        with pytest.raises(DbUnavailable, match="node1:77 on another host.*PostgreSQL"):
            store.claim(cells[1].cell_key, owner="node2:12", lease_s=60)
    else:
        assert store.claim(cells[1].cell_key, owner="node2:12", lease_s=60) is not None


def test_an_unknown_cell_cannot_be_claimed(store: Store) -> None:
    """A key that was never registered is an error, not `taken`."""
    with pytest.raises(UnknownName, match="no cell c9"):
        store.claim("c9", owner=owner_name(), lease_s=1)


def test_one_recorder_serves_two_attempts_and_loses_only_one(store: Store, study: Any) -> None:
    """A lost attempt's rows are dropped; the other attempt's rows in the same batch are kept."""
    cells = study.cell("base", 2), study.cell("base", 4)
    study.register(store, *cells)
    attempts = [study.attempt(study.claim(store, cell)) for cell in cells]
    recorder = store.recorder(max_age_s=None)
    for attempt in attempts:
        recorder.start_attempt(attempt)
    store.mark_lost([cells[0].cell_key])
    for attempt in attempts:
        recorder.record_call(study.call(attempt.attempt_id))
    with pytest.raises(LeaseLost, match="c1-base-2.1"):
        recorder.flush()
    recorder.record_call(study.call(attempts[1].attempt_id, call_index=2))
    recorder.flush()
    assert [len(store.calls(attempt.attempt_id)) for attempt in attempts] == [0, 2]


def test_a_started_attempt_can_be_adopted_by_another_process(store: Store, study: Any) -> None:
    """The driver starts and ends an attempt, a worker's recorder writes for it; an unstarted one cannot be adopted."""
    cell = study.cell()
    study.register(store, cell)
    attempt = study.attempt(study.claim(store, cell))
    recorder = store.recorder()
    with pytest.raises(LeaseLost):
        recorder.adopt_attempt(attempt.attempt_id)
    store.start_attempt(attempt)
    recorder.adopt_attempt(attempt.attempt_id)
    recorder.record_call(study.call(attempt.attempt_id))
    recorder.flush()
    store.finish_attempt(AttemptEnd(attempt_id=attempt.attempt_id, state="complete", finished_utc_s=1.0))
    assert len(store.calls(attempt.attempt_id)) == 1
    with pytest.raises(LeaseLost):
        store.recorder().adopt_attempt(attempt.attempt_id)


def test_rows_are_committed_by_count_and_by_age(store: Store, study: Any) -> None:
    """256 rows, or a row older than 2 ms when the next arrives, make a transaction without flush."""
    from db.sql_recorder import SqlRecorder

    cell = study.cell()
    study.register(store, cell)
    attempt = study.attempt(study.claim(store, cell))
    now = [0.0]
    recorder = SqlRecorder(store.engine, monotonic_s=lambda: now[0])
    recorder.start_attempt(attempt)
    for index in range(1, 256):
        recorder.record_call(study.call(attempt.attempt_id, call_index=index))
    assert len(store.calls(attempt.attempt_id)) == 0
    recorder.record_call(study.call(attempt.attempt_id, call_index=256))
    assert len(store.calls(attempt.attempt_id)) == 256
    recorder.record_call(study.call(attempt.attempt_id, call_index=257))
    now[0] = 0.0021
    recorder.record_call(study.call(attempt.attempt_id, call_index=258))
    assert len(store.calls(attempt.attempt_id)) == 258
    recorder.record_call(study.call(attempt.attempt_id, call_index=259))
    now[0] = 0.005
    recorder.commit_if_due()
    assert len(store.calls(attempt.attempt_id)) == 259


def test_an_event_may_belong_to_no_attempt(store: Store) -> None:
    """What happens to a cluster between attempts is kept too."""
    event = Event(attempt_id="owner:here:1", source="driver", sequence=1, kind="actor died", created_utc_s=5.0)
    store.add([event])
    assert store.rows(Event) == (event,)


def test_a_live_lease_is_not_taken_even_when_running_is_asked_for(store: Store, study: Any) -> None:
    """`running` among the states means running under an expired lease."""
    cell = study.cell()
    study.register(store, cell)
    study.claim(store, cell)
    assert store.claim(cell.cell_key, owner="here:2", lease_s=60, states=("running", "planned")) is None


def test_grades_are_shared_by_key(store: Store) -> None:
    """A grade is stored once per patch, image and harness version."""
    grade = Grade(
        task_id="t", patch_hash="p", image_digest="i", harness_version="5", status="resolved", graded_utc_s=1.0
    )
    store.add([grade])
    store.add([grade])
    assert store.rows(Grade) == (grade,)
    assert store.rows(Call) == ()

"""How fast the results database takes rows, and how fast it answers with the concurrency table.

    python -m scripts.bench_db --rows 1000000
    python -m scripts.bench_db --rows 200000 --db postgresql://user@host/empty_database

Rows go through the recorder, as a run's do: the gate, transactions of 256 rows with the lease check, and on SQLite
synchronous=FULL. Prints a figure and its ratio to the target (above 1 is better than asked) for each.
"""

from __future__ import annotations

import argparse
import io
import tempfile
import time
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import NamedTuple

from db.__main__ import main as db_main
from db.records import Attempt, AttemptEnd, Call, Cell, Session, Sweep, SweepCell, attempt_id_of, to_json
from db.store import Store, owner_name

_MODEL = "qwen3.6-27b"
_NUM_TASKS = 50
_TARGET_ROWS_PER_S = {"sqlite": 15_000, "postgresql": 10_000}
_TARGET_TABLE_S = 2.0  # up to a million rows
_CONFIG = {
    "prices": {_MODEL: {"uncached": 0.30, "cached": 0.15, "completion": 2.70}},
    "kv": {_MODEL: {"bytes_per_token": 65536, "state_bytes": 150_323_855}},
}


class Ingest(NamedTuple):
    """Rows recorded and the seconds spent recording them."""

    num_rows: int
    seconds: float


def main() -> None:
    """Run the bench and print its figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000, help="call rows to write (default %(default)s)")
    parser.add_argument("--db", help="an empty database; by default a temporary SQLite file")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="convoy-bench-") as folder:
        location = arguments.db or str(Path(folder) / "bench.db")
        store = Store.open(location)
        kind = store.engine.dialect.name
        ingest = _fill(store, arguments.rows)
        store.close()
        rate, target = ingest.num_rows / ingest.seconds, _TARGET_ROWS_PER_S[kind]
        print(f"{kind} ingest: {rate:,.0f} call rows/s, ratio to {target:,}: {rate / target:.2f}")
        seconds = _time_table(location)
        target_s = _TARGET_TABLE_S * max(1.0, ingest.num_rows / 1_000_000)
        print(
            f"{kind} table concurrency over {ingest.num_rows:,} calls: {seconds:.2f} s,"
            f" ratio to {target_s:.2f} s: {target_s / seconds:.2f}"
        )


def _fill(store: Store, num_rows: int) -> Ingest:
    grid = [(arm, w) for w in (8, 16, 32, 48, 64) for arm in ("base", "refold")]
    cells = [_cell(arm, w) for arm, w in grid]
    members = [
        SweepCell(sweep="concurrency", cell_key=cell.cell_key, ordinal=index, arm=cell.arm)
        for index, cell in enumerate(cells)
    ]
    store.register_sweep(Sweep(name="concurrency", spec_json="{}", created_utc_s=time.time()), cells, members)
    written, seconds = 0, 0.0
    for index, cell in enumerate(cells):
        share = num_rows * (index + 1) // len(cells) - num_rows * index // len(cells)
        seconds += _run_cell(store, cell, share)
        written += share
    return Ingest(written, seconds)


def _cell(arm: str, num_workers: int) -> Cell:
    return Cell(
        cell_key=f"bench-{arm}-{num_workers}",
        spec_json="{}",
        arm=arm,
        num_workers=num_workers,
        renderer=arm,
        router="sticky",
        model=_MODEL,
        engine="simulated",
        executor="virtual",
        benchmark="synthetic",
        context_budget_tokens=None,
        seed=0,
        replicate=0,
    )


def _run_cell(store: Store, cell: Cell, num_rows: int) -> float:
    """Record one cell; returns the seconds the recorder took for the calls."""
    claim = store.claim(cell.cell_key, owner=owner_name(), lease_s=3600)
    if claim is None:
        raise SystemExit("the database is not empty: name an empty one with --db")
    attempt_id = attempt_id_of(cell.cell_key, claim.number)
    recorder = store.recorder(max_age_s=None)
    recorder.start_attempt(
        Attempt(
            attempt_id=attempt_id,
            cell_key=cell.cell_key,
            number=claim.number,
            lease_epoch=claim.epoch,
            owner=claim.owner,
            started_utc_s=time.time(),
            num_tasks=_NUM_TASKS,
            engine_kind="simulated",
            policy_kind="replay",
            benchmark_source="synthetic",
            signals_source="hindsight",
            stale_coverage=1.0,
            generated="opaque",
            config_json=to_json(_CONFIG),
        )
    )
    calls = list(_calls(attempt_id, num_rows))
    began = time.monotonic()
    for call in calls:
        recorder.record_call(call)
    recorder.flush()
    seconds = time.monotonic() - began
    for task in range(_NUM_TASKS):
        recorder.record_session(_session(attempt_id, task))
    recorder.finish_attempt(AttemptEnd(attempt_id=attempt_id, state="complete", finished_utc_s=time.time()))
    return seconds


def _task_id(task: int) -> str:
    return f"django__django-{10_000 + task}"


def _calls(attempt_id: str, num_rows: int) -> Iterator[Call]:
    """Calls as a run makes them: sessions interleaved, every column filled."""
    for number in range(num_rows):
        step, task = number // _NUM_TASKS + 1, number % _NUM_TASKS
        prompt = 2_000 + 400 * (step % 200)
        yield Call(
            attempt_id=attempt_id,
            session_id=_task_id(task),
            call_index=step,
            kind="main",
            state="ok",
            model=_MODEL,
            num_prompt_tokens=prompt,
            num_cached_tokens=prompt - 400,
            num_completion_tokens=300,
            queue_delay_s=0.01 * (number % 7),
            num_preemptions=int(number % 100 == 0),
            step=step,
            replica="r0",
            route_reason="sticky",
            num_estimated_prompt_tokens=prompt,
            usage_source="simulated",
            due_s=step * 10.0,
            sent_s=step * 10.0,
            first_token_s=step * 10.0 + 0.8,
            last_token_s=step * 10.0 + 6.5,
            tool_result_s=step * 10.0 - 0.1,
            requeue_s=0.0,
            prefill_s=0.7,
            decode_s=5.7,
            recomputed_tokens=0,
            render_ms=0.4,
            own_ms=0.1,
            own_s_modelled=0.0,
            boundary=3 * (step // 3),
            num_folded=step // 2,
            num_stubs=step // 5,
            num_exempt=0,
            system_task_tokens=1_800,
            agent_tokens=prompt // 4,
            observation_tokens=prompt // 2,
            removed_recoverable_tokens=prompt // 8,
            removed_reproducible_tokens=0,
            removed_irrecoverable_tokens=0,
            shared_prefix_tokens=prompt - 400,
            prompt_digest=f"{number:032x}",
            finish_reason="stop",
            loop_lag_ms=0.2,
            record_wait_ms=0.1,
        )


def _session(attempt_id: str, task: int) -> Session:
    return Session(
        attempt_id=attempt_id,
        session_id=_task_id(task),
        task_id=_task_id(task),
        ordinal=task,
        worker="w0",
        exit_status="Submitted",
        is_timed_out=False,
        is_exhausted=False,
        num_steps=100,
        num_main_calls=100,
        num_auxiliary_calls=0,
        started_s=float(task),
        finished_s=2_000.0 + task,
        first_request_s=float(task),
        last_response_s=1_990.0 + task,
        num_compactions=0,
    )


def _time_table(location: str) -> float:
    began = time.monotonic()
    with redirect_stdout(io.StringIO()):
        code = db_main(["table", "concurrency", "--db", location])
    if code != 0:
        raise SystemExit("the table failed")
    return time.monotonic() - began


if __name__ == "__main__":
    main()

"""Full disks, kills and readers in between: an acknowledged row is never lost, and the failure is one line."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

import db
from db.errors import StorageFull
from db.sql_recorder import SqlRecorder
from db.store import Store

RECORD_FOREVER = """
import sys
from db.records import Attempt, Call
from db.store import Store
store = Store.open(sys.argv[1])
claim = store.claim("c1-base-2", owner="here:1", lease_s=60)
recorder = store.recorder()
recorder.start_attempt(
    Attempt(
        attempt_id="c1-base-2.1", cell_key=claim.cell_key, number=claim.number, lease_epoch=claim.epoch,
        owner=claim.owner, started_utc_s=0.0, num_tasks=1, engine_kind="simulated", policy_kind="replay",
        benchmark_source="synthetic",
    )
)
common = {"attempt_id": "c1-base-2.1", "session_id": "t0", "kind": "main", "state": "ok", "model": "m"}
for index in range(1, 10**9):
    recorder.record_call(Call(call_index=index, **common))
    if index % 10 == 0:
        recorder.flush()
        print(index, flush=True)
"""


def flush_failure(recorder: SqlRecorder) -> str | None:
    """Flush; the message of a StorageFull, if it came to that."""
    try:
        recorder.flush()
    except StorageFull as error:
        return str(error)
    return None


def fill(store: Store, study: Any) -> int:
    """Record calls until the storage is full; returns how many were acknowledged."""
    cell = study.cell()
    study.register(store, cell)
    attempt = study.attempt(study.claim(store, cell))
    recorder = store.recorder(max_age_s=None)
    recorder.start_attempt(attempt)
    acknowledged = 0
    for index in range(1, 200_000):
        recorder.record_call(study.call(attempt.attempt_id, call_index=index, error="x" * 500))
        if index % 50 == 0:
            failure = flush_failure(recorder)
            if failure is not None:
                assert failure.endswith("the disk is full; free space and run again (committed rows are kept)")
                return acknowledged
            acknowledged = index
    raise AssertionError("the storage never filled up")


def test_a_full_database_is_one_line_and_keeps_acknowledged_rows(
    tmp_path: Path, prepared_sqlite: Path, study: Any
) -> None:
    """With room for 200 pages: StorageFull, what was flushed is there, and the rest follows once there is room."""
    path = tmp_path / "results.db"
    shutil.copy(prepared_sqlite, path)
    store = Store.open(path)
    limit = [200]

    @event.listens_for(store.engine, "checkout")
    def _cap(dbapi_connection: Any, *_: Any) -> None:
        dbapi_connection.execute(f"PRAGMA max_page_count = {limit[0]}")

    acknowledged = fill(store, study)
    assert acknowledged >= 50
    assert len(store.calls("c1-base-2.1")) == acknowledged
    limit[0] = 10_000
    with db.open(path) as reader:
        assert len(reader.select("call").rows) == acknowledged
    store.close()


def test_rows_that_met_a_full_disk_are_kept_for_the_next_flush(
    tmp_path: Path, prepared_sqlite: Path, study: Any
) -> None:
    """A failed commit loses nothing: after space was freed the same rows are committed."""
    path = tmp_path / "results.db"
    shutil.copy(prepared_sqlite, path)
    store = Store.open(path)
    limit = [10_000]

    @event.listens_for(store.engine, "checkout")
    def _cap(dbapi_connection: Any, *_: Any) -> None:
        dbapi_connection.execute(f"PRAGMA max_page_count = {limit[0]}")

    cell = study.cell()
    study.register(store, cell)
    attempt = study.attempt(study.claim(store, cell))
    recorder = store.recorder(max_age_s=None)
    recorder.start_attempt(attempt)
    limit[0] = 1  # SQLite takes the present size as the least limit
    for index in range(1, 201):
        recorder.record_call(study.call(attempt.attempt_id, call_index=index, error="x" * 2000))
    with pytest.raises(StorageFull):
        recorder.flush()
    assert store.calls(attempt.attempt_id) == ()
    limit[0] = 10_000
    recorder.flush()
    assert len(store.calls(attempt.attempt_id)) == 200
    store.close()


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MB."""
    if os.getuid() != 0:
        pytest.skip("mounting a small file system needs root")
    folder = tmp_path / "tiny"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip(f"cannot mount a tmpfs here: {mounted.stderr.decode().strip()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_really_full_disk(tiny_disk: Path, prepared_sqlite: Path, study: Any) -> None:
    """The same on a real file system of 2 MB; readers still work on the full disk."""
    shutil.copy(prepared_sqlite, tiny_disk / "results.db")
    store = Store.open(tiny_disk / "results.db")
    acknowledged = fill(store, study)
    with db.open(tiny_disk / "results.db") as reader:
        assert len(reader.select("call").rows) == acknowledged
    store.close()


def test_kill_minus_nine_keeps_acknowledged_rows(store: Store, location: str, study: Any) -> None:
    """A recorder killed in the middle of writing has committed at least what it had acknowledged, without a gap."""
    study.register(store, study.cell())
    command = [sys.executable, "-c", RECORD_FOREVER, location]
    acknowledged = 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        while acknowledged < 200:
            acknowledged = int(writer.stdout.readline())
        writer.kill()
        acknowledged = max([acknowledged, *map(int, writer.stdout.read().split())])
    found = [call.call_index for call in store.calls("c1-base-2.1")]
    assert found == list(range(1, len(found) + 1))
    assert len(found) >= acknowledged


def test_readers_see_whole_transactions_while_a_run_writes(store: Store, location: str, study: Any) -> None:
    """Readers that open and query all the time neither fail nor disturb; what they see only grows, by whole batches."""
    cell = study.cell()
    study.register(store, cell)
    attempt = study.attempt(study.claim(store, cell))
    recorder = store.recorder(max_age_s=None)
    recorder.start_attempt(attempt)
    seen: list[int] = []
    failures: list[Exception] = []
    is_over = threading.Event()

    def read() -> None:
        try:
            while not is_over.is_set():
                with db.open(location) as reader:
                    seen.append(len(reader.select("call").rows))
        except Exception as error:
            failures.append(error)

    thread = threading.Thread(target=read)
    thread.start()
    for index in range(1, 256 * 20 + 1):
        recorder.record_call(study.call(attempt.attempt_id, call_index=index))
    recorder.flush()
    is_over.set()
    thread.join()
    assert failures == []
    assert seen == sorted(seen)
    assert all(number % 256 == 0 for number in seen)

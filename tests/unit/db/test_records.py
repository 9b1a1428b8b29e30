"""Records: their invariants, and that they are the one declaration of the tables."""

from __future__ import annotations

import pickle
import subprocess
import sys
from dataclasses import fields

import pytest

from db.errors import RowRefused
from db.gate import columns_of
from db.recorder import ended
from db.records import WALL_CLOCK_COLUMNS, Attempt, AttemptEnd, Call, attempt_id_of, stable_fields
from db.tables import RECORDS, table_of


def call(**changes: object) -> Call:
    """A minimal call."""
    values = {"attempt_id": "a.1", "session_id": "t0", "call_index": 1, "kind": "main", "state": "ok", "model": "m"}
    return Call(**{**values, **changes})  # type: ignore[arg-type]


def test_cached_tokens_are_part_of_the_prompt() -> None:
    """A server that counts cached tokens besides the prompt is misread, and found at once."""
    call(num_prompt_tokens=10, num_cached_tokens=10)
    for prompt, cached in ((10, 11), (None, 5), (10, -1)):
        with pytest.raises(RowRefused, match="cached is part of prompt"):
            call(num_prompt_tokens=prompt, num_cached_tokens=cached)


def test_queue_delay_is_never_negative() -> None:
    """A negative delay comes from the last QUEUED event instead of the first (vLLM after re-queueing)."""
    with pytest.raises(RowRefused, match="first scheduled is before arrival"):
        call(queue_delay_s=-0.1)


def test_call_states_are_a_closed_set() -> None:
    """Every call ends in one of four states."""
    with pytest.raises(RowRefused, match="error, exhausted, ok, timeout"):
        call(state="aborted")


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.TABLE)
def test_a_table_has_exactly_its_records_columns(record: type) -> None:
    """Names, order and nullability come from the record; its KEY is the primary key."""
    table = table_of(record)
    assert [(c.name, c.nullable) for c in table.columns] == [(c.name, c.is_nullable) for c in columns_of(record)]
    assert tuple(column.name for column in table.primary_key) == record.KEY


def test_wall_clock_columns_exist() -> None:
    """Every name that may differ between two runs is a column of some table."""
    assert {column.name for record in RECORDS for column in columns_of(record)} >= WALL_CLOCK_COLUMNS


def test_an_attempts_end_is_part_of_the_attempt() -> None:
    """Every field of AttemptEnd is a column of Attempt, and `ended` fills it in."""
    assert {f.name for f in fields(AttemptEnd)} <= {f.name for f in fields(Attempt)}
    attempt = Attempt(
        attempt_id=attempt_id_of("c1-x", 3),
        cell_key="c1-x",
        number=3,
        lease_epoch=1,
        owner="o",
        started_utc_s=0.0,
        num_tasks=1,
        engine_kind="simulated",
        policy_kind="replay",
        benchmark_source="recorded",
    )
    assert attempt.attempt_id == "c1-x.3"
    end = AttemptEnd(attempt_id="c1-x.3", state="complete", finished_utc_s=4.0, share_full_w=1.0)
    assert ended(attempt, end).share_full_w == 1.0


def test_records_travel_between_processes() -> None:
    """A row sent to a recorder in another process arrives equal."""
    sent = call(num_prompt_tokens=10, error="x")
    assert pickle.loads(pickle.dumps(sent)) == sent


def test_stable_fields_leave_the_wall_clock_out() -> None:
    """Two runs of a simulated cell may differ in measured milliseconds, not in anything else."""
    assert stable_fields(call(render_ms=0.4, due_s=1.0)) == stable_fields(call(render_ms=0.7, due_s=1.0))
    assert stable_fields(call(due_s=1.0)) != stable_fields(call(due_s=1.1))


def test_writers_do_not_load_sqlalchemy() -> None:
    """An agent worker imports records and the recorder protocol; sixty-four of them must stay small."""
    code = "import sys, db.records, db.recorder; print(sorted({'sqlalchemy', 'alembic', 'rich'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"

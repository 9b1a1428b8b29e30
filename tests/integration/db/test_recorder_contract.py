"""One suite for both recorders: whatever the in-memory recorder holds, the SQL recorder has committed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from db.errors import LeaseLost, RecorderMisuse, RowRefused
from db.recorder import InMemoryRecorder, Recorder
from db.records import Attempt, AttemptEnd, Call, Event, ServerSample, Session, ToolExecution
from db.store import Store

KINDS = (Session, Call, ServerSample, ToolExecution, Event)


class Pair:
    """A recorder and a way to read back what it has committed."""

    def __init__(self, recorder: Recorder, read: Callable[[type[Any]], list[Any]], lose_lease: Callable[[], None]):
        self.recorder = recorder
        self.read = read
        self.lose_lease = lose_lease


@pytest.fixture
def attempt(started: Callable[[], Attempt]) -> Attempt:
    """A claimed attempt."""
    return started()


@pytest.fixture(params=["memory", "sql"])
def pair(request: pytest.FixtureRequest, store: Store, attempt: Attempt) -> Pair:
    """Each recorder in turn."""
    if request.param == "memory":
        memory = InMemoryRecorder()
        return Pair(
            memory,
            lambda kind: [memory.attempts[attempt.attempt_id]] if kind is Attempt else list(memory.rows[kind]),
            lambda: memory.lose_lease(attempt.attempt_id),
        )
    return Pair(
        store.recorder(),
        lambda kind: list(store.rows(kind)),
        lambda: None if store.mark_lost([attempt.cell_key]) else None,
    )


def every_row(study: Any, attempt_id: str) -> list[Any]:
    """Rows of every kind, with text and values that databases like to change."""
    return [
        study.call(attempt_id, "t0", 1, error="nul \0, lone \udcff, umlaut ü, quote ' and emoji 🙂"),
        study.call(attempt_id, "t0", 2, num_cached_tokens=None, queue_delay_s=1e-9, state="timeout"),
        study.call(attempt_id, "t1", 1, num_prompt_tokens=2**40, num_cached_tokens=0, is_priced_uncached=True),
        study.session(attempt_id, 0, submission="--- a\n+++ b\n", first_request_s=0.1 + 0.2),
        study.sample(attempt_id, 0.5, kv_usage=None),
        ToolExecution(attempt_id=attempt_id, session_id="t0", turn=1, started_s=1.0, finished_s=2.0, is_rerun=True),
        Event(attempt_id=attempt_id, source="driver", sequence=1, kind="notice"),
    ]


def record(recorder: Recorder, row: Any) -> None:
    """Call the verb of the row's class."""
    verbs: dict[type[Any], Callable[[Any], None]] = {
        Call: recorder.record_call,
        Session: recorder.record_session,
        ServerSample: lambda sample: recorder.record_samples([sample]),
        ToolExecution: recorder.record_tool_execution,
        Event: recorder.record_event,
    }
    verbs[type(row)](row)


def test_both_recorders_hold_the_same_rows(store: Store, attempt: Attempt, study: Any) -> None:
    """After flush, every row of every kind reads back equal from the database and from memory."""
    memory, sql = InMemoryRecorder(), store.recorder()
    for recorder in (memory, sql):
        recorder.start_attempt(attempt)
        for row in every_row(study, attempt.attempt_id):
            record(recorder, row)
        recorder.flush()
        recorder.finish_attempt(
            AttemptEnd(attempt_id=attempt.attempt_id, state="complete", finished_utc_s=9.0, sim_s=3.5)
        )
    for kind in KINDS:
        assert sorted(memory.rows[kind], key=repr) == sorted(store.rows(kind), key=repr)
    assert [memory.attempts[attempt.attempt_id]] == list(store.attempts())


def test_flush_commits_what_was_accepted(pair: Pair, attempt: Attempt, study: Any) -> None:
    """Rows are there once flush has returned."""
    pair.recorder.start_attempt(attempt)
    pair.recorder.record_call(study.call(attempt.attempt_id))
    pair.recorder.flush()
    assert len(pair.read(Call)) == 1


def test_a_row_sent_twice_is_kept_once(pair: Pair, attempt: Attempt, study: Any) -> None:
    """The first row of a key stays; a repeated message is no error."""
    pair.recorder.start_attempt(attempt)
    pair.recorder.record_call(study.call(attempt.attempt_id, finish_reason="stop"))
    pair.recorder.record_call(study.call(attempt.attempt_id, finish_reason="length"))
    pair.recorder.flush()
    pair.recorder.record_call(study.call(attempt.attempt_id, finish_reason="other"))
    pair.recorder.flush()
    assert [call.finish_reason for call in pair.read(Call)] == ["stop"]


def test_a_client_retry_is_its_own_row(pair: Pair, attempt: Attempt, study: Any) -> None:
    """try_index is part of the key."""
    pair.recorder.start_attempt(attempt)
    for try_index in (1, 2):
        pair.recorder.record_call(study.call(attempt.attempt_id, try_index=try_index))
    pair.recorder.flush()
    assert len(pair.read(Call)) == 2


def test_rows_of_an_unknown_attempt_are_refused(pair: Pair, study: Any) -> None:
    """A row without a started attempt is a mistake of the caller."""
    with pytest.raises(RecorderMisuse, match="was not started"):
        pair.recorder.record_call(study.call("nobody.1"))


def test_an_ended_attempt_takes_no_more_rows(pair: Pair, attempt: Attempt, study: Any) -> None:
    """After finish_attempt nothing can be added."""
    pair.recorder.start_attempt(attempt)
    pair.recorder.finish_attempt(AttemptEnd(attempt_id=attempt.attempt_id, state="failed", finished_utc_s=1.0))
    with pytest.raises(RecorderMisuse, match="ended"):
        pair.recorder.record_call(study.call(attempt.attempt_id))


def test_finish_writes_the_end_and_commits_pending_rows(pair: Pair, attempt: Attempt, study: Any) -> None:
    """finish_attempt needs no flush before it."""
    pair.recorder.start_attempt(attempt)
    pair.recorder.record_call(study.call(attempt.attempt_id))
    pair.recorder.finish_attempt(
        AttemptEnd(attempt_id=attempt.attempt_id, state="tainted", finished_utc_s=5.0, taint_reasons_json='["x"]')
    )
    (ended,) = pair.read(Attempt)
    assert (ended.state, ended.finished_utc_s, ended.taint_reasons_json) == ("tainted", 5.0, '["x"]')
    assert len(pair.read(Call)) == 1


def test_only_terminal_states_end_an_attempt(pair: Pair, attempt: Attempt) -> None:
    """`running` is not an end."""
    pair.recorder.start_attempt(attempt)
    with pytest.raises(RecorderMisuse, match="complete, failed, lost, tainted"):
        pair.recorder.finish_attempt(AttemptEnd(attempt_id=attempt.attempt_id, state="running", finished_utc_s=1.0))


def test_nan_is_refused_and_the_recorder_goes_on(pair: Pair, attempt: Attempt, study: Any) -> None:
    """A refused row is not stored, the next one is."""
    pair.recorder.start_attempt(attempt)
    with pytest.raises(RowRefused, match="queue_delay_s is nan"):
        pair.recorder.record_call(study.call(attempt.attempt_id, queue_delay_s=float("nan")))
    pair.recorder.record_call(study.call(attempt.attempt_id))
    pair.recorder.flush()
    assert len(pair.read(Call)) == 1


def test_a_lost_lease_stops_everything(pair: Pair, attempt: Attempt, study: Any) -> None:
    """Rows accepted before the loss was noticed are dropped, and every later verb raises LeaseLost."""
    pair.recorder.start_attempt(attempt)
    pair.recorder.record_call(study.call(attempt.attempt_id, call_index=1))
    pair.recorder.flush()
    pair.recorder.record_call(study.call(attempt.attempt_id, call_index=2))
    pair.lose_lease()
    with pytest.raises(LeaseLost):
        pair.recorder.flush()
    with pytest.raises(LeaseLost):
        pair.recorder.record_call(study.call(attempt.attempt_id, call_index=3))
    with pytest.raises(LeaseLost):
        pair.recorder.finish_attempt(AttemptEnd(attempt_id=attempt.attempt_id, state="complete", finished_utc_s=1.0))
    assert [call.call_index for call in pair.read(Call)] == [1]

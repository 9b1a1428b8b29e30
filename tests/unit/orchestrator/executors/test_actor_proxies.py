"""The worker's side of the actors, with handles that answer without Ray."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import ray

from db.errors import DbError, DbUnavailable, LeaseLost
from db.records import Call
from orchestrator.executors.actor_proxies import ActorSink, is_own_death, outcome_of_ray_error
from orchestrator.executors.loop_lag import LoopLag


class Method:
    """A handle's method: `remote` gives something to await."""

    def __init__(self, answer: Callable[..., Awaitable[Any]]) -> None:
        self.remote = answer


class Recorder:
    """A recorder handle that keeps rows and answers when it is let."""

    def __init__(self, error: Exception | None = None, *, raises: bool = False) -> None:
        self.rows: list[Any] = []
        self.messages = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self._error, self._raises = error, raises
        self.record = Method(self._record)

    async def _record(self, attempt_id: str, rows: list[Any]) -> Exception | None:
        await self.gate.wait()
        if self._raises:
            assert self._error is not None
            raise self._error
        self.messages += 1
        self.rows += rows
        return self._error


def call(index: int) -> Call:
    """Call row number `index`."""
    return Call(attempt_id="a", session_id="t", call_index=index, kind="main", state="exhausted", model="m")


def test_rows_leave_in_order_and_settle_waits() -> None:
    """Rows of one moment travel together; `settle(0)` returns when all are acknowledged, `settle(64)` at once."""

    async def run() -> None:
        recorder = Recorder()
        recorder.gate.clear()
        sink = ActorSink("a", recorder)
        for index in range(1, 11):
            sink.record_call(call(index))
        await asyncio.wait_for(sink.settle(max_pending=64), 1)
        waiting = asyncio.create_task(sink.settle(max_pending=0))
        await asyncio.sleep(0.01)
        assert not waiting.done()
        recorder.gate.set()
        await asyncio.wait_for(waiting, 1)
        assert [row.call_index for row in recorder.rows] == list(range(1, 11))
        assert recorder.messages == 1

    asyncio.run(run())


def test_an_error_stops_the_session_at_its_next_row() -> None:
    """The recorder's own error is raised by `settle` and by every later row."""

    async def run() -> None:
        sink = ActorSink("a", Recorder(LeaseLost("taken")))
        sink.record_call(call(1))
        with pytest.raises(LeaseLost, match="taken"):
            await sink.settle(max_pending=0)
        with pytest.raises(LeaseLost):
            sink.record_call(call(2))

    asyncio.run(run())


def test_a_dead_recorder_is_a_database_error() -> None:
    """The death of the recorder's process reaches the session as DbUnavailable, which ends it as RecorderLost."""

    async def run() -> None:
        sink = ActorSink("a", Recorder(ray.exceptions.ActorDiedError(), raises=True))
        sink.record_call(call(1))
        with pytest.raises(DbUnavailable, match="the recorder is gone"):
            await sink.settle(max_pending=0)

    asyncio.run(run())


def test_the_lag_since_the_last_call_goes_into_the_row() -> None:
    """`loop_lag_ms` of a call row is the largest lag measured since the row before."""

    async def run() -> list[Any]:
        recorder, lag = Recorder(), LoopLag()
        lag._recent_ms = 7.5  # as its ticker would have left it
        sink = ActorSink("a", recorder, lag)
        sink.record_call(call(1))
        sink.record_call(call(2))
        await sink.settle(max_pending=0)
        return recorder.rows

    assert [row.loop_lag_ms for row in asyncio.run(run())] == [7.5, 0.0]


def test_a_task_error_is_not_a_death() -> None:
    """What an actor's code raises, even about another actor's death, is not the death of the actor that was called."""
    died = ray.exceptions.ActorDiedError()
    through = ray.exceptions.RayTaskError("f", "traceback", died).as_instanceof_cause()
    assert isinstance(through, ray.exceptions.RayActorError)
    assert is_own_death(died)
    assert not is_own_death(through)


@pytest.mark.parametrize(
    ("error", "reason", "exit_class"),
    [
        (ray.exceptions.WorkerCrashedError(), None, "WorkerLost"),
        (ray.exceptions.WorkerCrashedError(), "deadline", "Cancelled"),
        (ray.exceptions.RayTaskError("f", "traceback", ValueError("x")), None, "Bug"),
    ],
)
def test_outcomes_of_ray_errors(error: Exception, reason: str | None, exit_class: str) -> None:
    """A dead task is WorkerLost, one that we cancelled Cancelled, one whose code raised a Bug that names the cause."""
    assert outcome_of_ray_error("a", error, reason).exit_class == exit_class


def test_errors_survive_the_way_between_processes() -> None:
    """Typed errors keep their class and text when they are pickled as values."""
    import pickle

    from serving import errors as serving_errors

    for error in (LeaseLost("x"), DbError("y"), serving_errors.StreamTimeout("z"), serving_errors.ContextOverflow("w")):
        copy = pickle.loads(pickle.dumps(error))
        assert (type(copy), str(copy)) == (type(error), str(error))

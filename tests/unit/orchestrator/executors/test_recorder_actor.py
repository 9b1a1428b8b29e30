"""What the recorder actor does, without Ray: batches, acknowledgements and errors as values."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from db.errors import DbError, LeaseLost
from db.records import Attempt, Call, Cell, Sweep, SweepCell, attempt_id_of
from db.store import Store
from orchestrator.executors.recorder_actor import RecorderState

KEY = "v1-cell"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A database with one claimed cell and its first attempt."""
    opened = Store.open(tmp_path / "results.db")
    cell = Cell(
        cell_key=KEY,
        spec_json="{}",
        arm="base",
        num_workers=1,
        renderer="base",
        router="sticky",
        model="m",
        engine="simulated",
        executor="ray_actors",
        benchmark="synthetic",
        context_budget_tokens=None,
        seed=0,
        replicate=1,
    )
    member = SweepCell(sweep="s", cell_key=KEY, ordinal=0, arm="base")
    opened.register_sweep(Sweep(name="s", spec_json="{}", created_utc_s=0.0), [cell], [member])
    claim = opened.claim(KEY, owner="here:1", lease_s=600)
    assert claim is not None
    opened.start_attempt(
        Attempt(
            attempt_id=attempt_id_of(KEY, 1),
            cell_key=KEY,
            number=1,
            lease_epoch=claim.epoch,
            owner=claim.owner,
            started_utc_s=0.0,
            num_tasks=1,
            engine_kind="simulated",
            policy_kind="replay",
            benchmark_source="synthetic",
        )
    )
    return opened


def call(index: int) -> Call:
    """Call row number `index`."""
    return Call(
        attempt_id=attempt_id_of(KEY, 1), session_id="t", call_index=index, kind="main", state="exhausted", model="m"
    )


def recorder(store: Store) -> RecorderState:
    """A recorder on the same database."""
    return RecorderState(str(store.engine.get_execution_options()["convoy_path"]))


def test_acknowledged_means_committed(store: Store) -> None:
    """When `record` answers None, another connection sees the rows; rows of one moment share a transaction."""
    state = recorder(store)
    attempt_id = attempt_id_of(KEY, 1)

    async def run() -> list[DbError | None]:
        assert state.open_attempt(attempt_id) is None
        answers = await asyncio.gather(*(state.record(attempt_id, [call(index)]) for index in range(1, 6)))
        assert len(store.calls(attempt_id)) == 5
        return list(answers)

    assert asyncio.run(run()) == [None] * 5


def test_more_than_a_batch_is_committed_at_once(store: Store) -> None:
    """600 rows in one message are all on disk when it is answered."""
    state = recorder(store)
    attempt_id = attempt_id_of(KEY, 1)

    async def run() -> None:
        state.open_attempt(attempt_id)
        assert await state.record(attempt_id, [call(index) for index in range(1, 601)]) is None

    asyncio.run(run())
    assert len(store.calls(attempt_id)) == 600


def test_a_lost_lease_answers_every_sender(store: Store) -> None:
    """After a takeover every sender gets LeaseLost and nothing is written."""
    state = recorder(store)
    attempt_id = attempt_id_of(KEY, 1)

    async def run() -> list[DbError | None]:
        state.open_attempt(attempt_id)
        store.mark_lost([KEY])
        return list(await asyncio.gather(*(state.record(attempt_id, [call(index)]) for index in (1, 2))))

    answers = asyncio.run(run())
    assert [type(answer) for answer in answers] == [LeaseLost, LeaseLost]
    assert store.calls(attempt_id) == ()


def test_an_attempt_that_is_not_ours_is_refused(store: Store) -> None:
    """Opening an attempt whose cell another owner has taken answers LeaseLost; rows without opening are refused."""
    state = recorder(store)
    store.mark_lost([KEY])
    assert isinstance(state.open_attempt(attempt_id_of(KEY, 1)), LeaseLost)
    answer = asyncio.run(state.record(attempt_id_of(KEY, 1), [call(1)]))
    assert isinstance(answer, DbError)


def test_closing_commits_and_forgets(store: Store) -> None:
    """`close_attempt` is harmless twice; afterwards the attempt takes no rows."""
    state = recorder(store)
    attempt_id = attempt_id_of(KEY, 1)

    async def run() -> None:
        state.open_attempt(attempt_id)
        assert await state.close_attempt(attempt_id) is None
        assert await state.close_attempt(attempt_id) is None
        assert isinstance(await state.record(attempt_id, [call(1)]), DbError)

    asyncio.run(run())

"""The recorder as an actor on the driver's node: the only process that writes rows, whoever sends them.

Acknowledged means committed: `record` answers when the rows it was given are on disk. Rows that arrive within 2 ms,
from any number of workers, share one transaction (at most 256 rows).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import ray

from db.errors import DbError
from orchestrator.executors.packages import block_pyarrow

if TYPE_CHECKING:
    from db.gate import Row
    from db.sql_recorder import SqlRecorder
    from db.store import Store

_BATCH_WAIT_S = 0.002
_BATCH_ROWS = 256


@dataclass(slots=True)
class _Book:
    """The rows of one attempt: its recorder and the senders that wait for the next commit."""

    recorder: SqlRecorder
    waiting: list[asyncio.Future[DbError | None]] = field(default_factory=list)
    num_pending: int = 0
    timer: asyncio.TimerHandle | None = None


class RecorderState:
    """What the actor does, without Ray. Every verb answers None or the error; it raises nothing of the database's."""

    def __init__(self, db_url: str) -> None:
        self._db_url = db_url
        self._store: Store | None = None
        self._books: dict[str, _Book] = {}

    def open_attempt(self, attempt_id: str) -> DbError | None:
        """Take the rows of an attempt that the driver has started; nothing happens when it is open."""
        from db.store import Store

        if attempt_id in self._books:
            return None

        try:
            if self._store is None:
                self._store = Store.open(self._db_url)
            recorder = self._store.recorder(max_rows=_BATCH_ROWS, max_age_s=None)
            recorder.adopt_attempt(attempt_id)
        except DbError as exc:
            return exc
        self._books[attempt_id] = _Book(recorder)
        return None

    async def record(self, attempt_id: str, rows: Sequence[Row]) -> DbError | None:
        """Answer when `rows` are committed."""
        book = self._books.get(attempt_id)
        if book is None:
            return DbError(f"attempt {attempt_id} is not open with this recorder")
        try:
            for row in rows:
                _accept(book.recorder, row)
        except DbError as exc:
            return exc
        loop = asyncio.get_running_loop()
        done: asyncio.Future[DbError | None] = loop.create_future()
        book.waiting.append(done)
        book.num_pending += len(rows)
        if book.num_pending >= _BATCH_ROWS:
            self._commit(book)
        elif book.timer is None:
            book.timer = loop.call_later(_BATCH_WAIT_S, self._commit, book)
        return await done

    async def close_attempt(self, attempt_id: str) -> DbError | None:
        """Commit what is left and forget the attempt."""
        book = self._books.pop(attempt_id, None)
        return None if book is None else self._commit(book)

    def _commit(self, book: _Book) -> DbError | None:
        """Commit and answer everybody who waits."""
        error = None
        if book.timer is not None:
            book.timer.cancel()
            book.timer = None
        try:
            book.recorder.flush()
        except DbError as exc:
            error = exc
        waiting, book.waiting = book.waiting, []
        book.num_pending = 0
        for one in waiting:
            if not one.done():
                one.set_result(error)
        return error


def _accept(recorder: SqlRecorder, row: Any) -> None:
    """Hand a row to the verb of its kind."""
    table = type(row).TABLE
    if table == "server_sample":
        recorder.record_samples([row])
    else:
        getattr(recorder, f"record_{table}")(row)


class RecorderActor:
    """`RecorderState` behind a Ray handle."""

    def __init__(self, db_url: str) -> None:
        block_pyarrow()
        self._state = RecorderState(db_url)

    async def hello(self) -> int:
        """The process id; answers when the actor is up."""
        return os.getpid()

    async def open_attempt(self, attempt_id: str) -> DbError | None:
        """See `RecorderState`."""
        return self._state.open_attempt(attempt_id)

    async def record(self, attempt_id: str, rows: Sequence[Row]) -> DbError | None:
        """See `RecorderState`."""
        return await self._state.record(attempt_id, rows)

    async def close_attempt(self, attempt_id: str) -> DbError | None:
        """See `RecorderState`."""
        return await self._state.close_attempt(attempt_id)


RemoteRecorder: Any = ray.remote(num_cpus=0, max_restarts=0, max_task_retries=0, max_concurrency=10_000)(RecorderActor)

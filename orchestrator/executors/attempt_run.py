"""One attempt on Ray actors, seen from the driver: start its replicas, hand out its sessions, gather how it ended.

Runs on the coordinator's loop. The first end that invalidates the cell stops all other sessions; whatever happens is
the attempt's outcome, nothing is retried.
"""

from __future__ import annotations

import asyncio
import math
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import ray

from db import records
from db.errors import DbError
from orchestrator.attempt import AttemptSetup, prepare, replica_plans, view_of
from orchestrator.errors import UserError
from orchestrator.executors.actor_pool import ActorPool, Worker, start_spread
from orchestrator.executors.actor_proxies import is_own_death, one_line
from orchestrator.executors.errors import ClusterError
from orchestrator.executors.notices import NOTICES
from orchestrator.executors.replica_actor import RemoteReplica, ReplicaFacts
from orchestrator.executors.shared_clock import SharedClock
from orchestrator.executors.view_board import RemoteViewBoard, wait_s_of
from orchestrator.executors.worker_actor import Peers, WorkerReport
from orchestrator.interfaces import AttemptOutcome, AttemptPlan, AttemptProgress
from serving.clock import stopwatch_s, utc_s
from serving.errors import ServingError
from workers.errors import ConfigurationError

if TYPE_CHECKING:
    from workers.interfaces import Task

# How long sessions may take to record themselves after they were told to stop, wall seconds.
_STOP_GRACE_S = 15.0
_LOST = frozenset({"WorkerLost", "ReplicaLost", "RecorderLost"})
# Ray's notice of a death comes a moment after the death.
_NOTICE_POLLS, _NOTICE_POLL_S = 20, 0.1
# The starting instant lies this far ahead, so that every process knows it before it is over.
_BEGIN_AHEAD_S, _BEGIN_AHEAD_S_PER_WORKER = 0.1, 0.01


class AttemptFailed(Exception):
    """The attempt's end, other than `ok`."""

    def __init__(self, exit_class: str, message: str, detail: str = "") -> None:
        super().__init__(message)
        self.exit_class = exit_class
        self.message = message
        self.detail = detail


@dataclass(frozen=True, slots=True)
class RunSettings:
    """What the executor decides for every attempt."""

    clock_speed: float
    sessions_per_actor: int
    signal_age_s: float


@dataclass(slots=True)
class _Replica:
    """A launched replica actor."""

    replica_id: str
    handle: Any
    facts: ReplicaFacts


class AttemptRun:
    """Runs one attempt; `run` returns its outcome and raises nothing but cancellation."""

    def __init__(self, plan: AttemptPlan, pool: ActorPool, settings: RunSettings) -> None:
        self.plan = plan
        self._pool = pool
        self._settings = settings
        self._clock = SharedClock(settings.clock_speed)
        self._failure: AttemptFailed | None = None
        self._stopping = asyncio.Event()
        self._workers: list[Worker] = []
        self._replicas: list[_Replica] = []
        self._actors: list[Any] = []  # everything started for this attempt alone
        self._recorder: Any = None
        self._num_slots = self._num_tasks = self._num_done = self._num_open = self._num_calls = 0
        self.facts: dict[str, Any] = {}

    async def run(self) -> AttemptOutcome:
        """Run to the end; every failure is an outcome."""
        started_s = stopwatch_s()
        try:
            await self._run()
        except AttemptFailed as exc:
            self._fail(exc)
        except (ConfigurationError, UserError, ServingError) as exc:
            self._fail(AttemptFailed(type(exc).__name__, str(exc)))
        except ClusterError as exc:
            self._fail(AttemptFailed("WorkerLost", str(exc)))
        except Exception as exc:  # the attempt boundary: the driver records it and goes on with other cells
            self._fail(AttemptFailed("Bug", f"{type(exc).__name__}: {exc}", traceback.format_exc()))
        finally:
            self._end_actors()
        await self._close_book()
        self.facts["wall_s"] = stopwatch_s() - started_s
        failure = self._failure
        if failure is None:
            return AttemptOutcome(self.plan.attempt_id, "ok", facts=self.facts)
        return AttemptOutcome(self.plan.attempt_id, failure.exit_class, failure.message, failure.detail, self.facts)

    def cancel(self, reason: str) -> None:
        """Stop the attempt; its outcome says Cancelled. Before the sessions have begun it only takes effect then."""
        self._fail(AttemptFailed("Cancelled", reason))

    def progress(self) -> AttemptProgress:
        """Counters for the display; calls are those of ended sessions."""
        return AttemptProgress(
            attempt_id=self.plan.attempt_id,
            sessions_done=self._num_done,
            sessions_total=self._num_tasks,
            sessions_open=self._num_open,
            calls=self._num_calls,
            clock_s=self._clock.now_s(),
        )

    def _fail(self, failure: AttemptFailed) -> None:
        """The first failure is the attempt's; later ones follow from it."""
        if self._failure is None:
            self._failure = failure
        self._stopping.set()

    async def _run(self) -> None:
        started_s = stopwatch_s()
        setup = await asyncio.to_thread(prepare, self.plan)
        self._num_tasks = len(setup.tasks)
        self._recorder = await self._pool.recorder(self.plan.db_url)
        await self._recorded(self._recorder.open_attempt.remote(self.plan.attempt_id))
        await self._launch_replicas(setup)
        await self._set_up_workers(setup)
        self.facts["prepare_s"] = stopwatch_s() - started_s
        await self._hand_out(setup)
        self.facts["sim_s"] = self._clock.now_s()
        await self._finish()

    # ---- start

    async def _launch_replicas(self, setup: AttemptSetup) -> None:
        plans = replica_plans(setup.config)
        starts = [
            start_spread(RemoteReplica, f"replica {plan.replica_id}", place=index) for index, plan in enumerate(plans)
        ]
        made = await asyncio.gather(*starts)
        handles = [one.handle for one in made]
        self._actors += handles
        launches = [
            _blamed(handle.launch.remote(self.plan, index, self._settings.clock_speed, self._recorder), "ReplicaLost")
            for index, handle in enumerate(handles)
        ]
        launched = await asyncio.gather(*launches)
        self._replicas = [
            _Replica(plan.replica_id, handle, facts)
            for plan, handle, facts in zip(plans, handles, launched, strict=True)
        ]
        self.facts["was_cache_warm"] = any(one.facts.is_cache_warm for one in self._replicas)
        self.facts["replica_pids"] = {one.replica_id: one.facts.pid for one in self._replicas}
        self.facts["recorder_pid"] = self._pool.recorder_pid

    async def _set_up_workers(self, setup: AttemptSetup) -> None:
        count = math.ceil(setup.num_workers / self._settings.sessions_per_actor)
        self._workers = await self._pool.borrow(count)
        self.facts["worker_pids"] = [worker.pid for worker in self._workers]
        views = [view_of(plan) for plan in replica_plans(setup.config)]
        peers = Peers(
            recorder=self._recorder,
            replicas={one.replica_id: one.handle for one in self._replicas},
            endpoints={one.replica_id: one.facts.endpoint for one in self._replicas},
            views=views,
            board=await self._start_board(setup, views),
            signal_age_s=self._settings.signal_age_s,
        )
        await self._all_workers("set_up", self.plan, self._settings.clock_speed, peers)

    async def _start_board(self, setup: AttemptSetup, views: Sequence[Any]) -> Any:
        if not getattr(setup.router, "uses_load", False):
            return None
        board = RemoteViewBoard.remote()
        self._actors.append(board)
        wait_s = wait_s_of(self._settings.signal_age_s, self._clock)
        await _blamed(board.start.remote(views, [one.handle for one in self._replicas], wait_s), "ReplicaLost")
        return board

    async def _begin(self, num_tasks: int) -> None:
        """Start the clock everywhere at once, when the first w sessions are ready to send their first call."""
        counts: Counter[int] = Counter(self._place_of(index) for index in range(min(self._num_slots, num_tasks)))
        gates = [self._of_worker(self._workers[place], "at_gate", count) for place, count in counts.items()]
        await asyncio.gather(*gates)
        start_utc_s = utc_s() + _BEGIN_AHEAD_S + _BEGIN_AHEAD_S_PER_WORKER * len(self._workers)
        self._clock.begin(start_utc_s)
        begins = [_blamed(one.handle.begin.remote(start_utc_s), "ReplicaLost") for one in self._replicas]
        await asyncio.gather(*begins, self._all_workers("begin", start_utc_s))

    # ---- sessions

    async def _hand_out(self, setup: AttemptSetup) -> None:
        """Hand tasks out in order, one per free slot, until none is left or the attempt is stopped."""
        handing = iter(enumerate(setup.tasks))
        self._num_slots = setup.num_workers
        slots = [
            asyncio.create_task(self._slot(self._workers[self._place_of(index)], index, handing))
            for index in range(self._num_slots)
        ]
        beginning = asyncio.create_task(self._begin(len(setup.tasks)))
        stopping = asyncio.create_task(self._stopping.wait())
        open_slots: set[asyncio.Task[Any]] = {*slots, beginning}
        while open_slots and not stopping.done():
            await asyncio.wait({*open_slots, stopping}, return_when=asyncio.FIRST_COMPLETED)
            for slot in open_slots:
                if not slot.done() or (error := slot.exception()) is None:
                    continue
                if isinstance(error, AttemptFailed):
                    self._fail(error)
                else:
                    text = "".join(traceback.format_exception(error))
                    self._fail(AttemptFailed("Bug", f"{type(error).__name__}: {error}", text))
            open_slots = {slot for slot in open_slots if not slot.done()}
        stopping.cancel()
        beginning.cancel()
        if self._failure is not None:
            await self._stop_slots(open_slots)
            raise self._failure
        await asyncio.gather(*slots)

    async def _slot(self, worker: Worker, index: int, handing: Iterator[tuple[int, Task]]) -> None:
        """One of the w places: its sessions, one after another."""
        while not self._stopping.is_set() and (handed := next(handing, None)) is not None:
            ordinal, task = handed
            self._num_open += 1
            try:
                report = await worker.handle.run_session.remote(task, ordinal, f"worker-{index}")
            except ray.exceptions.RayError as exc:
                worker.is_lost = is_own_death(exc)
                self._fail(_failure_of(exc, "WorkerLost", f"{task.task_id}: its worker (pid {worker.pid})"))
                return
            finally:
                self._num_open -= 1
            self._num_done += 1
            self._num_calls += report.num_calls
            if report.invalidates_cell:
                self._fail(AttemptFailed(report.status, f"{task.task_id}: {report.message}"))

    async def _stop_slots(self, open_slots: set[asyncio.Task[Any]]) -> None:
        """Let open sessions record themselves as Cancelled; a worker that does not answer is given up."""
        if not open_slots:
            return
        stops = [worker.handle.stop.remote() for worker in self._workers if not worker.is_lost]
        answering = asyncio.gather(*(_quietly(one) for one in stops))
        _, late = await asyncio.wait(open_slots, timeout=_STOP_GRACE_S)
        answering.cancel()
        for slot in late:
            slot.cancel()
        if late:
            await asyncio.gather(*late, return_exceptions=True)
            for worker in self._workers:
                worker.is_lost = True

    # ---- end

    async def _finish(self) -> None:
        reports: list[WorkerReport] = await self._all_workers("finish")
        self.facts["max_loop_lag_ms"] = max(report.max_loop_lag_ms for report in reports)
        self.facts["peak_rss_bytes"] = max(report.peak_rss_bytes for report in reports)
        ended = await asyncio.gather(*(_blamed(one.handle.finish.remote(), "ReplicaLost") for one in self._replicas))
        self.facts["cpu_s_by_part"] = {
            "workers": sum(report.cpu_s for report in reports),
            "replicas": sum(report.cpu_s for report in ended),
        }
        for report in ended:
            if report.error is not None:
                raise AttemptFailed("RecorderLost", str(report.error))
        await self._recorded(self._recorder.close_attempt.remote(self.plan.attempt_id))

    def _end_actors(self) -> None:
        for handle in self._actors:
            ray.kill(handle, no_restart=True)
        self._pool.give_back(self._workers)

    async def _close_book(self) -> None:
        """Write Ray's notices as events and let the recorder commit what a failed attempt has left."""
        if self._failure is not None and self._failure.exit_class in _LOST:
            for _ in range(_NOTICE_POLLS):
                if NOTICES.has_any():
                    break
                await asyncio.sleep(_NOTICE_POLL_S)
        texts = NOTICES.take()
        try:
            if texts:
                await self._record_notices(texts)
            elif self._recorder is not None:
                await self._recorded(self._recorder.close_attempt.remote(self.plan.attempt_id))
        except (AttemptFailed, ClusterError) as exc:
            self._fail(AttemptFailed("RecorderLost", str(exc)))
            self.facts["unrecorded_notices"] = texts

    async def _record_notices(self, texts: Sequence[str]) -> None:
        attempt_id = self.plan.attempt_id
        recorder = await self._pool.recorder(self.plan.db_url)
        await self._recorded(recorder.open_attempt.remote(attempt_id))
        rows = [
            records.Event(
                attempt_id=attempt_id,
                source="ray",
                sequence=sequence,
                kind="ray_notice",
                detail_json=records.to_json({"text": text}),
            )
            for sequence, text in enumerate(texts, start=1)
        ]
        await self._recorded(recorder.record.remote(attempt_id, rows))
        await self._recorded(recorder.close_attempt.remote(attempt_id))

    # ---- helpers

    async def _all_workers(self, method: str, *arguments: Any) -> list[Any]:
        """Call one method of every worker; the first that is gone ends the attempt."""
        return list(await asyncio.gather(*(self._of_worker(one, method, *arguments) for one in self._workers)))

    async def _of_worker(self, worker: Worker, method: str, *arguments: Any) -> Any:
        try:
            return await getattr(worker.handle, method).remote(*arguments)
        except ray.exceptions.RayError as exc:
            worker.is_lost = is_own_death(exc)
            raise _failure_of(exc, "WorkerLost", f"the worker (pid {worker.pid})") from exc

    def _place_of(self, index: int) -> int:
        """Which worker process has slot `index`; slots are spread round, so that all processes have work first."""
        return index % len(self._workers)

    async def _recorded(self, answer: Any) -> None:
        """Wait for a verb of the recorder; its error ends the attempt."""
        error: DbError | None = await _blamed(answer, "RecorderLost")
        if error is not None:
            raise AttemptFailed("RecorderLost", str(error))


async def _blamed(answer: Any, exit_class: str) -> Any:
    """Await an actor's answer; its death is the exit class of its kind.

    Raises:
        AttemptFailed: it died, or its code raised.
    """
    try:
        return await answer
    except ray.exceptions.RayError as exc:
        raise _failure_of(exc, exit_class, "the process") from exc


def _failure_of(exc: ray.exceptions.RayError, exit_class: str, who: str) -> AttemptFailed:
    if is_own_death(exc):
        return AttemptFailed(exit_class, f"{who} is gone ({type(exc).__name__})", one_line(exc))
    cause = exc.cause
    if isinstance(cause, (ConfigurationError, UserError, ServingError)):
        return AttemptFailed(type(cause).__name__, str(cause))
    return AttemptFailed("Bug", f"{type(cause).__name__}: {cause}", str(exc))


async def _quietly(answer: Any) -> None:
    try:
        await answer
    except ray.exceptions.RayError:
        return

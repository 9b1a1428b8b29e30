"""The actors that outlive an attempt: agent workers, started once per sweep in waves, and the recorder.

Lives on the coordinator's loop. Dead actors are replaced before the next attempt; Ray itself never restarts one.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, NamedTuple

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from orchestrator.executors.actor_proxies import is_own_death, one_line
from orchestrator.executors.errors import ClusterError
from orchestrator.executors.packages import fingerprint
from orchestrator.executors.recorder_actor import RemoteRecorder
from orchestrator.executors.worker_actor import RemoteAgentWorker

# Ray starts about as many processes at once as there are CPUs; a larger wave only waits longer for its first answer.
_WAVE = 8
_START_TIMEOUT_S = 180.0
# Ray still places actors on a node for some seconds after it has died.
_START_TRIES = 5


@dataclass(slots=True, eq=False)
class Worker:
    """A started agent worker. `is_lost`: dead, or not answering; it is never lent again."""

    handle: Any
    pid: int
    node_id: str
    is_lost: bool = False


class ActorPool:
    """Lends agent workers to attempts and holds the recorder.

    Args:
        is_joined: the cluster is not ours, so its processes may run other code.
    """

    def __init__(self, *, is_joined: bool) -> None:
        self._is_joined = is_joined
        self._idle: list[Worker] = []
        self._recorder: Any = None
        self._recorder_url: str | None = None
        self._lock = asyncio.Lock()
        self.recorder_pid: int | None = None

    @property
    def idle(self) -> tuple[Worker, ...]:
        """The workers that no attempt has."""
        return tuple(self._idle)

    async def fill(self, size: int) -> None:
        """Start workers until `size` are idle.

        Raises:
            ClusterError: they do not start, or run other code than the driver.
        """
        while (missing := size - len(self._idle)) > 0:
            self._idle += await self._start_wave(min(missing, _WAVE))

    async def borrow(self, count: int) -> list[Worker]:
        """`count` workers for one attempt, replaced where some have died since."""
        async with self._lock:
            alive = await asyncio.gather(*(_answers(worker) for worker in self._idle))
            self._idle = [worker for worker, is_alive in zip(self._idle, alive, strict=True) if is_alive]
            await self.fill(count)
            lent, self._idle = self._idle[:count], self._idle[count:]
        return lent

    def give_back(self, workers: list[Worker]) -> None:
        """Take workers back; lost ones are ended for good."""
        for worker in workers:
            if worker.is_lost:
                ray.kill(worker.handle, no_restart=True)
            else:
                self._idle.append(worker)

    async def recorder(self, db_url: str) -> Any:
        """The recorder on the driver's node, a new one when it has died.

        Raises:
            ClusterError: it does not start.
        """
        async with self._lock:
            if self._recorder is not None and (self._recorder_url != db_url or not await self._recorder_answers()):
                ray.kill(self._recorder, no_restart=True)
                self._recorder = None
            if self._recorder is None:
                here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
                handle = RemoteRecorder.options(scheduling_strategy=here).remote(db_url)
                self.recorder_pid = await _started(handle.hello.remote(), "the recorder")
                self._recorder, self._recorder_url = handle, db_url
            return self._recorder

    async def _recorder_answers(self) -> bool:
        try:
            await asyncio.wait_for(self._recorder.hello.remote(), 30.0)
        except (ray.exceptions.RayError, TimeoutError):
            return False
        return True

    async def _start_wave(self, count: int) -> list[Worker]:
        made = await asyncio.gather(*(start_spread(RemoteAgentWorker, "an agent worker") for _ in range(count)))
        handles, hellos = [one.handle for one in made], [one.hello for one in made]
        if self._is_joined and any(hello.code != fingerprint() for hello in hellos):
            node = next(hello.node_id for hello in hellos if hello.code != fingerprint())
            raise ClusterError(f"the workers on node {node[:12]} run another version of convoy; install this one there")
        return [Worker(handle, hello.pid, hello.node_id) for handle, hello in zip(handles, hellos, strict=True)]


class Started(NamedTuple):
    """A started actor and the answer to its first call, `hello`."""

    handle: Any
    hello: Any


async def start_spread(actor_class: Any, what: str, *, place: int | None = None) -> Started:
    """Start an actor on any node; one that never came up because its node has just died is started elsewhere.

    Args:
        place: 0, 1, ... for actors that belong on different nodes where there are several; the driver's own comes last.
    Raises:
        ClusterError: it does not start.
    """
    for tries_left in reversed(range(_START_TRIES)):
        strategy = "SPREAD" if place is None else _node_for(place)
        handle = actor_class.options(scheduling_strategy=strategy).remote()
        try:
            return Started(handle, await asyncio.wait_for(handle.hello.remote(), _START_TIMEOUT_S))
        except TimeoutError as exc:
            raise ClusterError(_late(what)) from exc
        except ray.exceptions.RayError as exc:
            if not tries_left or not is_own_death(exc):
                raise ClusterError(f"{what} did not start: {one_line(exc)}") from exc
    raise AssertionError("the last try returns or raises")


def _node_for(place: int) -> NodeAffinitySchedulingStrategy:
    own = ray.get_runtime_context().get_node_id()
    others = sorted(node["NodeID"] for node in ray.nodes() if node["Alive"] and node["NodeID"] != own)
    nodes = [*others, own]
    return NodeAffinitySchedulingStrategy(nodes[place % len(nodes)], soft=True)


async def _answers(worker: Worker) -> bool:
    try:
        await asyncio.wait_for(worker.handle.hello.remote(), 30.0)
    except (ray.exceptions.RayError, TimeoutError):
        worker.is_lost = True
        return False
    return True


async def _started(answer: Any, what: str) -> Any:
    try:
        return await asyncio.wait_for(answer, _START_TIMEOUT_S)
    except TimeoutError as exc:
        raise ClusterError(_late(what)) from exc
    except ray.exceptions.RayError as exc:
        raise ClusterError(f"{what} did not start: {one_line(exc)}") from exc


def _late(what: str) -> str:
    return f"{what} did not start within {_START_TIMEOUT_S:.0f} s; see the logs of the Ray session"

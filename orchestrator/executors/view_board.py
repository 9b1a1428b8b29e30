"""The replicas' load as routers may see it: one board per attempt, as old as `signal_age_s` at most twice.

The board asks every replica once per `signal_age_s` (on the attempt's clock), the workers ask the board as often and
keep the answer. It exists only where the router looks at load (`uses_load`); others route without any signal.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import ray

from orchestrator.executors.shared_clock import SharedClock
from serving.calls import ReplicaView

# A scaled clock would ask more often than processes can answer.
_SHORTEST_WAIT_S = 0.02


class ViewBoardActor:
    """Keeps the newest view of every replica."""

    async def start(self, views: Sequence[ReplicaView], replicas: Sequence[Any], wait_s: float) -> None:
        """Begin to poll.

        Args:
            views, replicas: (R,) views without load, and the handles they belong to.
            wait_s: wall seconds between polls.
        """
        self._views = tuple(views)
        self._polling = asyncio.get_running_loop().create_task(self._poll(replicas, wait_s))

    async def views(self) -> tuple[ReplicaView, ...]:
        """The views as of the last poll."""
        return self._views

    async def _poll(self, replicas: Sequence[Any], wait_s: float) -> None:
        while True:
            answers = await asyncio.gather(*(one.sample.remote() for one in replicas), return_exceptions=True)
            self._views = tuple(
                view if isinstance(sample, BaseException) else _loaded(view, sample)
                for view, sample in zip(self._views, answers, strict=True)
            )
            await asyncio.sleep(wait_s)


RemoteViewBoard: Any = ray.remote(num_cpus=0, max_restarts=0, max_task_retries=0, max_concurrency=10_000)(
    ViewBoardActor
)


class ViewCache:
    """A worker's copy of the board."""

    def __init__(self, views: Sequence[ReplicaView]) -> None:
        self._views = tuple(views)
        self._following: asyncio.Task[None] | None = None

    def views(self) -> Sequence[ReplicaView]:
        """What the router sees now."""
        return self._views

    def follow(self, board: Any, wait_s: float) -> None:
        """Ask the board every `wait_s` wall seconds."""
        self._following = asyncio.get_running_loop().create_task(self._follow(board, wait_s))

    def stop(self) -> None:
        """Ask no more."""
        if self._following is not None:
            self._following.cancel()

    async def _follow(self, board: Any, wait_s: float) -> None:
        while True:
            try:
                self._views = await board.views.remote()
            except ray.exceptions.RayError:
                return  # routes on with the last signal; the attempt's end is decided by replicas and recorder
            await asyncio.sleep(wait_s)


def wait_s_of(signal_age_s: float, clock: SharedClock) -> float:
    """Wall seconds between polls for signals of this age on the attempt's clock."""
    return max(_SHORTEST_WAIT_S, signal_age_s / clock.speed)


def _loaded(view: ReplicaView, sample: Any) -> ReplicaView:
    return replace(view, num_running=sample.num_running, num_waiting=sample.num_waiting, kv_usage=sample.kv_usage)

"""The replicas' load on its way to a worker's router, with handles that answer without Ray."""

from __future__ import annotations

import asyncio
from typing import Any

import ray

from orchestrator.executors.view_board import ViewBoardActor, ViewCache
from serving.calls import ReplicaSample, ReplicaView

VIEWS = (ReplicaView("m/0", "m"), ReplicaView("m/1", "m"))


class Answers:
    """A handle's method that gives one answer again and again, or raises it."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.num_asked = 0

    async def remote(self) -> Any:
        self.num_asked += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


class Replica:
    def __init__(self, answer: Any) -> None:
        self.sample = Answers(answer)


def sample(num_running: int) -> ReplicaSample:
    """A sample of a replica with so many running calls."""
    return ReplicaSample(1.0, 0.25, 0.5, num_running, 3, 0, 10, 5)


def test_the_board_polls_and_a_dead_replica_keeps_its_last_view() -> None:
    """Views get the load of the newest sample; a replica that no longer answers keeps the one it had."""

    async def run() -> None:
        board = ViewBoardActor()
        replicas = [Replica(sample(2)), Replica(ray.exceptions.ActorDiedError())]
        await board.start(VIEWS, replicas, 0.01)
        assert await board.views() == VIEWS
        await asyncio.sleep(0.05)
        loaded, unknown = await board.views()
        assert (loaded.num_running, loaded.num_waiting, loaded.kv_usage) == (2, 3, 0.25)
        assert unknown == VIEWS[1]
        assert replicas[0].sample.num_asked > 1

    asyncio.run(run())


def test_a_worker_keeps_the_boards_answer() -> None:
    """A worker's cache shows the board's views after a poll, and the last ones when the board is gone."""

    class Board:
        def __init__(self) -> None:
            self.views = Answers((ReplicaView("m/0", "m", num_running=7), VIEWS[1]))

    async def run() -> None:
        board, cache = Board(), ViewCache(VIEWS)
        assert cache.views() == VIEWS
        cache.follow(board, 0.01)
        await asyncio.sleep(0.03)
        assert cache.views()[0].num_running == 7
        board.views.answer = ray.exceptions.ActorDiedError()
        await asyncio.sleep(0.03)
        assert cache.views()[0].num_running == 7
        cache.stop()

    asyncio.run(run())

"""An agent worker: runs sessions one after another. A plain class; the Ray executor makes actors of it."""

from __future__ import annotations

from collections.abc import Callable

from workers.errors import SessionEnd
from workers.interfaces import Task
from workers.session import Session, SessionParts, SessionWorld

MakeParts = Callable[[Task, int, str], SessionParts]
NextTask = Callable[[], tuple[int, Task] | None]


class AgentWorker:
    """One of the w workers of an attempt: it holds at most one session at a time.

    Args:
        name: stored with every session it ran.
        world: the attempt's shared collaborators.
        make_parts: a fresh renderer, policy and streams for (task, ordinal, worker name).
    """

    def __init__(self, name: str, world: SessionWorld, make_parts: MakeParts) -> None:
        self.name = name
        self._world = world
        self._make_parts = make_parts

    async def run_session(self, task: Task, ordinal: int) -> SessionEnd:
        """Run one session to its end."""
        return await Session(self._make_parts(task, ordinal, self.name), self._world).run()

    async def run_all(self, next_task: NextTask, on_end: Callable[[SessionEnd], None]) -> None:
        """Take tasks until none is left; `on_end` may raise to stop the worker."""
        while (handed := next_task()) is not None:
            ordinal, task = handed
            on_end(await self.run_session(task, ordinal))

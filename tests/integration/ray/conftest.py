"""One Ray cluster for all tests of this folder, started when the first of them needs it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from orchestrator.executors.ray_actors import RayActorsExecutor


@pytest.fixture(scope="session")
def executor() -> Iterator[RayActorsExecutor]:
    """An open executor on a cluster of its own."""
    opened = RayActorsExecutor(address="local", clock_speed=100.0)
    opened.open(largest_num_workers=4)
    yield opened
    opened.close()

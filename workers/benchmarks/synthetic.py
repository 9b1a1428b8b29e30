"""`benchmark=synthetic`: seeded runs with real line structure, calibrated to recorded ones; needs no files.

Reads, searches, tests and edits work on the files of a virtual repository, so that the text repeats itself as real
runs do (about a fifth to a quarter of the observation characters, growing with the step). A test compares steps,
context lengths and repeats with the recorded figures.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import ClassVar, Final

from workers.benchmarks.digests import run_digest
from workers.benchmarks.generator.profiles import DEEPSEEK_V3_CHAT, GEMINI3_PRO, Profile
from workers.benchmarks.generator.session import generate_run
from workers.errors import BenchmarkError
from workers.harnesses.minimal import FORMAT_ITEM
from workers.interfaces import Harness, HarnessTemplate, Task


class ProfileName(StrEnum):
    """Whose runs the figures come from."""

    deepseek_v3_chat = "deepseek_v3_chat"
    gemini3_pro = "gemini3_pro"


_PROFILES: Final[dict[ProfileName, Profile]] = {
    ProfileName.deepseek_v3_chat: DEEPSEEK_V3_CHAT,
    ProfileName.gemini3_pro: GEMINI3_PRO,
}


@dataclass(frozen=True)
class Synthetic:
    """Tasks with generated runs, to be replayed.

    Attributes:
        profile: deepseek_v3_chat (long runs, short replies) or gemini3_pro (shorter runs, more repeats).
        num_tasks: how many; task i is the same whatever the number.
        seed: names the set of tasks; part of their content, not of the study's random streams.
    Source: this project; calibrated on public recorded runs (workers/benchmarks/generator/profiles.py).
    """

    REVISION: ClassVar[int] = 1
    name: ClassVar[str] = "synthetic"
    source: ClassVar[str] = "synthetic"

    profile: ProfileName = ProfileName.gemini3_pro
    num_tasks: int = 50
    seed: int = 0

    def __post_init__(self) -> None:
        if self.num_tasks < 1:
            raise BenchmarkError(f"benchmark.num_tasks={self.num_tasks}: give at least 1")

    def tasks(self) -> Sequence[Task]:
        """The tasks in order of their number; made once per process."""
        return tuple(_task(self.profile, self.seed, number) for number in range(1, self.num_tasks + 1))

    def prompt(self, task: Task, harness: Harness) -> HarnessTemplate:
        """The generated opening in the minimal harness's words, whose frame the replies and outputs have."""
        if task.run is None:
            raise BenchmarkError(f"task {task.task_id} has no generated run: it is not from benchmark=synthetic")
        system, statement = task.run.opening
        return HarnessTemplate(system.content, statement.content, FORMAT_ITEM)


@lru_cache(maxsize=2048)
def _task(profile: ProfileName, seed: int, number: int) -> Task:
    run = generate_run(_PROFILES[profile], profile.value, seed, number)
    meta = {"profile": profile.value, "steps": len(run.steps)}
    return Task(f"synthetic-{profile.value}-{seed}-{number:04d}", run.opening[-1].content, run_digest(run), run, meta)

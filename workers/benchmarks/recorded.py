"""`benchmark=recorded benchmark.path=...`: recorded agent runs as tasks, in the formats people bring.

Each run becomes a task with its own opening (system and task message as the recorded model saw them); the `replay`
policy and environment give back its replies, outputs, tool times and completion lengths. Length-only traces come as
placeholder text with `run.has_text` False: they can be replayed in full, not re-rendered.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import ClassVar

from workers.benchmarks.digests import run_digest
from workers.benchmarks.formats.common import FORMAT_LIST_ITEM, LoadedRun
from workers.benchmarks.trajectory_files import FolderReport, load_path
from workers.errors import BenchmarkError
from workers.interfaces import Harness, HarnessTemplate, Task

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Recorded:
    """Recorded runs from a file or folder, in the order of their ids.

    Attributes:
        path: a trajectory file, or a folder that is searched with its subfolders; not part of the cell's identity,
            the content digests are.
        skip_foreign: leave out files that are no trajectory; otherwise they end loading.
        num_tasks: only the first n runs in id order; None takes all.
        min_steps: leave out runs with fewer steps.
    Source: this project; formats as described by their projects (spec: trajectories, section 5).
    """

    REVISION: ClassVar[int] = 1
    PROVENANCE: ClassVar[frozenset[str]] = frozenset({"skip_foreign"})  # the tasks' digests decide
    name: ClassVar[str] = "recorded"
    source: ClassVar[str] = "recorded"

    path: str = ""
    skip_foreign: bool = False
    num_tasks: int | None = None
    min_steps: int = 1

    def tasks(self) -> Sequence[Task]:
        """All runs as tasks.

        Raises:
            BenchmarkError: nothing to load, a broken file, foreign files without `skip_foreign`, too few runs.
        """
        return _tasks(self, _signature(self._path()))

    def report(self) -> FolderReport:
        """What the path holds, file by file."""
        path = self._path()
        return _report(path, _signature(path))

    def prompt(self, task: Task, harness: Harness) -> HarnessTemplate:
        """The recorded opening; the harness's own template is not used."""
        return recorded_template(task)

    def _path(self) -> Path:
        if not self.path:
            raise BenchmarkError("benchmark=recorded needs benchmark.path=<trajectory file or folder>")
        return Path(self.path).expanduser().absolute()


def recorded_template(task: Task) -> HarnessTemplate:
    """The opening of a recorded run as a template, with the list item that ReFold's protocol replaces.

    Raises:
        BenchmarkError: the task has no recorded run.
    """
    if task.run is None:
        raise BenchmarkError(f"task {task.task_id} has no recorded run: use a live policy and environment for it")
    texts = {message.role: message.content for message in task.run.opening}
    item = FORMAT_LIST_ITEM.search(texts["user"])
    calls_tools = any(step.assistant.tool_calls for step in task.run.steps)
    return HarnessTemplate(
        system=texts.get("system", ""),
        task=texts["user"],
        format_item=item["item"] if item else None,
        observation_role="tool" if calls_tools else "user",
    )


def _plain(name: str) -> str:
    """A name for rows and files: everything but letters, digits and `. _ - +` becomes `_`."""
    return re.sub(r"[^\w.+-]+", "_", name, flags=re.ASCII) or "run"


def _signature(path: Path) -> tuple[tuple[str, int, int], ...]:
    """(name, size, modification time) of every file, so that a changed file is loaded again."""
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    stats = ((str(file), file.stat()) for file in files if file.is_file())
    return tuple((name, stat.st_size, stat.st_mtime_ns) for name, stat in stats)


@lru_cache(maxsize=8)
def _report(path: Path, signature: tuple[tuple[str, int, int], ...]) -> FolderReport:
    return load_path(path)


@lru_cache(maxsize=16)
def _tasks(benchmark: Recorded, signature: tuple[tuple[str, int, int], ...]) -> tuple[Task, ...]:
    """Load, check and number the tasks of one configuration; `signature` only keys the cache."""
    path = benchmark._path()
    report = _report(path, signature)
    _judge_skipped(report, path, skip_foreign=benchmark.skip_foreign)
    tasks = _numbered([loaded for loaded in report.runs if len(loaded.run.steps) >= benchmark.min_steps], path)
    if not tasks:
        raise BenchmarkError(
            f"no run with at least benchmark.min_steps={benchmark.min_steps} steps in {path} "
            f"({len(report.runs)} runs read): lower it or give other files"
        )
    if benchmark.num_tasks is None:
        return tasks
    if not 1 <= benchmark.num_tasks <= len(tasks):
        raise BenchmarkError(f"benchmark.num_tasks={benchmark.num_tasks}: {path} has 1 to {len(tasks)} tasks to give")
    return tasks[: benchmark.num_tasks]


def _judge_skipped(report: FolderReport, path: Path, *, skip_foreign: bool) -> None:
    for line in report.lines():
        _LOG.info("%s", line)
    if not report.skipped:
        return
    listed = ", ".join(f"{skip.name} ({skip.reason})" for skip in report.skipped[:5])
    more = f" and {len(report.skipped) - 5} more" if len(report.skipped) > 5 else ""
    summary = f"{path}: loaded {len(report.runs)} runs from {len(report.loaded)} files, skipped {listed}{more}"
    if not skip_foreign:
        raise BenchmarkError(f"{summary}: take those files out or set benchmark.skip_foreign=true")
    _LOG.warning("%s", summary)


def _numbered(runs: Sequence[LoadedRun], path: Path) -> tuple[Task, ...]:
    """Tasks in id order, ids in characters that file names take.

    Runs of one instance are numbered by content (`id`, `id#2`, ...), never by file name. A run that is there twice
    (the same content in two files) is one task.
    """
    unique: dict[tuple[str, str], LoadedRun] = {}
    for loaded in runs:
        try:
            unique.setdefault((_plain(loaded.instance_id), run_digest(loaded.run)), loaded)
        except UnicodeEncodeError as error:
            raise BenchmarkError(
                f"{path}: run {loaded.instance_id} holds a lone surrogate, which is no text: repair the file"
            ) from error
    seen: Counter[str] = Counter()
    tasks = []
    for instance, digest in sorted(unique):
        seen[instance] += 1
        loaded = unique[instance, digest]
        meta = {"instance_id": loaded.instance_id, "source_format": loaded.run.source_format, **loaded.meta}
        task_id = instance if seen[instance] == 1 else f"{instance}#{seen[instance]}"
        tasks.append(Task(task_id, loaded.run.opening[-1].content, digest, loaded.run, meta))
    return tuple(tasks)

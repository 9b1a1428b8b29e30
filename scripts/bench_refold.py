"""ReFold's own time per step on recorded runs: read_reply + observe + render, caches cold at each session's start.

`python -m scripts.bench_refold [FILE]`; FILE is a neutral JSONL (default: the recorded runs beside the checkout).
Replies get PROGRESS and STALE lines by hindsight: a seeded share of the turns is named one step later. The paper
states 0.4 ms a step (section 3.4); our aim is a mean under 0.10 ms. CPU time of the thread is measured, so that other
work on the machine does not count.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import hashlib
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from serving.calls import Message
from workers.actions import command_kind
from workers.benchmarks.formats import neutral
from workers.history import History, Rendered, Turn
from workers.interfaces import RecordedRun
from workers.renderers.refold import Refold
from workers.renderers.refold_notes import read_of
from workers.shell_reads import parse_read

DEFAULT_FILE = Path(__file__).resolve().parent.parent.parent / "shared" / "trajectories" / "neutral.jsonl.gz"


def load_runs(path: Path, *, min_steps: int = 5) -> list[RecordedRun]:
    """The runs of a neutral file with at least `min_steps` steps."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        documents = [json.loads(line) for line in lines]
    return [loaded.run for loaded in neutral.read(documents, path.name) if len(loaded.run.steps) >= min_steps]


def is_named(run: int, index: int, share: float) -> bool:
    """Whether turn `index` of run `run` is named STALE; a seeded draw."""
    digest = hashlib.blake2b(f"{run}:{index}".encode(), digest_size=4).digest()
    return int.from_bytes(digest, "big") < share * 2**32


def replies(run: int, recorded: RecordedRun, share: float) -> Iterator[Message]:
    """The recorded replies behind PROGRESS and STALE lines."""
    for index, step in enumerate(recorded.steps, start=1):
        stale = str(index - 2) if index > 1 and is_named(run, index - 1, share) else "-"
        text = f"PROGRESS: {step.kind} at step {index - 1}\nSTALE: {stale}\n\n{step.assistant.content}"
        yield replace(step.assistant, content=text)


class _NoCounter:
    """ReFold counts no tokens."""


async def _no_aux(**_: Any) -> Any:
    raise AssertionError("ReFold makes no auxiliary calls")


async def time_run(run: int, recorded: RecordedRun, settings: dict[str, Any], share: float) -> list[tuple[float, bool]]:
    """(CPU seconds of this thread, whether the boundary advanced) of every step of one session."""
    for parser in (parse_read, read_of, command_kind):  # process-wide parses of commands: cold as well
        parser.cache_clear()
    renderer = Refold(**settings)
    renderer.start(counter=_NoCounter(), budget_tokens=0, path="renderer")  # type: ignore[arg-type]
    history = History(recorded.opening)
    rendered = Rendered(())
    samples: list[tuple[float, bool]] = []
    for index, (reply, step) in enumerate(zip(replies(run, recorded, share), recorded.steps, strict=True), start=1):
        begin = time.thread_time()
        signals = renderer.read_reply(reply)
        spent = time.thread_time() - begin
        history.append(Turn(index, reply, step.actions, step.observations, signals=signals, may_remind=False))
        boundary = rendered.boundary
        begin = time.thread_time()
        await renderer.observe(history, rendered, _no_aux)
        rendered = renderer.render(history)
        samples.append((spent + time.thread_time() - begin, rendered.boundary != boundary))
    return samples


def main() -> int:
    """Print the mean, p50, p99 and the mean over steps that advance the boundary."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", nargs="?", type=Path, default=DEFAULT_FILE)
    parser.add_argument("--hindsight", type=float, default=0.6, help="share of turns named STALE")
    parser.add_argument("--set", nargs="*", default=[], metavar="FIELD=VALUE", help="settings, e.g. k=5 dedup=false")
    arguments = parser.parse_args()
    if not arguments.file.is_file():
        print(f"no recorded runs at {arguments.file}; give a neutral JSONL file", file=sys.stderr)
        return 2
    settings = {name: json.loads(value) for name, value in (item.split("=", 1) for item in arguments.set)}
    samples: list[tuple[float, bool]] = []
    for run, recorded in enumerate(load_runs(arguments.file)):
        samples += asyncio.run(time_run(run, recorded, settings, arguments.hindsight))
    times_ms = sorted(spent * 1e3 for spent, _ in samples)
    advances = [spent * 1e3 for spent, is_advance in samples if is_advance]
    mean = sum(times_ms) / len(times_ms)
    print(f"steps {len(times_ms)}, hindsight {arguments.hindsight}, settings {settings or 'default'}")
    p50, p99 = times_ms[len(times_ms) // 2], times_ms[len(times_ms) * 99 // 100]
    print(f"CPU time: mean {mean:.4f} ms  p50 {p50:.4f}  p99 {p99:.4f}")
    print(f"steps that advance the boundary: {len(advances)}, mean {sum(advances) / max(1, len(advances)):.4f} ms")
    print(f"ratio to the paper's 0.4 ms: {mean / 0.4:.2f}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

"""`python -m scripts.bench_study`: wall time, memory and the split of one whole study from a warm install.

Runs `python -m orchestrator +sweep=<sweep>` into a database of its own and measures the process tree from outside (Ray
included); then runs one cell of the same configuration in this process under cProfile and prints where its time goes.
"""

from __future__ import annotations

import argparse
import cProfile
import os
import pstats
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from pathlib import Path

from db.recorder import InMemoryRecorder
from db.records import Attempt
from orchestrator.compose import Composer
from orchestrator.interfaces import AttemptPlan, Lease
from orchestrator.virtual_attempt import run_virtual_attempt

ROOMS = {
    "simulator": ("serving/sim", "serving/engines"),
    "tokens": ("serving/token",),
    "render": ("workers/renderers", "workers/fate", "workers/shell", "workers/line_text", "workers/history"),
    "rows": ("db/", "workers/model_calls", "sqlalchemy", "sqlite"),
    "tasks": ("workers/benchmarks", "workers/policies"),
    "loop": ("asyncio", "serving/clock", "selectors"),
}


def tree_rss_bytes(root_pid: int) -> int:
    """Proportional memory of a process and all its descendants, from /proc (shared pages counted once)."""
    children: dict[int, list[int]] = defaultdict(list)
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            children[int(fields[1])].append(int(entry.name))
    total, todo = 0, [root_pid]
    while todo:
        pid = todo.pop()
        todo += children[pid]
        try:
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1]) * 1024
        except OSError:
            continue
    return total


def run_study(sweep: str, overrides: list[str]) -> None:
    """Run the study as a user does and print wall seconds and peak memory."""
    with tempfile.TemporaryDirectory() as folder:
        study = ["orchestrator", f"+sweep={sweep}", f"db.url=sqlite:///{folder}/results.db"]
        command = [sys.executable, "-m", *study, *overrides]
        started_s = time.perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        peak = 0
        done = threading.Event()

        def watch() -> None:
            nonlocal peak
            while not done.wait(0.5):
                peak = max(peak, tree_rss_bytes(process.pid))

        watcher = threading.Thread(target=watch)
        watcher.start()
        code = process.wait()
        wall_s = time.perf_counter() - started_s
        done.set()
        watcher.join()
    print(f"{' '.join(command[2:4])}: exit code {code}, {wall_s:.1f} s wall, peak memory {peak / 2**30:.2f} GiB (PSS)")


def profile_cell(overrides: list[str]) -> None:
    """Run one cell here and print the share of each room's own time."""
    composer = Composer()
    config = composer.compose([composer.vocabulary.parse(text) for text in overrides])
    plan = AttemptPlan("bench.1", "bench", "bench", config, Lease("bench", "bench", 1), "")
    outcome = run_virtual_attempt(plan, started_recorder())
    print(f"one cell ({' '.join(overrides)}): {outcome.facts['cpu_s']:.1f} CPU-s, unprofiled, cold caches")
    profiler = cProfile.Profile()
    profiler.enable()
    profiled = run_virtual_attempt(plan, started_recorder())
    profiler.disable()
    if profiled.exit_class != "ok":
        raise SystemExit(f"the profiled cell failed: {profiled.message}")
    sums: dict[str, float] = defaultdict(float)
    for (filename, _, _), (_, _, own_s, _, _) in pstats.Stats(profiler).stats.items():  # type: ignore[attr-defined]
        sums[room_of(filename)] += own_s
    total = sum(sums.values())
    print("  the same cell once more under cProfile, caches warm; share of own time:")
    for room, seconds in sorted(sums.items(), key=lambda item: -item[1]):
        print(f"  {room:10s} {seconds / total:6.1%}")


def started_recorder() -> InMemoryRecorder:
    """A recorder with the one attempt of this bench."""
    recorder = InMemoryRecorder()
    recorder.start_attempt(
        Attempt(
            attempt_id="bench.1",
            cell_key="bench",
            number=1,
            lease_epoch=1,
            owner="bench",
            started_utc_s=0.0,
            num_tasks=0,
            engine_kind="simulated",
            policy_kind="replay",
            benchmark_source="synthetic",
        )
    )
    return recorder


def room_of(filename: str) -> str:
    """The room a profiled file belongs to; C functions count as `builtins`."""
    for room, marks in ROOMS.items():
        if any(mark in filename for mark in marks):
            return room
    return "builtins" if filename.startswith(("~", "<")) else "other"


def main() -> None:
    """Parse the arguments and run both parts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sweep", default="concurrency")
    parser.add_argument("overrides", nargs="*", help="further overrides for both parts")
    arguments = parser.parse_args()
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    run_study(arguments.sweep, arguments.overrides)
    profile_cell(["num_workers=32", "renderer=refold", *arguments.overrides])


if __name__ == "__main__":
    main()

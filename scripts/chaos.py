"""Kill parts of a running study at seeded times, resume it, and check that nothing was lost, doubled or left behind.

    python -m scripts.chaos --trials 10 --seed 0

Every trial runs the sweep `smoke` on Ray actors, sends SIGKILL to the driver, a worker actor, the recorder, a replica
or the Ray node (its raylet) when a seeded number of calls is on disk, lets the command end, runs it again, and checks:

- the grid is complete;
- no row that was seen committed is gone or changed, and every recorded session has all the calls it counts;
- no row is doubled: one complete attempt per cell, one session per task, calls numbered 1..n;
- stdout holds only our lines;
- no process of the trial is left.

Exit code 1 when any trial fails; its database and output are then kept.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.executors.cluster_guard import is_of_session

ROOT = Path(__file__).resolve().parent.parent
MARK = "CONVOY_CHAOS_TRIAL"
TARGETS = ("driver", "worker", "recorder", "replica", "node")
# How the processes of a target are named in /proc/<pid>/cmdline; the driver is known by its pid.
_TITLES = {
    "worker": "ray::AgentWorkerActor",
    "recorder": "ray::RecorderActor",
    "replica": "ray::ReplicaActor",
    "node": "raylet/raylet",
}
_NUM_TASKS, _NUM_STEPS, _NUM_CELLS = 4, 20, 2
_RUN_TIMEOUT_S, _GONE_TIMEOUT_S, _MAX_RESUMES = 240.0, 30.0, 2
_KEYS = {
    "call": "attempt_id, session_id, call_index, try_index, prompt_digest, num_completion_tokens, state",
    "session": "attempt_id, session_id, exit_status, num_steps",
    "tool_execution": "attempt_id, session_id, turn, return_code",
}


@dataclass
class Trial:
    """What one trial does and what came of it. `after_calls`: the kill comes when so many calls are on disk."""

    number: int
    target: str
    after_calls: int
    victim: random.Random
    folder: Path
    was_killed: bool = False
    drivers: list[int] = field(default_factory=list)
    exit_codes: list[int] = field(default_factory=list)
    seen: dict[str, set[tuple[object, ...]]] = field(default_factory=lambda: {table: set() for table in _KEYS})
    failures: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def db(self) -> Path:
        """Its results database."""
        return self.folder / "results.db"

    @property
    def name(self) -> str:
        """Marks its processes."""
        return f"{os.getpid()}-{self.number}"

    def describe(self) -> str:
        """One line."""
        ended = "ok" if not self.failures else "FAILED: " + "; ".join(self.failures)
        hit = "killed" if self.was_killed else "ended before the kill of"
        when = f"after {self.after_calls:3d} calls  {self.seconds:5.1f} s"
        return f"trial {self.number:3d}  {hit} {self.target:8s} {when}  exits {self.exit_codes}  {ended}"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the trials and print a line each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--parallel", type=int, default=1, help="trials at once, each with a Ray of its own")
    parser.add_argument("--first", type=int, default=0, help="number of the first trial, to repeat one")
    parser.add_argument("--targets", nargs="+", choices=TARGETS, default=list(TARGETS))
    options = parser.parse_args(argv)
    numbers = range(options.first, options.first + options.trials)
    trials = [make_trial(options.seed, number, options.targets) for number in numbers]
    failed = 0
    with ThreadPoolExecutor(options.parallel) as threads:
        for trial in threads.map(run_trial, trials):
            failed += bool(trial.failures)
            print(trial.describe(), flush=True)
            if trial.failures:
                print(f"           kept in {trial.folder}", flush=True)
            else:
                shutil.rmtree(trial.folder)
    print(f"{options.trials - failed} of {options.trials} trials ok (seed {options.seed})", flush=True)
    return 1 if failed else 0


def make_trial(seed: int, number: int, targets: Sequence[str]) -> Trial:
    """Targets take turns; when and whom it hits is drawn from (seed, number)."""
    dice = random.Random(f"{seed}/{number}")
    after_calls = dice.randrange(_NUM_CELLS * _NUM_TASKS * _NUM_STEPS - 10)
    folder = Path(tempfile.mkdtemp(prefix="convoy-chaos-"))
    return Trial(number, targets[number % len(targets)], after_calls, dice, folder)


def run_trial(trial: Trial) -> Trial:
    """Kill, resume, check; failures are written into the trial, which is returned."""
    started_s = time.monotonic()
    try:
        _run_and_kill(trial)
        _expect_no_process(trial)
        for _ in range(_MAX_RESUMES):
            if trial.exit_codes[-1] == 0:
                break
            _run_to_end(trial, _start(trial, "resume", "rerun=[failed,lost]"), "resume")
            _expect_no_process(trial)
        trial.failures += list(check(trial))
    finally:
        _end_processes(trial)
        trial.seconds = time.monotonic() - started_s
    return trial


def check(trial: Trial) -> Iterator[str]:
    """What is wrong with the database and the output after the last resume."""
    if trial.exit_codes[-1] != 0:
        yield f"exit code {trial.exit_codes[-1]} after the resume"
    if not trial.db.exists():
        yield "the command made no database"
        return
    with closing(sqlite3.connect(f"file:{trial.db}?mode=ro", uri=True)) as db:
        states = dict(db.execute("SELECT state, count(*) FROM cell GROUP BY state"))
        if states != {"complete": _NUM_CELLS}:
            yield f"cells: {states}"
        for table, columns in _KEYS.items():
            now = set(db.execute(f"SELECT {columns} FROM {table}"))
            lost = trial.seen[table] - now
            if lost:
                yield f"{len(lost)} committed rows of {table} are gone or changed, for example {min(map(str, lost))}"
        yield from _check_attempts(db)
        yield from _check_sessions(db)
    for path in trial.folder.glob("*.out"):
        foreign = [line for line in path.read_text().splitlines() if "(raylet)" in line or "Traceback" in line]
        if foreign:
            yield f"{path.name} holds a line that is not ours: {foreign[0][:100]}"


def _check_attempts(db: sqlite3.Connection) -> Iterator[str]:
    for cell_key, states in db.execute(
        "SELECT cell_key, group_concat(state) FROM (SELECT * FROM attempt ORDER BY number) GROUP BY cell_key"
    ):
        ended = states.split(",")
        if ended.count("complete") != 1 or ended[-1] != "complete" or "running" in ended:
            yield f"attempts of {cell_key[:12]}: {states}"
    for attempt_id, sessions, tasks in db.execute(
        "SELECT attempt_id, (SELECT count(*) FROM session s WHERE s.attempt_id = a.attempt_id),"
        " (SELECT count(DISTINCT task_id) FROM session s WHERE s.attempt_id = a.attempt_id)"
        " FROM attempt a WHERE state = 'complete'"
    ):
        if not sessions == tasks == _NUM_TASKS:
            yield f"{attempt_id[:16]} has {sessions} sessions of {tasks} tasks"


def _check_sessions(db: sqlite3.Connection) -> Iterator[str]:
    """A session's row is sent when its calls are acknowledged: a missing call was acknowledged and lost."""
    for attempt_id, session_id, counted, rows, last in db.execute(
        "SELECT s.attempt_id, s.session_id, s.num_main_calls + s.num_auxiliary_calls, count(c.call_index),"
        " max(c.call_index) FROM session s LEFT JOIN call c ON c.attempt_id = s.attempt_id"
        " AND c.session_id = s.session_id AND c.state <> 'exhausted' AND c.try_index = 1"
        " WHERE s.exit_status <> 'Cancelled' GROUP BY s.attempt_id, s.session_id"
    ):
        if counted != rows or (rows and last != rows):
            yield f"{attempt_id[:16]} {session_id}: {counted} calls counted, {rows} recorded, the last is number {last}"


# ---- running


def _start(trial: Trial, name: str, *extra: str) -> subprocess.Popen[bytes]:
    command = [
        sys.executable,
        "-m",
        "orchestrator",
        "+sweep=smoke",
        "executor=ray_actors",
        f"benchmark.num_tasks={_NUM_TASKS}",
        f"limits.max_steps={_NUM_STEPS}",
        "lease_s=5",
        "trust.max_loop_lag_ms=1000000",
        "trust.min_concurrency_share=0.01",
        f"db.url={trial.db}",
        *extra,
    ]
    with (trial.folder / f"{name}.out").open("wb") as out, (trial.folder / f"{name}.err").open("wb") as err:
        driver = subprocess.Popen(command, cwd=ROOT, stdout=out, stderr=err, env={**os.environ, MARK: trial.name})
    trial.drivers.append(driver.pid)
    return driver


def _run_and_kill(trial: Trial) -> None:
    driver = _start(trial, "first")
    limit_s = time.monotonic() + _RUN_TIMEOUT_S
    while driver.poll() is None and not trial.was_killed and time.monotonic() < limit_s:
        if _look(trial) >= trial.after_calls:
            trial.was_killed = _kill(trial, driver)
        time.sleep(0.05)
    _run_to_end(trial, driver, "first")


def _run_to_end(trial: Trial, driver: subprocess.Popen[bytes], name: str) -> None:
    """Watch the database until the driver ends."""
    limit_s = time.monotonic() + _RUN_TIMEOUT_S
    while driver.poll() is None:
        if time.monotonic() > limit_s:
            trial.failures.append(f"the {name} command did not end within {_RUN_TIMEOUT_S:.0f} s")
            driver.kill()
        _look(trial)
        time.sleep(0.2)
    trial.exit_codes.append(driver.returncode)
    _look(trial)


def _look(trial: Trial) -> int:
    """Remember every committed row; returns the number of calls on disk, -1 while there is no database."""
    if not trial.db.exists():
        return -1
    try:
        with closing(sqlite3.connect(f"file:{trial.db}?mode=ro", uri=True, timeout=5.0)) as db:
            for table, columns in _KEYS.items():
                trial.seen[table].update(db.execute(f"SELECT {columns} FROM {table}"))
    except sqlite3.OperationalError:
        return -1  # its schema is being created, or nobody has it open yet
    return len(trial.seen["call"])


def _kill(trial: Trial, driver: subprocess.Popen[bytes]) -> bool:
    """Send SIGKILL to the target; False while it does not exist yet."""
    if trial.target == "driver":
        driver.kill()
        return True
    victims = [pid for pid, title in _processes(trial) if _TITLES[trial.target] in title]
    if not victims:
        return False
    os.kill(trial.victim.choice(victims), signal.SIGKILL)
    return True


# ---- processes


def _processes(trial: Trial) -> list[tuple[int, str]]:
    """(pid, command line) of every living process this trial has started, whoever its parent is now."""
    mark = f"{MARK}={trial.name}\0".encode()
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            is_ours = mark in (folder / "environ").read_bytes() + b"\0"
            line = (folder / "cmdline").read_bytes()
            is_ours = is_ours or any(is_of_session(folder, line, pid) for pid in trial.drivers)
            title = line.replace(b"\0", b" ").decode(errors="replace").strip()
        except OSError:
            continue  # ended meanwhile, or not ours to read
        if is_ours and title:
            found.append((int(folder.name), title))
    return sorted(found)


def _expect_no_process(trial: Trial) -> None:
    limit_s = time.monotonic() + _GONE_TIMEOUT_S
    while (left := _processes(trial)) and time.monotonic() < limit_s:
        time.sleep(0.2)
    if left:
        names = ", ".join(f"{pid} {title[:60]}" for pid, title in left[:3])
        trial.failures.append(f"{len(left)} processes are left: {names}")
        _end_processes(trial)


def _end_processes(trial: Trial) -> None:
    for pid, _ in _processes(trial):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


if __name__ == "__main__":
    sys.exit(main())

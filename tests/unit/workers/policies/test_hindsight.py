"""Hindsight: which steps no later step reads again, worked by hand."""

from __future__ import annotations

from pathlib import Path

from serving.calls import Message
from workers.benchmarks.recorded import Recorded
from workers.history import Action, Observation
from workers.interfaces import RecordedRun, RecordedStep
from workers.policies.hindsight import progress_text, quiet_steps, signal_lines, stale_labels
from workers.streams import SeededStreams


def step(command: str, output: str = "", text: str = "") -> RecordedStep:
    """One step."""
    actions = (Action(command),) if command else ()
    return RecordedStep(Message("assistant", text), actions, (Observation(output),))


def run_of(*steps: RecordedStep) -> RecordedRun:
    """A run of these steps."""
    return RecordedRun((Message("user", "task"),), steps, "made up")


WORKED = run_of(
    step("cat /r/a.py", "import alpha\nimport beta\n"),  # 1: lines 1-2 are read again at 2
    step("cd /r && sed -n '2,9p' a.py", "import beta\nprint(beta)\n"),  # 2: nothing later
    step("python t.py", "first value\nsecond value\n"),  # 3: the same command at 5
    step("sed -n '40,60p' /r/a.py", "line forty one\n"),  # 4: other lines than 1 and 2, nothing later
    step("python  t.py", "all is well\n"),  # 5: nothing later
    step("grep -n x b.py", "12:number twelve\n13:number thirteen\n14:number fourteen\n"),  # 6: its lines at 8
    step("grep -n y b.py", "22:number twenty-two\n23:number twenty-three\n"),  # 7: two lines at 8 are not enough
    step(
        "cat -n c.py",
        "     1\tnumber twelve\n     2\tnumber thirteen\n     3\tnumber fourteen\n"
        "     4\tnumber twenty-two\n     5\tnumber twenty-three\n",
    ),  # 8: nothing later
    step("echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"),  # 9: the last
)


class FixedStreams:
    """Coverage draws by step, and one delay draw."""

    def __init__(self, coverage: dict[int, float], delay: int) -> None:
        self._coverage = coverage
        self._delay = delay

    def uniform(self, name: str, *key: int | str) -> float:
        return self._coverage.get(int(key[0]), 0.0)

    def integer(self, name: str, *key: int | str) -> int:
        return self._delay


def test_quiet_steps_of_the_worked_run() -> None:
    """Step 1 is read again (overlapping lines), 3 is run again, 6 is shown again (three lines); 9 is the last."""
    assert quiet_steps(WORKED) == {2, 4, 5, 7, 8}


def test_relative_paths_are_seen_from_the_directory() -> None:
    """`cat a.py` in /testbed and `cat /testbed/a.py` read one file."""
    run = run_of(step("cat a.py"), step("cat /testbed/a.py"), step("ls"), step("submit"))
    assert quiet_steps(run) == {1, 2, 3}
    assert quiet_steps(run, "/testbed") == {2, 3}


def test_three_lines_must_be_in_one_output() -> None:
    """Three lines spread over two later outputs do not count; short lines never do."""
    spread = run_of(
        step("a", "first line here\nsecond line here\nthird line here\nelse:\n)\n}\n"),
        step("b", "first line here\nsecond line here\nelse:\n)\n}\n"),
        step("c", "third line here\n"),
        step("d"),
    )
    assert 1 in quiet_steps(spread)


def test_labels_and_delays_by_hand() -> None:
    """With k=3 and delay draw 4 a step is named 1 + 4 % 3 = 2 turns later, by its label (index - 1)."""
    labels = stale_labels(WORKED, window=3, coverage=0.6, streams=FixedStreams({4: 0.6, 5: 0.59}, 4))
    # 4 is not covered (0.6 is not below 0.6); 8 would be named at turn 10, past the end.
    assert labels == {4: (1,), 7: (4,), 9: (6,)}


def test_named_steps_are_accepted_by_eq_4() -> None:
    """For every window all labels of turn t are in {t-k..t-1} as turn indices, and each quiet step is named once."""
    streams = SeededStreams(seed=3, replicate=1, benchmark="b", task_id="t")
    for window in (1, 2, 3, 5, 8):
        labels = stale_labels(WORKED, window=window, coverage=1.0, streams=streams)
        named = [label + 1 for found in labels.values() for label in found]
        assert len(named) == len(set(named))
        assert set(named) <= quiet_steps(WORKED)
        assert all(turn - window <= label + 1 <= turn - 1 for turn, found in labels.items() for label in found)
    everything = stale_labels(WORKED, window=1, coverage=1.0, streams=streams)
    assert sorted(label + 1 for found in everything.values() for label in found) == [2, 4, 5, 7, 8]


def test_the_two_lines() -> None:
    """PROGRESS is the first sentence of the thought, else the command; STALE lists labels or a dash (C.2)."""
    thought = step("ls", text="THOUGHT: Look at a.py first. Then run it.\n\n```bash\nls\n```")
    assert signal_lines(thought, (3, 4)) == "PROGRESS: Look at a.py first.\nSTALE: 3, 4\n"
    silent = step("cat a.py \\\n  b.py", text="```bash\ncat a.py \\\n  b.py\n```")
    assert signal_lines(silent, ()) == "PROGRESS: running: cat a.py \\ b.py\nSTALE: -\n"
    assert progress_text(step("", text="")) == "running: nothing"
    assert len(progress_text(step("ls", text="x" * 500))) == 200
    assert progress_text(step("ls", text="Now I look:\n\n- first\n- second")) == "Now I look:"


def test_long_runs_are_analysed_in_linear_time() -> None:
    """Lines that every step shows are looked at a bounded number of times: 1,500 equal outputs are no problem."""
    same = "\n".join(f"the very same line {number}" for number in range(50))
    run = run_of(*(step(f"command {number}", same) for number in range(1500)))
    assert quiet_steps(run) == set()


def test_recorded_runs_have_quiet_steps(shared_dir: Path) -> None:
    """On the 69 runs between 40 % and 85 % of the steps are never read again, and coverage 0.6 names about 0.6."""
    tasks = Recorded(path=str(shared_dir / "trajectories" / "neutral.jsonl.gz")).tasks()
    runs = [task.run for task in tasks if task.run is not None]
    assert len(runs) == 69
    num_steps = sum(len(run.steps) for run in runs)
    num_quiet = sum(len(quiet_steps(run)) for run in runs)
    assert 0.40 < num_quiet / num_steps < 0.85
    num_named = 0
    for task, run in zip(tasks, runs, strict=True):
        streams = SeededStreams(seed=0, replicate=1, benchmark="recorded", task_id=task.task_id)
        named = stale_labels(run, window=3, coverage=0.6, streams=streams)
        num_named += sum(len(labels) for labels in named.values())
    # Binomial: 4 standard deviations of 0.6 at about 2,500 steps are 0.04; some fall past the end.
    assert 0.55 < num_named / num_quiet < 0.64

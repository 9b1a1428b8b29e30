"""The replay environment: recorded outputs, recorded times, recorded ends."""

from __future__ import annotations

import pytest

from serving.calls import Message
from serving.clock import VirtualClock, run_virtual
from workers import errors
from workers.environments.replay import ReplayLauncher, recorded_end
from workers.harnesses.minimal import Minimal
from workers.history import Action, Observation
from workers.interfaces import RecordedRun, RecordedStep, Task


def step(*outputs: str, tool_s: float | None = 1.0) -> RecordedStep:
    """A step with one command per output."""
    actions = tuple(Action(f"command {number}") for number in range(len(outputs)))
    return RecordedStep(Message("assistant", "reply"), actions, tuple(map(Observation, outputs)), tool_s)


def recorded(*steps: RecordedStep, submission: str | None = None, status: str | None = None) -> Task:
    """A task with this run."""
    run = RecordedRun((Message("user", "task"),), steps, "made up", submission, exit_status=status)
    return Task("t", "task", "d", run)


def replayed(task: Task, **settings: float) -> tuple[list[str], errors.SessionEnd, float]:
    """Execute every command of the run: what was shown, how it ended, when."""

    async def main(clock: VirtualClock) -> tuple[list[str], errors.SessionEnd, float]:
        shown: list[str] = []
        assert task.run is not None
        try:
            async with ReplayLauncher(**settings).open(task=task, clock=clock, harness=Minimal()) as environment:
                for number, recorded_step in enumerate(task.run.steps, start=1):
                    for action in recorded_step.actions:
                        shown.append((await environment.execute(action, step=number)).shown)
        except errors.SessionEnd as end:
            return shown, end, clock.now_s()
        raise AssertionError("the run did not end")

    return run_virtual(main)


def test_outputs_times_and_submission() -> None:
    """Two commands of one step take the step's time once; the last command submits after its own time."""
    task = recorded(step("a", tool_s=0.5), step("b", "c", tool_s=2.0), step("", tool_s=0.25), submission="the patch")
    shown, end, now_s = replayed(task)
    assert shown == ["a", "b", "c"]
    assert isinstance(end, errors.Submitted)
    assert end.submission == "the patch"
    assert now_s == 2.75


def test_missing_times_take_the_default() -> None:
    """A step without a recorded time takes no time, or what the setting says."""
    task = recorded(step("a", tool_s=None), step("b", tool_s=None), submission="")
    assert replayed(task)[2] == 0.0
    assert replayed(task, default_tool_s=1.5)[2] == 3.0


@pytest.mark.parametrize(
    ("status", "end"),
    [
        ("LimitsExceeded", errors.StepLimit),
        ("exit_context", errors.ContextExhausted),
        ("RepeatedFormatError", errors.FormatLoop),
        ("exit_cost", errors.TokenLimit),
        ("TimeExceeded", errors.WallLimit),
        (None, errors.StepLimit),
        ("SomethingNew", errors.StepLimit),
    ],
)
def test_recordings_without_submission_end_as_they_ended(status: str | None, end: type[errors.SessionEnd]) -> None:
    """Known words of the harnesses map to our ends; an unknown or missing one is a step limit that says so."""
    task = recorded(step("a"), status=status)
    assert type(replayed(task)[1]) is end
    assert task.run is not None
    assert (status or "no exit status") in str(recorded_end(task.run))


def test_user_mistakes_are_one_line() -> None:
    """A live task and a negative time are refused before the session starts."""

    async def opened(clock: VirtualClock) -> None:
        with pytest.raises(errors.ConfigurationError, match="no recorded run"):
            ReplayLauncher().open(task=Task("t", "s", "d"), clock=clock, harness=Minimal())
        with pytest.raises(errors.ConfigurationError, match="default_tool_s=-1"):
            ReplayLauncher(default_tool_s=-1).open(task=recorded(step("a")), clock=clock, harness=Minimal())

    run_virtual(opened)


def test_an_intercepted_command_keeps_outputs_with_their_commands() -> None:
    """Of two commands in a step the first was answered by the renderer: the second still gets its own output."""
    two = RecordedStep(
        assistant=Message("assistant", "both"),
        actions=(Action("restore 1", "id-1"), Action("ls", "id-2")),
        observations=(Observation("restored", tool_call_id="id-1"), Observation("listing", tool_call_id="id-2")),
    )

    async def second_only(clock: VirtualClock) -> Observation:
        environment = ReplayLauncher().open(task=recorded(two, step("b")), clock=clock, harness=Minimal())
        return await environment.execute(two.actions[1], step=1)

    assert run_virtual(second_only).body == "listing"

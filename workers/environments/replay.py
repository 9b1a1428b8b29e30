"""`environment=replay`: gives back the recorded outputs and takes the recorded time.

The command itself is not looked at: replies are pinned (policy `replay`), so step n's commands are the recorded ones.
The last command of a recording ends the session as the recording ended.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from serving.interfaces import Clock
from workers.errors import (
    ConfigurationError,
    ContextExhausted,
    FormatLoop,
    SessionEnd,
    StepLimit,
    Submitted,
    TokenLimit,
    WallLimit,
)
from workers.history import Action, Observation
from workers.interfaces import Environment, Harness, RecordedRun, Task

# The words of mini-swe-agent and SWE-agent for the same ends; SWE-agent writes `submitted (exit_cost)` and the like.
_RECORDED_ENDS: Final[dict[str, type[SessionEnd]]] = {
    "LimitsExceeded": StepLimit,
    "StepLimit": StepLimit,
    "TokenLimit": TokenLimit,
    "exit_cost": TokenLimit,
    "WallLimit": WallLimit,
    "TimeExceeded": WallLimit,
    "exit_total_execution_time": WallLimit,
    "ContextExhausted": ContextExhausted,
    "ContextWindowExceededError": ContextExhausted,
    "exit_context": ContextExhausted,
    "FormatLoop": FormatLoop,
    "RepeatedFormatError": FormatLoop,
    "exit_format": FormatLoop,
}


def recorded_end(run: RecordedRun) -> SessionEnd:
    """How a replay of `run` ends after its last step.

    A recording that stops without a submission and without a status we know ends as StepLimit: the session was
    stopped from outside and its state then is its result.
    """
    if run.submission is not None:
        return Submitted(run.submission)
    end = _RECORDED_ENDS.get(run.exit_status or "", StepLimit)
    return end(f"the recording ends after {len(run.steps)} steps ({run.exit_status or 'no exit status recorded'})")


@dataclass(frozen=True)
class ReplayLauncher:
    """Opens the recorded outputs of a task's run.

    Attributes:
        default_tool_s: seconds of a step whose execution time was not recorded.
    Source: this project; recorded outputs pinned for paired arms as in ReFold section 4.4 (re-rendered trajectories).
    """

    REVISION: ClassVar[int] = 1

    default_tool_s: float = 0.0

    def open(self, *, task: Task, clock: Clock, harness: Harness) -> Environment:
        """The recorded outputs of `task`.

        Raises:
            ConfigurationError: the task has no recorded run, or the default time is negative.
        """
        if task.run is None:
            raise ConfigurationError(
                f"environment=replay: task {task.task_id} has no recorded run; use benchmark=recorded or synthetic"
            )
        if not 0 <= self.default_tool_s < float("inf"):
            raise ConfigurationError(f"environment.default_tool_s={self.default_tool_s}: give seconds, 0 or more")
        return RecordedOutputs(task.run, clock, self.default_tool_s)


class RecordedOutputs:
    """The environment of one replayed session."""

    def __init__(self, run: RecordedRun, clock: Clock, default_tool_s: float) -> None:
        self._run = run
        self._clock = clock
        self._default_tool_s = default_tool_s
        self._step = 0
        self._num_executed = 0

    async def __aenter__(self) -> Environment:
        """Nothing to start."""
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Nothing to stop."""

    async def execute(self, action: Action, *, step: int) -> Observation:
        """The recorded output of `action` in step `step` (1-based), after the step's recorded time.

        The time of a step is taken once, at its first command. A command that a renderer answered itself is skipped,
        so outputs stay with their commands.

        Raises:
            SessionEnd: this was the last command of the recording; the class says how it ended.
        """
        recorded = self._run.steps[step - 1]
        if step != self._step:
            self._step, self._num_executed = step, 0
            await self._clock.sleep(self._default_tool_s if recorded.tool_s is None else recorded.tool_s)
        while recorded.actions[self._num_executed] != action:
            self._num_executed += 1
        self._num_executed += 1
        if step == len(self._run.steps) and self._num_executed >= len(recorded.actions):
            raise recorded_end(self._run)
        return recorded.observations[self._num_executed - 1]

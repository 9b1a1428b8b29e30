"""`policy=replay`: the recorded replies, while the prompt is rendered by us (open loop).

Pinned are the reply, its commands and its completion length. What the recording lacks is what a renderer asks of
replies: `stale` says where the PROGRESS/STALE lines of ReFold come from. Nothing is added for a renderer that asks
nothing, so the control arm replays the recording as it is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import ClassVar

from serving.calls import CallResult, Message, PinnedReply
from serving.interfaces import TokenCounter
from workers.environments.replay import recorded_end
from workers.errors import ConfigurationError
from workers.history import History, Rendered
from workers.interfaces import Proposal, RecordedRun, Reply, SignalRequest, Streams, Task
from workers.policies.hindsight import signal_lines, stale_labels
from workers.policies.pinned import SessionState


class StaleSource(StrEnum):
    """Where the signals in replayed replies come from."""

    none = "none"
    recorded = "recorded"
    hindsight = "hindsight"


class GeneratedIds(StrEnum):
    """Which token ids the engine's generated positions get (architecture, section 8)."""

    recorded = "recorded"
    opaque = "opaque"


@dataclass(frozen=True, slots=True)
class ReplaySession:
    """What `start` made for one session.

    Attributes:
        labels: turn -> labels named STALE in its reply; None when no lines are added.
    """

    run: RecordedRun
    counter: TokenCounter
    labels: dict[int, tuple[int, ...]] | None
    signals_source: str


@dataclass(frozen=True)
class Replay(SessionState):
    """Replay a task's recorded run.

    Attributes:
        stale: none (no signals), recorded (as the recording has them) or hindsight (steps no later step reads again,
            named at a seeded delay of 1..k, with a PROGRESS line each).
        coverage: share of the quiet steps that hindsight names.
        generated: recorded gives generated positions the ids the reply has in the next prompt; opaque gives them
            fresh ids, as on a real server that generates something else.
        max_completion_tokens: limit per reply; a recorded reply above it is refused.
        cwd: directory a recorded command starts in; hindsight sees relative paths from there.
    Source: re-rendered trajectories, ReFold (arXiv 2610.07863) section 4.4; stale and coverage are our choice, the
        recordings hold no PROGRESS/STALE lines.
    """

    REVISION: ClassVar[int] = 1

    stale: StaleSource = StaleSource.hindsight
    coverage: float = 0.6
    generated: GeneratedIds = GeneratedIds.recorded
    max_completion_tokens: int = 16384
    cwd: str = "/testbed"

    def __post_init__(self) -> None:
        if not 0.0 <= self.coverage <= 1.0:
            raise ConfigurationError(f"policy.coverage={self.coverage}: give a share between 0 and 1")
        if self.max_completion_tokens < 1:
            raise ConfigurationError(f"policy.max_completion_tokens={self.max_completion_tokens}: give at least 1")

    @property
    def is_pinned(self) -> bool:
        """Replies do not depend on the prompt."""
        return True

    @property
    def signals_source(self) -> str:
        """none | recorded | hindsight: of the session since `start`, `none` where the renderer asks nothing."""
        return self._session.signals_source

    def start(self, *, task: Task, signals: SignalRequest | None, counter: TokenCounter, streams: Streams) -> None:
        """Begin the replay of `task`.

        Raises:
            ConfigurationError: the task has no recorded run, a run without text meets a renderer that asks for
                signals, or a recorded reply is over the limit.
        """
        if task.run is None:
            raise ConfigurationError(
                f"policy=replay: task {task.task_id} has no recorded run; use benchmark=recorded or synthetic"
            )
        if signals is not None and not task.run.has_text:
            raise ConfigurationError(
                f"task {task.task_id} comes from a length-only trace without text: only renderer=base can show it"
            )
        self._check_lengths(task.task_id, task.run)
        asked = signals is not None and signals.kind == "stale"
        labels = None
        if signals is not None and asked and self.stale is StaleSource.hindsight:
            labels = stale_labels(
                task.run, window=signals.window, coverage=self.coverage, streams=streams, cwd=self.cwd
            )
        self._begin(ReplaySession(task.run, counter, labels, self.stale.value if asked else StaleSource.none.value))

    def propose(self, history: History, rendered: Rendered) -> Proposal:
        """Pin the next recorded reply.

        Raises:
            SessionEnd: the recording is over (its last reply had no command that could end it).
        """
        session = self._session
        if len(history) == len(session.run.steps):
            raise recorded_end(session.run)
        message, added_lines = self._reply(len(history) + 1)
        num_added = session.counter.count_text(added_lines) if added_lines else 0
        ids = session.counter.reply_ids(message)
        recorded = session.run.steps[len(history)].num_completion_tokens
        # Recorded counts are the provider's; with another tokenizer the text may be longer than what was generated.
        num_tokens = len(ids) if recorded is None else recorded + num_added
        pinned_ids = ids[:num_tokens] if self.generated is GeneratedIds.recorded else None
        limit = self.max_completion_tokens + num_added
        return Proposal(max_completion_tokens=limit, pinned=PinnedReply(message, max(1, num_tokens), pinned_ids))

    def interpret(self, history: History, result: CallResult) -> Reply:
        """The recorded commands of this reply, or the recorded error text when it had none.

        The pinned message enters the history, whatever text a real server generated in its place.
        """
        step = self._session.run.steps[len(history)]
        error = None if step.actions else "\n".join(observation.shown for observation in step.observations)
        return Reply(self._reply(len(history) + 1)[0], step.actions, error)

    @property
    def _session(self) -> ReplaySession:
        session: ReplaySession = self._started()
        return session

    def _reply(self, turn: int) -> tuple[Message, str]:
        """The reply of `turn` (1-based) as it enters the history, and the lines that were added to it."""
        session = self._session
        step = session.run.steps[turn - 1]
        if session.labels is None:
            return step.assistant, ""
        lines = signal_lines(step, session.labels.get(turn, ()))
        return replace(step.assistant, content=lines + step.assistant.content), lines

    def _check_lengths(self, task_id: str, run: RecordedRun) -> None:
        for index, step in enumerate(run.steps, start=1):
            if (step.num_completion_tokens or 0) > self.max_completion_tokens:
                raise ConfigurationError(
                    f"policy.max_completion_tokens={self.max_completion_tokens}: step {index} of task {task_id} "
                    f"generated {step.num_completion_tokens} tokens; raise the limit"
                )

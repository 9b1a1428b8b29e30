"""The session loop over scripted replies: what is recorded, and how every kind of end is told apart."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from db import records
from db.recorder import InMemoryRecorder
from orchestrator.virtual_attempt import DirectSink
from serving import errors as serving_errors
from serving.calls import (
    CallKind,
    CallRequest,
    CallResult,
    EngineTimings,
    FinishReason,
    Message,
    ReplicaSample,
    ReplicaView,
    TokenUsage,
)
from serving.clock import VirtualClock, run_virtual
from serving.routers.sticky import StickyRouter
from serving.tokens import SplitterCounter
from workers import errors
from workers.harnesses.minimal import Minimal
from workers.history import Action, History, Memo, Observation, Rendered
from workers.interfaces import AuxCaller, Harness, HarnessTemplate, Task
from workers.limits import Limits
from workers.policies.scripted import Scripted
from workers.renderers.base import Base
from workers.session import Session, SessionParts, SessionWorld
from workers.streams import SeededStreams

TASK = Task("task-1", "Fix it.", "digest")
SUBMIT = "```bash\nsubmit\n```"
LIST = "```bash\nls\n```"


@dataclass
class OneSecondReplica:
    """Serves every call in one second, or raises what it was given at the call of that number."""

    clock: VirtualClock
    failures: dict[int, Exception] = field(default_factory=dict)
    replica_id: str = "m/0"
    model: str = "m"
    calls: list[CallRequest] = field(default_factory=list)

    async def generate(self, call: CallRequest) -> CallResult:
        self.calls.append(call)
        sent_s = self.clock.now_s()
        await self.clock.sleep(1.0)
        if len(self.calls) in self.failures:
            raise self.failures[len(self.calls)]
        assert call.pinned is not None
        usage = TokenUsage(call.prompt.num_tokens, 0, call.pinned.num_tokens, "engine")
        timings = EngineTimings(queue_delay_s=0.0, num_preemptions=0, max_shared_tokens=0)
        return CallResult(
            call.pinned.message, usage, timings, sent_s, sent_s + 0.5, self.clock.now_s(), FinishReason.stop
        )

    def sample(self) -> ReplicaSample:
        raise NotImplementedError

    def drain_samples(self) -> list[ReplicaSample]:
        return []

    async def reset_prefix_cache(self) -> None: ...

    async def close(self) -> None: ...


@dataclass
class HalfSecondShell:
    """Answers every command after half a second; `submit` submits, `die` kills the environment."""

    clock: VirtualClock

    async def __aenter__(self) -> HalfSecondShell:
        return self

    async def __aexit__(self, *exc: object) -> None: ...

    async def execute(self, action: Action, *, step: int) -> Observation:
        await self.clock.sleep(0.5)
        if action.command == "submit":
            raise errors.Submitted("the patch")
        if action.command == "die":
            raise errors.EnvironmentDied("killed from outside")
        return Observation(f"output of {action.command}", returncode=0)


class ShellLauncher:
    def open(self, *, task: Task, clock: Any, harness: Harness) -> HalfSecondShell:
        return HalfSecondShell(clock)


class StatementBenchmark:
    source = "live"

    def tasks(self) -> list[Task]:
        return [TASK]

    def prompt(self, task: Task, harness: Harness) -> HarnessTemplate:
        return harness.template(task.statement)


@dataclass
class Outcome:
    end: errors.SessionEnd
    calls: list[records.Call]
    sessions: list[records.Session]
    executions: list[records.ToolExecution]
    replica: OneSecondReplica


def run(
    replies: list[str],
    *,
    limits: Limits | None = None,
    failures: dict[int, Exception] | None = None,
    renderer: Any = None,
    during: Callable[[VirtualClock, asyncio.Task[errors.SessionEnd]], Awaitable[None]] | None = None,
) -> Outcome:
    """Run one session over `replies` and return its end and rows."""
    recorder = InMemoryRecorder()
    recorder.start_attempt(
        records.Attempt(
            attempt_id="a.1",
            cell_key="a",
            number=1,
            lease_epoch=1,
            owner="me",
            started_utc_s=0.0,
            num_tasks=1,
            engine_kind="simulated",
            policy_kind="scripted",
            benchmark_source="live",
        )
    )

    async def main(clock: VirtualClock) -> tuple[errors.SessionEnd, OneSecondReplica]:
        replica = OneSecondReplica(clock, failures or {})
        world = SessionWorld(
            attempt_id="a.1",
            benchmark=StatementBenchmark(),
            harness=Minimal(),
            launcher=ShellLauncher(),
            router=StickyRouter(),
            replicas={replica.replica_id: replica},
            views=lambda: [ReplicaView(replica.replica_id, replica.model)],
            model="m",
            clock=clock,
            counter=SplitterCounter(),
            sink=DirectSink(recorder),
            limits=limits or Limits(budget_tokens=100_000),
        )
        parts = SessionParts(
            task=TASK,
            ordinal=0,
            worker="worker-0",
            renderer=renderer or Base(),
            policy=Scripted(replies=replies),
            streams=SeededStreams(seed=0, replicate=1, benchmark="b", task_id=TASK.task_id),
        )
        task = asyncio.create_task(Session(parts, world).run())
        if during is not None:
            await during(clock, task)
        try:
            return await task, replica
        except asyncio.CancelledError:
            return errors.Cancelled("cancelled"), replica

    end, replica = run_virtual(main)
    recorder.flush()
    return Outcome(
        end,
        recorder.rows[records.Call],
        recorder.rows[records.Session],
        recorder.rows[records.ToolExecution],
        replica,
    )


def test_two_steps_and_a_submission_on_the_clock() -> None:
    """Two calls of 1 s and two commands of 0.5 s: rows carry those stamps, and the submission ends the session."""
    outcome = run([LIST, SUBMIT])
    assert isinstance(outcome.end, errors.Submitted)
    first, second = outcome.calls
    assert (first.due_s, first.sent_s, first.first_token_s, first.last_token_s) == (0.0, 0.0, 0.5, 1.0)
    assert (second.due_s, second.tool_result_s, second.last_token_s) == (1.5, 1.5, 2.5)
    assert [call.step for call in outcome.calls] == [1, 2]
    assert second.num_prompt_tokens is not None
    assert first.num_prompt_tokens is not None
    assert first.shared_prefix_tokens == 0
    # The second prompt starts with the first one and the first reply.
    assert second.shared_prefix_tokens == first.num_prompt_tokens + (first.num_completion_tokens or 0)
    (session,) = outcome.sessions
    assert (session.exit_status, session.submission, session.num_steps) == ("Submitted", "the patch", 2)
    assert (session.started_s, session.finished_s, session.last_response_s) == (0.0, 3.0, 2.5)
    assert [execution.command for execution in outcome.executions] == ["ls"]


def test_step_limit_counts_main_calls() -> None:
    """With max_steps = 2 a third call is never made, and the session's own result is StepLimit."""
    outcome = run([LIST] * 5, limits=Limits(budget_tokens=100_000, max_steps=2))
    assert outcome.sessions[0].exit_status == "StepLimit"
    assert len(outcome.replica.calls) == 2
    assert not outcome.end.invalidates_cell


def test_a_prompt_over_the_budget_is_recorded_and_not_sent() -> None:
    """The row says exhausted with the estimate and no engine counts; nothing reaches the replica."""
    outcome = run([LIST], limits=Limits(budget_tokens=10))
    (call,) = outcome.calls
    assert call.state == "exhausted"
    assert call.num_prompt_tokens is None
    assert (call.num_estimated_prompt_tokens or 0) > 10
    assert outcome.replica.calls == []
    assert outcome.sessions[0].is_exhausted


@pytest.mark.parametrize(
    ("failure", "status", "state", "invalidates"),
    [
        (serving_errors.StreamTimeout("600 s without a token"), "StreamTimeout", "timeout", False),
        (serving_errors.ConnectTimeout("no connection"), "ReplicaLost", "timeout", True),
        (serving_errors.ReplicaRejected("503"), "ReplicaRejected", "error", True),
        (serving_errors.ReplicaLost("gone"), "ReplicaLost", "error", True),
        (serving_errors.ContextOverflow("too long"), "ContextExhausted", "error", False),
    ],
)
def test_serving_errors_end_the_session_by_the_table(
    failure: Exception, status: str, state: str, invalidates: bool
) -> None:
    """Each serving error maps to one exit status (architecture, section 6) and its call is still a row."""
    outcome = run([LIST, LIST, SUBMIT], failures={2: failure})
    assert outcome.sessions[0].exit_status == status
    assert outcome.end.invalidates_cell is invalidates
    assert [call.state for call in outcome.calls] == ["ok", state]
    assert outcome.sessions[0].num_main_calls == 2


def test_a_dead_environment_is_never_tool_output() -> None:
    """EnvironmentDied ends the session and invalidates the cell."""
    outcome = run(["```bash\ndie\n```", SUBMIT])
    assert outcome.sessions[0].exit_status == "EnvironmentDied"
    assert outcome.end.invalidates_cell


def test_three_format_errors_in_a_row_end_the_session() -> None:
    """A reply without a block is a turn of its own; a good one in between starts the count anew."""
    outcome = run(["no block", "none", LIST, "no", "no", "no", SUBMIT])
    assert outcome.sessions[0].exit_status == "FormatLoop"
    assert outcome.sessions[0].num_steps == 6


def test_cancellation_leaves_a_row() -> None:
    """A cancelled session is recorded as Cancelled with the calls it made."""

    async def cancel_later(clock: VirtualClock, task: asyncio.Task[errors.SessionEnd]) -> None:
        await clock.sleep(1.7)
        task.cancel()

    outcome = run([LIST, LIST, SUBMIT], during=cancel_later)
    assert outcome.sessions[0].exit_status == "Cancelled"
    assert len(outcome.calls) == 1


class BrokenRenderer(Base):
    """Fails at its second render."""

    def render(self, history: History, visible_from: int = 1) -> Rendered:
        if len(history):
            raise KeyError("a bug of ours")
        return super().render(history, visible_from)


def test_our_own_error_is_a_bug_with_its_traceback() -> None:
    """An unexpected exception becomes exit status Bug, invalidates the cell and keeps the traceback."""
    outcome = run([LIST, SUBMIT], renderer=BrokenRenderer())
    (session,) = outcome.sessions
    assert session.exit_status == "Bug"
    assert "a bug of ours" in (session.traceback or "")
    assert outcome.end.invalidates_cell


class SummarizingRenderer(Base):
    """Asks for one summary after every turn."""

    async def observe(self, history: History, seen: Rendered, aux: AuxCaller) -> tuple[Memo, ...]:
        reply = await aux(
            kind=CallKind.summary,
            messages=(Message("user", "Summarize."),),
            max_completion_tokens=50,
            declared_tokens=20,
        )
        return (Memo("renderer", "summary", len(history), {"text": reply.text}),)


def test_auxiliary_calls_are_rows_of_their_own() -> None:
    """An auxiliary call is routed, numbered after its main call, costs its declared tokens and says it was seeded."""
    outcome = run([LIST, SUBMIT], renderer=SummarizingRenderer())
    assert [(call.call_index, call.kind) for call in outcome.calls] == [(1, "main"), (2, "summary"), (3, "main")]
    auxiliary = outcome.calls[1]
    assert (auxiliary.aux_source, auxiliary.num_completion_tokens) == ("seeded", 20)
    assert [request.main_index for request in outcome.replica.calls] == [1, 1, 2]
    (session,) = outcome.sessions
    assert (session.num_steps, session.num_auxiliary_calls, session.num_compactions) == (2, 1, 1)


def test_own_time_leaves_out_the_wait_for_auxiliary_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """A summary that takes 5 s of wall clock is the replica's time; the renderer's own time stays 0."""
    wall_s = [0.0]
    for module in ("workers.session", "workers.aux_calls"):
        monkeypatch.setattr(f"{module}.stopwatch_s", lambda: wall_s[0])
    serve = OneSecondReplica.generate

    async def serve_slowly(self: OneSecondReplica, call: CallRequest) -> CallResult:
        wall_s[0] += 5.0
        return await serve(self, call)

    monkeypatch.setattr(OneSecondReplica, "generate", serve_slowly)
    outcome = run([LIST, SUBMIT], renderer=SummarizingRenderer())
    assert [call.own_ms for call in outcome.calls if call.kind == "main"] == [0.0, 0.0]

"""One agent session, the same code on simulated replicas, real servers, recordings and live containers.

The loop is ReFold's Algorithm 1 around a harness: render -> route -> generate -> read -> intercept or execute ->
append -> observe -> record. Everything it needs arrives in `SessionParts` (made for this session) and `SessionWorld`
(shared by the attempt); it reads no time but the clock's and sends every call as a row to the sink.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from db import records
from db.errors import DbError
from serving import errors as serving_errors
from serving.calls import CallKind, ReplicaView
from serving.clock import stopwatch_s
from serving.interfaces import Clock, Replica, Router, TokenCounter
from workers import errors
from workers.aux_calls import SessionAux
from workers.fate import FateTracker
from workers.history import NO_SIGNALS, Action, History, Observation, Rendered, Turn, TurnKind
from workers.interfaces import (
    Benchmark,
    Environment,
    EnvironmentLauncher,
    Harness,
    Policy,
    Renderer,
    Reply,
    RowSink,
    Streams,
    Task,
)
from workers.limits import Limits
from workers.model_calls import CallCost, ModelCaller
from workers.prompt_parts import tokens_by_part


@dataclass(frozen=True, slots=True)
class SessionWorld:
    """What all sessions of an attempt share.

    Attributes:
        views: the replicas as routers may see them now, in fixed order.
        model: the model every main call asks for; a router may choose another.
    """

    attempt_id: str
    benchmark: Benchmark
    harness: Harness
    launcher: EnvironmentLauncher
    router: Router
    replicas: Mapping[str, Replica]
    views: Callable[[], Sequence[ReplicaView]]
    model: str
    clock: Clock
    counter: TokenCounter
    sink: RowSink
    limits: Limits


@dataclass(frozen=True, slots=True)
class SessionParts:
    """What belongs to one session alone.

    Attributes:
        ordinal: position of the task in the cell's list, from 0; also the session's home slot for sticky routing.
    """

    task: Task
    ordinal: int
    worker: str
    renderer: Renderer
    policy: Policy
    streams: Streams


class Session:
    """Runs one session to its end; `run` never raises for what happens inside the session."""

    def __init__(self, parts: SessionParts, world: SessionWorld) -> None:
        self._parts = parts
        self._world = world
        self._session_id = parts.task.task_id
        parts.renderer.start(counter=world.counter, budget_tokens=world.limits.budget_tokens, path="renderer")
        parts.policy.start(
            task=parts.task, signals=parts.renderer.signals, counter=world.counter, streams=parts.streams
        )
        template = parts.renderer.prompt_layer(world.benchmark.prompt(parts.task, world.harness))
        self.history = History(template.opening())
        self._caller = ModelCaller(
            attempt_id=world.attempt_id,
            session_id=self._session_id,
            home=parts.ordinal,
            model=world.model,
            router=world.router,
            replicas=world.replicas,
            views=world.views,
            clock=world.clock,
            sink=world.sink,
            idle_timeout_s=world.limits.idle_timeout_s,
        )
        self._aux = SessionAux(
            self._caller, counter=world.counter, streams=parts.streams, is_pinned=parts.policy.is_pinned
        )
        self._fate = FateTracker()
        self._own_s = 0.0
        self._tool_result_s: float | None = None
        self._format_errors = 0
        self._num_reruns = 0

    async def run(self) -> errors.SessionEnd:
        """Run to the end, record the session's row and return how it ended.

        Raises:
            asyncio.CancelledError: the attempt is being stopped (the row says Cancelled).
        """
        started_s = self._world.clock.now_s()
        detail: str | None = None
        cancelled: asyncio.CancelledError | None = None
        end: errors.SessionEnd
        try:
            end = await self._run_in_environment()
        except asyncio.CancelledError as exc:
            end, cancelled = errors.Cancelled("the attempt was stopped"), exc
        except errors.SessionEnd as exc:
            end = exc
        except serving_errors.ServingError as exc:
            end = _end_of(exc)
        except DbError as exc:
            end = errors.RecorderLost(str(exc))
        except Exception as exc:  # the boundary: our own error ends the session, with its traceback
            end = errors.Bug(f"{type(exc).__name__}: {exc}")
            detail = traceback.format_exc()
        await self._record(end, started_s=started_s, detail=detail)
        if cancelled is not None:
            raise cancelled
        return end

    async def _run_in_environment(self) -> errors.SessionEnd:
        world = self._world
        async with world.launcher.open(task=self._parts.task, clock=world.clock, harness=world.harness) as environment:
            while True:
                try:
                    await self._step(environment)
                except errors.OwnResult as end:
                    return end

    async def _step(self, environment: Environment) -> None:
        """One main-loop call and what follows from it."""
        parts, limits = self._parts, self._world.limits
        step = len(self.history) + 1
        if step > limits.max_steps:
            raise errors.StepLimit(f"{limits.max_steps} steps")
        rendered, render_s = self._render()
        if rendered.own_s_modelled:
            await self._world.clock.sleep(rendered.own_s_modelled)
        messages = rendered.messages
        prompt = self._world.counter.prompt(messages)
        cost = CallCost(
            step=step,
            render_ms=render_s * 1e3,
            own_ms=self._own_s * 1e3,
            own_s_modelled=rendered.own_s_modelled,
            tool_result_s=self._tool_result_s,
            rendered=rendered,
            parts=tokens_by_part(rendered, prompt),
            removed=self._fate.removed(self.history, rendered, self._world.counter, parts.renderer.is_reversible),
        )
        if prompt.num_tokens > limits.budget_tokens:
            self._caller.record_exhausted(prompt, cost)
            raise errors.ContextExhausted(f"prompt of {prompt.num_tokens} tokens, budget {limits.budget_tokens}")
        proposal = parts.policy.propose(self.history, rendered)
        result = await self._caller.call(
            kind=CallKind.main, messages=messages, prompt=prompt, proposal=proposal, cost=cost
        )
        reply = parts.policy.interpret(self.history, result)
        mark_s = stopwatch_s()
        signals = parts.renderer.read_reply(reply.message) if parts.renderer.signals else NO_SIGNALS
        self._own_s = stopwatch_s() - mark_s
        observations, kind = await self._act(environment, reply, step)
        self._tool_result_s = self._world.clock.now_s()
        self.history.append(
            Turn(
                index=step,
                assistant=reply.message,
                actions=reply.actions,
                observations=observations,
                kind=kind,
                signals=signals,
                usage=result.usage,
                may_remind=not parts.policy.is_pinned,
            )
        )
        self._aux.main_step = step
        mark_s, waited_s = stopwatch_s(), self._aux.waited_s
        memos = await parts.renderer.observe(self.history, rendered, self._aux)
        self._own_s += stopwatch_s() - mark_s - (self._aux.waited_s - waited_s)
        self.history.extend(memos)
        if self._format_errors >= limits.max_format_errors:
            raise errors.FormatLoop(f"{self._format_errors} replies in a row without a valid action")

    def _render(self) -> tuple[Rendered, float]:
        mark_s = stopwatch_s()
        rendered = self._parts.renderer.render(self.history)
        return rendered, stopwatch_s() - mark_s

    async def _act(self, environment: Environment, reply: Reply, step: int) -> tuple[tuple[Observation, ...], TurnKind]:
        """Execute the reply's commands, or let the renderer answer them."""
        if not reply.actions:
            self._format_errors += 1
            return (Observation(reply.error or "", returncode=None),), TurnKind.format_error
        self._format_errors = 0
        kind = TurnKind.command
        observations = []
        for action in reply.actions:
            started_s = self._world.clock.now_s()
            answer = self._parts.renderer.intercept(self.history, action)
            if answer is None:
                observation = await environment.execute(action, step=step)
            else:
                observation = answer
                kind = _kind_of_answer(action)
            self._record_execution(
                action, observation, step=step, started_s=started_s, is_intercepted=answer is not None
            )
            observations.append(observation)
        return tuple(observations), kind

    def _record_execution(
        self, action: Action, observation: Observation, *, step: int, started_s: float, is_intercepted: bool
    ) -> None:
        output_chars = observation.num_output_chars
        self._world.sink.record_tool_execution(
            records.ToolExecution(
                attempt_id=self._world.attempt_id,
                session_id=self._session_id,
                turn=step,
                started_s=started_s,
                finished_s=self._world.clock.now_s(),
                return_code=observation.returncode,
                is_intercepted=is_intercepted,
                num_output_bytes=output_chars,
                is_truncated=output_chars is not None and output_chars > len(observation.body),
                command=action.command[:2000],
            )
        )

    async def _record(self, end: errors.SessionEnd, *, started_s: float, detail: str | None) -> None:
        """Wait until every call of the session is acknowledged, then send its own row."""
        caller, world = self._caller, self._world
        turns = self.history.turns
        try:
            await world.sink.settle(max_pending=0)
            world.sink.record_session(
                records.Session(
                    attempt_id=world.attempt_id,
                    session_id=self._session_id,
                    task_id=self._parts.task.task_id,
                    ordinal=self._parts.ordinal,
                    worker=self._parts.worker,
                    exit_status=end.status,
                    is_timed_out=isinstance(end, errors.StreamTimeout),
                    is_exhausted=isinstance(end, errors.ContextExhausted),
                    num_steps=caller.num_main_calls,
                    num_main_calls=caller.num_main_calls,
                    num_auxiliary_calls=caller.num_auxiliary_calls,
                    started_s=started_s,
                    finished_s=world.clock.now_s(),
                    first_request_s=caller.first_request_s,
                    last_response_s=caller.last_response_s,
                    num_compactions=sum(memo.kind == "summary" for memo in self.history.all_memos),
                    num_restores=sum(turn.kind is TurnKind.restore for turn in turns),
                    num_recalls=sum(turn.kind is TurnKind.recall for turn in turns),
                    num_metadata_misses=_metadata_misses(turns, self._parts.renderer),
                    num_rejected_stale_labels=_rejected_labels(turns, self._parts.renderer),
                    peak_prompt_tokens=caller.peak_prompt_tokens,
                    submission=end.submission if isinstance(end, errors.Submitted) else None,
                    message=str(end),
                    traceback=detail,
                )
            )
        except DbError:
            if not isinstance(end, errors.RecorderLost):
                raise


def _kind_of_answer(action: Action) -> TurnKind:
    """What a command was that the renderer answered itself: restore, recall, or a command its guard blocked."""
    word = (action.command.split() or [""])[0]
    return {"restore": TurnKind.restore, "recall": TurnKind.recall}.get(word, TurnKind.guard)


def _metadata_misses(turns: Sequence[Turn], renderer: Renderer) -> int | None:
    """Replies without the asked-for PROGRESS line; None when it was not asked for, or replies are pinned."""
    if renderer.signals is None or renderer.signals.kind != "stale":
        return None
    return sum(turn.may_remind and turn.signals.asked and turn.signals.progress is None for turn in turns)


def _rejected_labels(turns: Sequence[Turn], renderer: Renderer) -> int | None:
    """Stale labels outside the window {t-k..t-1} (ReFold Eq. 4); None when nothing was asked."""
    if renderer.signals is None or renderer.signals.kind != "stale":
        return None
    window = renderer.signals.window
    return sum(
        not (turn.index - window <= label + 1 <= turn.index - 1) for turn in turns for label in turn.signals.stale
    )


def _end_of(exc: serving_errors.ServingError) -> errors.SessionEnd:
    """The exit status of a serving error (architecture, section 6)."""
    text = str(exc) or type(exc).__name__
    if isinstance(exc, serving_errors.StreamTimeout):
        return errors.StreamTimeout(text)
    if isinstance(exc, serving_errors.ContextOverflow):
        return errors.ContextExhausted(text)
    if isinstance(exc, serving_errors.ReplicaRejected):
        return errors.ReplicaRejected(text)
    if isinstance(exc, (serving_errors.ReplicaLost, serving_errors.CallTimeout)):
        return errors.ReplicaLost(text)
    return errors.Bug(f"{type(exc).__name__}: {text}")

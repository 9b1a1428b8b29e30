"""The seams of the workers room: renderers, policies, environments, benchmarks, auxiliary calls, harness templates.

Components are frozen dataclasses of plain settings; collaborators arrive as arguments. One renderer, policy and
environment object serves one session; caches inside them never decide a result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol

from db import records
from serving.calls import CallKind, CallResult, Message, PinnedReply, TokenUsage
from serving.interfaces import Clock, TokenCounter
from workers.history import Action, History, Memo, Observation, Rendered, Signals


@dataclass(frozen=True, slots=True)
class HarnessTemplate:
    """The prompt of a harness, in the pieces that a renderer's prompt layer may change.

    Attributes:
        system: the system message.
        task: the task message of one task, already filled in.
        format_item: the exact text inside `system` or `task` that asks for an open-ended reasoning section, which
            ReFold replaces by its protocol (methods 1A.4); None when the harness has none, then layers append.
        observation_role: `user`, or `tool` for tool-call formats.
    """

    system: str
    task: str
    format_item: str | None = None
    observation_role: str = "user"

    def opening(self) -> tuple[Message, ...]:
        """System (when there is one) and task message."""
        system = (Message("system", self.system),) if self.system else ()
        return (*system, Message("user", self.task))


@dataclass(frozen=True, slots=True)
class Reply:
    """A reply read by the policy: the assistant message as it enters the history, and its commands."""

    message: Message
    actions: tuple[Action, ...]
    error: str | None = None


@dataclass(frozen=True, slots=True)
class SignalRequest:
    """What a renderer asks of every reply. `kind` is `stale` (ReFold's two lines); `window` is k."""

    kind: str
    window: int


@dataclass(frozen=True, slots=True)
class AuxReply:
    """The text of an auxiliary call and what it cost."""

    text: str
    usage: TokenUsage
    source: str


class AuxCaller(Protocol):
    """The only way a renderer reaches a model: routes, records and prices the call."""

    async def __call__(
        self,
        *,
        kind: CallKind,
        messages: tuple[Message, ...],
        max_completion_tokens: int,
        declared_tokens: int,
        is_priced_uncached: bool = False,
        adopt: Callable[[str], bool] | None = None,
    ) -> AuxReply:
        """Make one auxiliary call.

        Args:
            declared_tokens: length of the stand-in text when no model answers (replay, simulation).
            is_priced_uncached: the whole prompt is priced at the uncached rate, whatever the cache served.
            adopt: whether a reply's text will be used, recorded with the call; None uses every reply.
        Raises:
            AuxiliaryError: the call failed or came back empty.
        """
        ...


class Renderer(Protocol):
    """How a history becomes a prompt. `render` is a pure function of history, budget and token counter.

    Attributes:
        signals: what it asks of every reply, or None.
        is_reversible: whether it can show removed text again (the fate of removed tokens is then `recoverable`).
    """

    @property
    def signals(self) -> SignalRequest | None:
        """What it asks of every reply."""
        ...

    @property
    def is_reversible(self) -> bool:
        """Whether removed text can be shown again."""
        ...

    def start(self, *, counter: TokenCounter, budget_tokens: int, path: str) -> None:
        """Give the collaborators once, before anything else; `path` names its memos (`compact.inner`)."""
        ...

    def prompt_layer(self, template: HarnessTemplate) -> HarnessTemplate:
        """Its changes to the harness's prompt."""
        ...

    def read_reply(self, reply: Message) -> Signals:
        """Read the signals of one reply."""
        ...

    def intercept(self, history: History, action: Action) -> Observation | None:
        """Answer an action itself (`restore 3`), without the environment; None passes it on."""
        ...

    async def observe(self, history: History, seen: Rendered, aux: AuxCaller) -> tuple[Memo, ...]:
        """Called once after every appended turn; `seen` is the outermost render the agent answered to."""
        ...

    def render(self, history: History, visible_from: int = 1) -> Rendered:
        """The context before the next call; turns before `visible_from` are another renderer's business."""
        ...


@dataclass(frozen=True, slots=True)
class Proposal:
    """How the next reply is to be generated."""

    max_completion_tokens: int
    pinned: PinnedReply | None = None
    temperature: float = 0.0
    seed: int | None = None


class Policy(Protocol):
    """Who decides the next reply: a real model, a recording, a script.

    Attributes:
        is_pinned: replies do not depend on the prompt (then no reminders are rendered).
        signals_source: none | recorded | hindsight | live, stored with every session.
    """

    @property
    def is_pinned(self) -> bool:
        """Whether replies are fixed in advance."""
        ...

    @property
    def signals_source(self) -> str:
        """Where signals come from."""
        ...

    def start(self, *, task: Task, signals: SignalRequest | None, counter: TokenCounter, streams: Streams) -> None:
        """Begin a session on `task`."""
        ...

    def propose(self, history: History, rendered: Rendered) -> Proposal:
        """Decide how the next reply is generated."""
        ...

    def interpret(self, history: History, result: CallResult) -> Reply:
        """Read the reply; without a valid action `actions` is empty and `error` is what the agent is told."""
        ...


class Environment(Protocol):
    """Where commands run; an async context manager."""

    async def __aenter__(self) -> Environment: ...

    async def __aexit__(self, *exc: object) -> None: ...

    async def execute(self, action: Action, *, step: int) -> Observation:
        """Run one command of step `step` (1-based).

        Raises:
            Submitted: the command was the submission.
            EnvironmentDied: the environment is gone.
        """
        ...


class RowSink(Protocol):
    """Where a session's rows go: a recorder in this process, or a recorder actor behind a queue."""

    def record_session(self, session: records.Session) -> None:
        """Accept the row of an ended session."""
        ...

    def record_call(self, call: records.Call) -> None:
        """Accept one call."""
        ...

    def record_tool_execution(self, execution: records.ToolExecution) -> None:
        """Accept one executed action."""
        ...

    async def settle(self, *, max_pending: int) -> None:
        """Wait until at most `max_pending` accepted rows are not yet committed.

        Raises:
            DbError: rows cannot be written, or the attempt's lease is lost.
        """
        ...


class Streams(Protocol):
    """Random streams seeded by (seed, replicate, benchmark, task, name), never by arm, w, router or cell."""

    def uniform(self, name: str, *key: int | str) -> float:
        """A number in [0, 1) that depends only on the stream and `key`."""
        ...

    def integer(self, name: str, *key: int | str) -> int:
        """A number in [0, 2**63)."""
        ...


@dataclass(frozen=True, slots=True)
class RecordedStep:
    """One step of a recorded run in neutral form.

    Attributes:
        assistant: the reply as recorded.
        actions: its commands.
        observations: what the agent was shown, framed, one per action (or the error text).
        tool_s: execution time in seconds, None when not recorded.
        num_prompt_tokens, num_completion_tokens, num_cached_tokens: as recorded by the provider, or None.
        kind: search | read | run | edit | write | submit | none | other.
    """

    assistant: Message
    actions: tuple[Action, ...]
    observations: tuple[Observation, ...]
    tool_s: float | None = None
    num_prompt_tokens: int | None = None
    num_completion_tokens: int | None = None
    num_cached_tokens: int | None = None
    kind: str = "other"


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """A recorded (or synthetic) session: the opening as shown and its steps. `submission` is None without a submit.

    `exit_status` is the recording's own word for its end (`Submitted`, `LimitsExceeded`, ...), None when it has none.
    """

    opening: tuple[Message, ...]
    steps: tuple[RecordedStep, ...]
    source_format: str
    submission: str | None = None
    has_text: bool = True
    exit_status: str | None = None


@dataclass(frozen=True, slots=True)
class Task:
    """One benchmark item.

    Attributes:
        task_id: unique in its benchmark.
        statement: the text a harness template is filled with.
        digest: hash of everything about the task that can change a result (statement, recorded run).
        run: the recorded run, for replay.
        meta: repository, difficulty, ... for sampling and tables.
    """

    task_id: str
    statement: str
    digest: str
    run: RecordedRun | None = None
    meta: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))


class Benchmark(Protocol):
    """A list of tasks and their prompts.

    Attributes:
        source: synthetic | recorded | live, stored with every attempt.
    """

    @property
    def source(self) -> str:
        """Where the tasks come from."""
        ...

    def tasks(self) -> Sequence[Task]:
        """The tasks of this cell, in order.

        Raises:
            BenchmarkError: nothing to load, or files that are torn or foreign.
        """
        ...

    def prompt(self, task: Task, harness: Harness) -> HarnessTemplate:
        """The harness's template filled for this task (a recorded run brings its own opening)."""
        ...


class EnvironmentLauncher(Protocol):
    """Opens one environment per session: the recorded outputs, a container, a sandbox."""

    def open(self, *, task: Task, clock: Clock, harness: Harness) -> Environment:
        """An environment that is not entered yet."""
        ...


class Harness(Protocol):
    """A prompt template and the format of actions and observations."""

    @property
    def name(self) -> str:
        """Its name in tables."""
        ...

    def template(self, statement: str) -> HarnessTemplate:
        """Fill the template for one task."""
        ...

    def parse(self, reply: Message) -> Reply:
        """Find the commands of a reply."""
        ...

    def observation(self, output: str, returncode: int | None, tool_call_id: str | None) -> Observation:
        """Frame and truncate a tool's output (10,000 characters: head 5,000, tail 5,000)."""
        ...

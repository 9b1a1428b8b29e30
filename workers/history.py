"""The append-only history of a session and what a renderer makes of it (ReFold section 3.1, Algorithm 1).

Turns and memos are frozen and never change once appended; a renderer reads them and returns `Rendered`.
Turn indices are 1-based; the label shown to the model is index - 1 and is never stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from serving.calls import Message, TokenUsage


class TurnKind(StrEnum):
    """What a turn's action was."""

    command = "command"
    restore = "restore"
    recall = "recall"
    format_error = "format_error"
    guard = "guard"


@dataclass(frozen=True, slots=True)
class Action:
    """One command of a reply. `tool_call_id` pairs it with its tool message in tool-call formats."""

    command: str
    tool_call_id: str | None = None


@dataclass(frozen=True, slots=True)
class Observation:
    """One observation as first shown: `head + body + tail`.

    head and tail are the harness's frame (`<returncode>`, `<output>` tags) that renderers keep; body is the tool's
    output after truncation. `body` excludes the frame's own newlines.
    """

    body: str
    head: str = ""
    tail: str = ""
    returncode: int | None = None
    tool_call_id: str | None = None
    num_output_chars: int | None = None

    @property
    def shown(self) -> str:
        """The text as first shown to the model."""
        return self.head + self.body + self.tail


@dataclass(frozen=True, slots=True)
class Signals:
    """What a renderer read from a reply (ReFold Eq. 3-4).

    Attributes:
        progress: the PROGRESS text, or None when the reply has none.
        stale: labels (0-based) named STALE, as written, in order, unfiltered.
        asked: whether the prompt asked for the two lines; only then can a miss count.
        extra: what other renderers read (status, aim, ...), by name.
    """

    progress: str | None = None
    stale: tuple[int, ...] = ()
    asked: bool = False
    extra: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


NO_SIGNALS = Signals()


@dataclass(frozen=True, slots=True)
class Turn:
    """z_i = a_i + o_i: one main-loop step.

    Attributes:
        index: 1-based.
        assistant: the reply as it enters the history.
        actions: its commands, usually one; empty for a format error.
        observations: one per action, or one (the error text) without actions.
        may_remind: False when replies are pinned (replay), so that no reminder is ever rendered.
        usage: the engine's token counts of the call that wrote the reply.
    """

    index: int
    assistant: Message
    actions: tuple[Action, ...]
    observations: tuple[Observation, ...]
    kind: TurnKind = TurnKind.command
    signals: Signals = NO_SIGNALS
    usage: TokenUsage | None = None
    may_remind: bool = True

    @property
    def label(self) -> int:
        """The step number shown to the model."""
        return self.index - 1

    @property
    def command(self) -> str:
        """All commands, one a line."""
        return "\n".join(action.command for action in self.actions)


@dataclass(frozen=True, slots=True)
class Memo:
    """What a renderer decided that cannot be derived from turns: a summary, a rewrite, an eviction.

    Attributes:
        owner: path of the renderer that wrote it (`compact`, `compact.inner`); others ignore it.
        kind: the owner's word for it.
        after_turn: the newest turn when it was written.
        data: JSON-like values; must be enough to render again.
    """

    owner: str
    kind: str
    after_turn: int
    data: Mapping[str, Any]


class History:
    """Append-only turns and memos after a fixed opening (system and task messages)."""

    __slots__ = ("_memos", "_turns", "opening")

    def __init__(self, opening: Iterable[Message]) -> None:
        self.opening: tuple[Message, ...] = tuple(opening)
        self._turns: list[Turn] = []
        self._memos: list[Memo] = []

    def __len__(self) -> int:
        return len(self._turns)

    @property
    def turns(self) -> tuple[Turn, ...]:
        """All turns, oldest first (a copy: use `turn(i)` or `iter_turns` in inner loops)."""
        return tuple(self._turns)

    def turn(self, index: int) -> Turn:
        """Turn `index`, 1-based."""
        if not 1 <= index <= len(self._turns):
            raise IndexError(f"turn {index} of {len(self._turns)}")
        return self._turns[index - 1]

    def memos(self, owner: str) -> tuple[Memo, ...]:
        """The memos of one owner, oldest first."""
        return tuple(memo for memo in self._memos if memo.owner == owner)

    @property
    def all_memos(self) -> tuple[Memo, ...]:
        """All memos, oldest first."""
        return tuple(self._memos)

    def append(self, turn: Turn) -> None:
        """Append the next turn; its index must follow."""
        if turn.index != len(self._turns) + 1:
            raise ValueError(f"turn {turn.index} cannot follow turn {len(self._turns)}")
        self._turns.append(turn)

    def extend(self, memos: Iterable[Memo]) -> None:
        """Append memos."""
        self._memos.extend(memos)


class Form(StrEnum):
    """How a segment shows its turns."""

    full = "full"
    stub = "stub"
    folded = "folded"
    summary = "summary"
    memory = "memory"
    state = "state"


class Part(StrEnum):
    """Whose text a segment is, for the composition columns."""

    opening = "opening"
    agent = "agent"
    observation = "observation"
    note = "note"


@dataclass(frozen=True, slots=True)
class Segment:
    """A run of messages with one origin.

    `first_turn`/`last_turn` are the turns it stands for (0 for the opening). A turn in full is usually two segments:
    its assistant message (part agent) and its observation messages (part observation).
    """

    messages: tuple[Message, ...]
    first_turn: int
    last_turn: int
    form: Form
    part: Part


@dataclass(frozen=True, slots=True)
class Rendered:
    """What the model sees before a call.

    Attributes:
        segments: in prompt order, the opening first.
        boundary: b_t of the renderer, 0 when it has none.
        num_folded, num_stubs, num_exempt: turns folded, observations rendered as stubs (whole or partly), turns exempt.
        own_s_modelled: the strategy's declared own time that enters virtual time.
    """

    segments: tuple[Segment, ...]
    boundary: int = 0
    num_folded: int = 0
    num_stubs: int = 0
    num_exempt: int = 0
    own_s_modelled: float = 0.0

    @property
    def messages(self) -> tuple[Message, ...]:
        """All messages in prompt order."""
        return tuple(message for segment in self.segments for message in segment.messages)


def opening_segment(history: History) -> Segment:
    """System and task messages."""
    return Segment(history.opening, 0, 0, Form.full, Part.opening)


def agent_segment(turn: Turn) -> Segment:
    """A turn's reply in full."""
    return Segment((turn.assistant,), turn.index, turn.index, Form.full, Part.agent)


def observation_messages(turn: Turn, texts: Iterable[str]) -> tuple[Message, ...]:
    """The observation messages of a turn with `texts` in place of what was shown, one per observation."""
    return tuple(
        Message("user", text)
        if observation.tool_call_id is None
        else Message("tool", text, tool_call_id=observation.tool_call_id)
        for observation, text in zip(turn.observations, texts, strict=True)
    )


def observation_segment(turn: Turn, texts: Iterable[str] | None = None, form: Form = Form.full) -> Segment:
    """A turn's observations, in full or with other texts."""
    shown = [observation.shown for observation in turn.observations] if texts is None else texts
    return Segment(observation_messages(turn, shown), turn.index, turn.index, form, Part.observation)

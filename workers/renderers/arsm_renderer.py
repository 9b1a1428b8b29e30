"""What ARSM and its SM-only variant share: the settings of the state machine and the renderer's seam around it.

Not a renderer itself: `arsm` and `sm_only` say how many turns stay raw and how a record reads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from serving.calls import Message
from serving.interfaces import TokenCounter
from workers.errors import ConfigurationError
from workers.history import Action, Form, History, Memo, Observation, Part, Rendered, Segment, Signals
from workers.interfaces import AuxCaller, HarnessTemplate, SignalRequest
from workers.renderers.arsm_block import state_block
from workers.renderers.arsm_loops import alerts, guarded
from workers.renderers.arsm_machine import Machine, MachineSettings
from workers.renderers.arsm_prompt import machine_layer
from workers.renderers.arsm_records import Record
from workers.renderers.arsm_signals import parse_reply
from workers.renderers.arsm_state import DoneSteps, PitfallSource, PruneTo, Rules
from workers.renderers.arsm_window import check_rho, checked_capacity, window
from workers.renderers.common import Rows, Session
from workers.renderers.composing import chosen
from workers.renderers.heuristic_signals import ReplaySignals
from workers.renderers.prompt_layers import with_text


class StatePosition(StrEnum):
    """Where the state block stands: behind the raw turns, or between the task and them."""

    end = "end"
    after_task = "after_task"


class LoopCounting(StrEnum):
    """When a repeat is counted: at every turn, or on FAILURE alone as the letter of the transition has it."""

    every_turn = "every_turn"
    failure = "failure"


_CHOICES: dict[str, type[StrEnum]] = {
    "state_position": StatePosition,
    "replay_signals": ReplaySignals,
    "done_steps": DoneSteps,
    "pitfall_source": PitfallSource,
    "prune_to": PruneTo,
    "count_loops": LoopCounting,
}


@dataclass(frozen=True)
class StateMachineRenderer(Session):
    """Opening, the newest turns in full, and the state block; the fields are described in `Arsm`.

    Source: ARSM (arXiv 2609.32852) section 3.
    """

    rho: float = 0.5
    pitfall_capacity: tuple[int, int, int] = (3, 8, 64)
    milestone_capacity: tuple[int, int, int] = (3, 8, 64)
    path_capacity: tuple[int, int, int] = (2, 8, 64)
    state_position: StatePosition = StatePosition.end
    clamp_tokens: int = 0
    excerpt_chars: int = 360
    guard: bool = True
    theta_loop: int = 3
    gamma: int = 1
    count_loops: LoopCounting = LoopCounting.every_turn
    forget_loops_on_edit: bool = True
    done_steps: DoneSteps = DoneSteps.mark
    pitfall_source: PitfallSource = PitfallSource.model_else_rule
    prune_to: PruneTo = PruneTo.verified
    eta: int = 1
    fold_closing_turn: bool = True
    ledger: bool = False
    replay_signals: ReplaySignals = ReplaySignals.heuristic

    name: ClassVar[str]
    is_generic: ClassVar[bool]

    def __post_init__(self) -> None:
        check_rho(self.rho, self.name)
        for key in ("pitfall_capacity", "milestone_capacity", "path_capacity"):
            object.__setattr__(self, key, checked_capacity(key, getattr(self, key), self.name))
        for key, least in (("excerpt_chars", 1), ("theta_loop", 2), ("gamma", 0), ("eta", 0), ("clamp_tokens", 0)):
            if getattr(self, key) < least:
                raise ConfigurationError(f"renderer {self.name}: {key}={getattr(self, key)}; give at least {least}")
        for key, choices in _CHOICES.items():
            object.__setattr__(self, key, chosen(self.name, key, getattr(self, key), choices))

    @property
    def signals(self) -> SignalRequest | None:
        """The tags of every reply."""
        return SignalRequest("arsm", 1)

    @property
    def is_reversible(self) -> bool:
        """What leaves the raw window cannot be shown again; the state's text is no recovery."""
        return False

    @property
    def num_raw(self) -> int:
        """Turns shown in full, at least one."""
        raise NotImplementedError

    def line_of(self, record: Record) -> str:
        """A record of the active path as one line."""
        raise NotImplementedError

    def start(self, *, counter: TokenCounter, budget_tokens: int, path: str) -> None:
        """Begin a session; the counter is needed for `clamp_tokens` alone."""
        self._begin(MachineCache(self._machine_settings(), self.line_of, counter))

    def prompt_layer(self, template: HarnessTemplate) -> HarnessTemplate:
        """The tags, in the place of the item that asks for reasoning."""
        text = machine_layer(
            window=self.num_raw, is_generic=self.is_generic, has_guard=self.guard, has_ledger=self.ledger
        )
        return with_text(template, text)

    def read_reply(self, reply: Message) -> Signals:
        """The tags of the reply's content."""
        return parse_reply(reply.content)

    def intercept(self, history: History, action: Action) -> Observation | None:
        """Refuse to go on with a loop after its alert."""
        if not self.guard:
            return None
        cache: MachineCache = self._cache
        return guarded(cache.machine.follow(history).loops, action, self.theta_loop)

    async def observe(self, history: History, seen: Rendered, aux: AuxCaller) -> tuple[Memo, ...]:
        """Read the newest turn; the state follows from the turns, so there is nothing to note."""
        cache: MachineCache = self._cache
        cache.machine.follow(history)
        return ()

    def render(self, history: History, visible_from: int = 1) -> Rendered:
        """The state block and the newest raw turns; without a turn only the opening."""
        cache: MachineCache = self._cache
        num_turns = len(history)
        opening = cache.rows.opening(history)
        if num_turns == 0:
            return Rendered(tuple(opening))
        state = cache.machine.follow(history)
        block = state_block(
            state,
            line_of=cache.line_of,
            loop_alerts=alerts(state.loops, self.theta_loop, has_guard=self.guard),
            has_ledger=self.ledger,
            visible_from=visible_from,
        )
        note = Segment((Message("user", block),), 1, num_turns, Form.state, Part.note)
        first = max(visible_from, num_turns - self.num_raw + 1)
        if self.clamp_tokens:
            first = cache.clamped(history, first, room_tokens=self.clamp_tokens - cache.tokens_of(note))
        raw = cache.rows.between(history, first, num_turns)
        ordered = [note, *raw] if self.state_position is StatePosition.after_task else [*raw, note]
        return Rendered(tuple(opening + ordered), boundary=first - 1)

    def _machine_settings(self) -> MachineSettings:
        rules = Rules(
            num_pitfalls=window(self.rho, self.pitfall_capacity),
            num_milestones=window(self.rho, self.milestone_capacity),
            num_path=window(self.rho, self.path_capacity),
            num_candidates=window(self.rho, self.milestone_capacity),
            done_steps=self.done_steps,
            pitfall_source=self.pitfall_source,
            prune_to=self.prune_to,
            eta=self.eta,
            gamma=self.gamma,
            fold_closing_turn=self.fold_closing_turn,
        )
        return MachineSettings(
            rules=rules,
            replayed=self.replay_signals,
            excerpt_chars=self.excerpt_chars,
            loop_step=1 if self.count_loops is LoopCounting.every_turn else 0,
            forgets_on_edit=self.forget_loops_on_edit,
            has_ledger=self.ledger,
        )


class MachineCache:
    """What one session's renders share; everything in it can be made again from the history."""

    def __init__(self, settings: MachineSettings, line_of: Callable[[Record], str], counter: TokenCounter) -> None:
        self.machine = Machine(settings)
        self.rows = Rows()
        self._counter = counter
        self._line_of = line_of

    def line_of(self, record: Record) -> str:
        """The record's line."""
        return self._line_of(record)

    def tokens_of(self, segment: Segment) -> int:
        """Tokens of a segment's messages."""
        return sum(self._counter.count(message) for message in segment.messages)

    def clamped(self, history: History, first: int, *, room_tokens: int) -> int:
        """The first turn, not before `first`, from which raw turns fit; the newest always stays."""
        turn = len(history)
        while turn >= first:
            room_tokens -= sum(self.tokens_of(segment) for segment in self.rows.between(history, turn, turn))
            if room_tokens < 0:
                break
            turn -= 1
        return min(turn + 1, len(history))

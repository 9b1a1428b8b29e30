"""What ReFold derives from the turns in one forward pass: finished steps S_t, exempt turns, reminders (Eq. 4, C.2).

Every decision is made once, when its turn is read, from the turns before it, so that a fresh renderer and one that
followed the session agree.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from workers.history import Form, History, Memo, Rendered, Turn, TurnKind
from workers.renderers.refold_signals import accepted, reminder

EXEMPT_MEMO = "exempt"

Turns = int | tuple[int, ...]  # most commands and outputs come once, and a number takes less room than a tuple
# Turns that show an earlier output again, by our own `restore` or an outer renderer's `recall`.
_SHOWN_AGAIN = (TurnKind.restore, TurnKind.recall)


@dataclass(frozen=True, slots=True)
class MarkSettings:
    """The settings the forward pass needs, see `Refold`.

    boundary: completed turns t -> b_t. stubs_before: turn j -> the turns that were stubs in the prompt turn j answers,
    or None when only folded turns count.
    """

    k: int
    owner: str
    folds: bool
    is_reversible: bool
    pin_restored: bool
    reminders: bool
    exempt_min_chars: int
    boundary: Callable[[int], int]
    stubs_before: Callable[[int], frozenset[int] | set[int]] | None


@dataclass(slots=True)
class Marks:
    """The state of the pass after `num_turns` turns.

    Attributes:
        stale: S_t, turn indices.
        unfoldable: turns never folded; undedupable: turns never deduplicated.
        reminders: turn index -> the text appended to its observation while it is protected.
        misses: replies in a row without the PROGRESS line.
    """

    settings: MarkSettings
    num_turns: int = 0
    stale: set[int] = field(default_factory=set)
    unfoldable: set[int] = field(default_factory=set)
    undedupable: set[int] = field(default_factory=set)
    reminders: dict[int, str] = field(default_factory=dict)
    misses: int = 0
    _alike: list[int] = field(default_factory=list)  # `earlier_alike` of the newest turn
    _commands: dict[str, Turns] = field(default_factory=dict)
    _bodies: dict[str, Turns] = field(default_factory=dict)

    def is_folded(self, index: int, boundary: int) -> bool:
        """Whether turn `index` is folded in a render with this boundary."""
        return index <= boundary and index in self.stale and index not in self.unfoldable

    def read(self, history: History) -> None:
        """Read the turns that are new since the last call."""
        if self.num_turns == len(history):
            return
        for memo in history.memos(self.settings.owner):
            if memo.kind == EXEMPT_MEMO:
                self._exempt(memo.data["turn"])
        for index in range(self.num_turns + 1, len(history) + 1):
            self._read_turn(history.turn(index))
            self.num_turns = index

    def earlier_alike(self, turn: Turn) -> list[int]:
        """Earlier turns with the same command, or with an equal output of at least `exempt_min_chars` characters."""
        alike: list[int] = []
        if turn.kind is TurnKind.command:
            alike += _turns(self._commands.get(_command(turn), ()))
            for observation in turn.observations:
                if len(observation.body) >= self.settings.exempt_min_chars:
                    alike += _turns(self._bodies.get(observation.body, ()))
        return [index for index in alike if index < turn.index] if alike else alike

    def memos(self, turn: Turn, seen: Rendered) -> tuple[Memo, ...]:
        """An exemption that turns do not tell: `turn` runs again what another renderer's summary covered in `seen`."""
        if not self.settings.is_reversible or turn.index in self.unfoldable:
            return ()
        alike = self._alike if turn.index == self.num_turns else self.earlier_alike(turn)
        if not alike:
            return ()
        summaries = [segment for segment in seen.segments if segment.form is Form.summary]
        if not any(part.first_turn <= index <= part.last_turn for part in summaries for index in alike):
            return ()
        return (Memo(self.settings.owner, EXEMPT_MEMO, turn.index, {"turn": turn.index}),)

    def _exempt(self, index: int) -> None:
        self.unfoldable.add(index)
        self.undedupable.add(index)

    def _read_turn(self, turn: Turn) -> None:
        settings = self.settings
        if settings.is_reversible:
            self._read_exemption(turn)
        if settings.folds and turn.signals.stale:
            self.stale.update(accepted(turn, settings.k))
        if turn.signals.progress is not None:
            self.misses = 0
        elif turn.signals.asked and turn.may_remind and settings.reminders:
            self.misses += 1
            self.reminders[turn.index] = reminder(self.misses)
        self._remember(turn)

    def _read_exemption(self, turn: Turn) -> None:
        self._alike = []
        if turn.kind in _SHOWN_AGAIN:
            self.undedupable.add(turn.index)
            if self.settings.pin_restored:
                self.unfoldable.add(turn.index)
            return
        alike = self._alike = self.earlier_alike(turn)
        if not alike:
            return
        boundary = self.settings.boundary(turn.index - 1)
        if any(self.is_folded(index, boundary) for index in alike):
            self._exempt(turn.index)
        elif self.settings.stubs_before is not None:
            stubs = self.settings.stubs_before(turn.index)
            if any(index in stubs for index in alike):
                self._exempt(turn.index)

    def _remember(self, turn: Turn) -> None:
        if turn.kind is TurnKind.command:
            _add(self._commands, _command(turn), turn.index)
        if turn.kind is TurnKind.command or turn.kind in _SHOWN_AGAIN:
            for observation in turn.observations:
                if len(observation.body) >= self.settings.exempt_min_chars:
                    _add(self._bodies, observation.body, turn.index)


def _command(turn: Turn) -> str:
    actions = turn.actions
    return (actions[0].command if len(actions) == 1 else turn.command).strip()


def _turns(known: Turns) -> tuple[int, ...]:
    return known if isinstance(known, tuple) else (known,)


def _add(known: dict[str, Turns], text: str, index: int) -> None:
    before = known.setdefault(text, index)
    if before is not index:
        known[text] = (*_turns(before), index)

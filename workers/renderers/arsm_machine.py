"""ARSM's controller: a forward pass over a history that keeps S_t (Figure 1's inner loop).

Turn n is judged by the reply of turn n + 1, so after turn n the state holds turns 1..n-1 and the counters of turn n.
Everything here can be made again from the history; the renderer keeps one machine per session as its cache.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from workers.history import History, Turn
from workers.renderers.arsm_loops import counted
from workers.renderers.arsm_records import Record, SignalReader, closed, draft
from workers.renderers.arsm_signals import Status
from workers.renderers.arsm_state import Rules, State, transition, with_candidates
from workers.renderers.heuristic_signals import ReplaySignals


@dataclass(frozen=True, slots=True)
class MachineSettings:
    """The machine's part of a renderer's settings.

    Attributes:
        loop_step: what a repeat adds to its counter at once; 0 leaves counting to failures (mu).
    """

    rules: Rules
    replayed: ReplaySignals
    excerpt_chars: int
    loop_step: int
    forgets_on_edit: bool
    has_ledger: bool


class Machine:
    """Follows one history.

    Attributes:
        state: S_t of the history last followed.
        routes: the status of turns 1..t-1, in order.
    """

    def __init__(self, settings: MachineSettings) -> None:
        self._settings = settings
        self._begin(None)

    def _begin(self, history: History | None) -> None:
        self._history = history
        self._reader = SignalReader(self._settings.replayed)
        self._open: Record | None = None
        self.state = State()
        self.routes: list[Status] = []

    def follow(self, history: History) -> State:
        """S_t after the newest turn of `history`."""
        if history is not self._history:
            self._begin(history)
        first = self._open.turn + 1 if self._open else 1
        for index in range(first, len(history) + 1):
            self._read(history.turn(index))
        return self.state

    def _read(self, turn: Turn) -> None:
        settings, said, state = self._settings, self._reader.read(turn), self.state
        if said.checklist and not state.checklist and not state.num_done:
            state = replace(state, checklist=said.checklist)
        if self._open is not None:
            tau = closed(self._open, said, excerpt_chars=settings.excerpt_chars)
            state = transition(state, tau, said.pitfall, settings.rules)
            self.routes.append(tau.status)
        if settings.has_ledger:
            state = with_candidates(state, said.candidates, settings.rules.num_candidates)
        loops, repeats = counted(state.loops, turn, step=settings.loop_step, forgets_on_edit=settings.forgets_on_edit)
        self.state = replace(state, loops=loops)
        self._open = draft(turn, said, excerpt_chars=settings.excerpt_chars, repeats=repeats)

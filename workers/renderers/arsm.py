"""ARSM: a state machine kept from the agent's own replies in place of old turns, training-free (arXiv 2609.32852).

Every reply carries a reflection on the last command, a routing status and the aim of the next one. Closed turns become
Hypothesis-Action-Result records; four kinds of transition move them between the active path, milestones and pitfalls.
The model sees the task, the last W(rho) turns in full and the state block. Tags: `arsm_signals`; records:
`arsm_records`; operators: `arsm_state`; loops and guard: `arsm_loops`; forward pass: `arsm_machine`; layout:
`arsm_block`; prompt text: `arsm_prompt`; the seam: `arsm_renderer`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from workers.renderers.arsm_records import Record, har_line
from workers.renderers.arsm_renderer import StateMachineRenderer
from workers.renderers.arsm_window import checked_capacity, window


@dataclass(frozen=True)
class Arsm(StateMachineRenderer):
    """Show W(rho) raw turns and the compressed internal state.

    Attributes:
        rho: compression control, 0 keeps most and 1 least; sets all four capacities through W.
        raw_capacity: raw turns at rho = 1, 0.5 and 0.
        pitfall_capacity, milestone_capacity, path_capacity: entries at rho = 1, 0.5 and 0; the ledger holds as many
            candidates as there are milestones.
        state_position: `end` keeps the prefix cache up to the raw window, `after_task` rewrites all behind the task.
        clamp_tokens: limit for raw turns and state together; the oldest raw turns give way. 0 is no limit.
        excerpt_chars: characters of an output, an action or a reply's text in a record.
        guard: refuse an action that goes on with a loop after its alert.
        theta_loop: repeats without new evidence that raise an alert.
        gamma: what a failed repeat adds to its counter.
        count_loops: `every_turn` counts each repeat as it happens; `failure` is the letter of mu.
        forget_loops_on_edit: an edit or write forgets the reads, searches and runs before it; off is the letter.
        done_steps: `mark` finished checklist steps as D.2 shows; `remove` is delta's equation.
        pitfall_source: `both` is the letter of ell: the rule's lesson besides the agent's.
        prune_to: `verified` goes back to the last verified node; `eta` is pi's equation.
        eta: nodes that pi removes by the equation, or when no node is verified.
        fold_closing_turn: the milestone's own turn is folded with the path; off is the letter of phi(a).
        ledger: keep a candidate ledger (named in C.4, not part of S_t).
        replay_signals: none | recorded | heuristic: where replayed replies, which were never asked, get their tags.
    Invariants: the state is a function of the turns; the newest turn is always shown in full.
    Source: ARSM (arXiv 2609.32852) sections 3.1-3.3, appendices A, C.1, D; choices as in methods 1B.
    """

    raw_capacity: tuple[int, int, int] = (1, 5, 50)

    REVISION: ClassVar[int] = 2
    name: ClassVar[str] = "arsm"
    is_generic: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "raw_capacity", checked_capacity("raw_capacity", self.raw_capacity, self.name))

    @property
    def num_raw(self) -> int:
        """W(rho) turns."""
        return window(self.rho, self.raw_capacity)

    def line_of(self, record: Record) -> str:
        """Hypothesis, action, start of the output, reflection."""
        return har_line(record)

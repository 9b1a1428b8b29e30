"""ARSM's dynamic state machine: S_t = [c, p, w, m, a], its operators and the transition matrix (section 3.2, appendix).

                 Ongoing   Milestone    Failure      Success
    checklist c  keep      delta        keep         keep
    pitfalls p   keep      keep         + ell(tau)   keep
    warnings w   chi       empty        mu           chi
    milestones m keep      + phi(a)     keep         keep
    path a       + tau     empty        pi           + tau

The matrix's body is lost in the paper's text and follows from its four bullets; chi is a read (see `arsm_loops`).
Everything here is pure. [choice] in names below refers to methods 1B.2 and 1B.3; each has a setting for the letter.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import TypeVar

from workers.renderers.arsm_loops import Loop, Loops, mu
from workers.renderers.arsm_records import Record, cut
from workers.renderers.arsm_signals import Status

T = TypeVar("T")

PITFALL_CHARS = 200
MILESTONE_CHARS = 300
_NO_LOOPS: Mapping[str, Loop] = MappingProxyType({})
_WORDS = re.compile(r"\w+")


class DoneSteps(StrEnum):
    """What delta does with a finished checklist step: D.2 shows it marked, the operator's equation removes it."""

    mark = "mark"
    remove = "remove"


class PitfallSource(StrEnum):
    """The agent's pitfall, else the rule's; or both, the rule's besides the agent's (the paper's letter)."""

    model_else_rule = "model_else_rule"
    both = "both"


class PruneTo(StrEnum):
    """How far pi goes back: to the last verified node (the bullet), or always eta nodes (the equation)."""

    verified = "verified"
    eta = "eta"


@dataclass(frozen=True, slots=True)
class Pitfall:
    """One lesson; `source` is model or rule."""

    text: str
    source: str


@dataclass(frozen=True, slots=True)
class State:
    """S_t, and the candidate ledger (C.4) where it is on.

    Attributes:
        checklist: the items in order, the first `num_done` of them finished.
        loops: signature -> counter.
        path: the active path's records, oldest first.
        candidates: name -> note, the newest last.
    """

    checklist: tuple[str, ...] = ()
    num_done: int = 0
    pitfalls: tuple[Pitfall, ...] = ()
    loops: Loops = field(default_factory=lambda: _NO_LOOPS)
    milestones: tuple[str, ...] = ()
    path: tuple[Record, ...] = ()
    candidates: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class Rules:
    """How the operators act: capacities W(rho) in entries, and the settings of `Arsm` by the same names."""

    num_pitfalls: int
    num_milestones: int
    num_path: int
    num_candidates: int
    done_steps: DoneSteps
    pitfall_source: PitfallSource
    prune_to: PruneTo
    eta: int
    gamma: int
    fold_closing_turn: bool


def transition(state: State, tau: Record, pitfall: str, rules: Rules) -> State:
    """S_t after turn `tau` was judged; `pitfall` is what the agent names, maybe empty. `tau.status` routes."""
    if tau.status is Status.milestone:
        folded = (*state.path, tau) if rules.fold_closing_turn else state.path
        milestone = phi(folded, _current_step(state))
        kept = newest((*state.milestones, milestone), rules.num_milestones) if milestone else state.milestones
        return replace(delta(state, rules.done_steps), loops=_NO_LOOPS, milestones=kept, path=())
    if tau.status is Status.failure:
        lessons = extend_pitfalls(state.pitfalls, ell(tau, pitfall, rules.pitfall_source), rules.num_pitfalls)
        loops = mu(state.loops, tau.repeats, rules.gamma)
        return replace(state, pitfalls=lessons, loops=loops, path=pi(state.path, rules.prune_to, rules.eta))
    return replace(state, path=newest((*state.path, tau), rules.num_path))


def delta(state: State, done_steps: DoneSteps) -> State:
    """Advancement: the head of the checklist is done."""
    if done_steps is DoneSteps.remove:
        return replace(state, checklist=state.checklist[1:])
    return replace(state, num_done=min(state.num_done + 1, len(state.checklist)))


def phi(path: tuple[Record, ...], step: str) -> str:
    """Folding: an active path as one line of knowledge, at most 300 characters; empty for an empty path.

    [choice] F_comp is not defined and there is no auxiliary model: the step's name, the newest conclusion, then the
    distinct first pieces of evidence, the newest first, as long as they fit.
    """
    if not path:
        return ""
    name = path[-1].step or step or path[-1].hypothesis
    conclusion = next((record.conclusion for record in reversed(path) if record.conclusion), "")
    text = cut(": ".join(part for part in (name, conclusion) if part), MILESTONE_CHARS)
    evidence = dict.fromkeys(record.excerpt[:80].strip() for record in reversed(path) if record.excerpt)
    joint = " | Evidence: "
    for piece in evidence:
        if len(text) + len(joint) + len(piece) <= MILESTONE_CHARS:
            text += joint + piece
            joint = "; "
    return text


def ell(tau: Record, pitfall: str, source: PitfallSource) -> tuple[Pitfall, ...]:
    """Extraction: the lessons of a failed turn, at most 200 characters each."""
    named = (Pitfall(cut(pitfall, PITFALL_CHARS), "model"),) if pitfall else ()
    if named and source is PitfallSource.model_else_rule:
        return named
    what = f"`{cut(tau.action, 90)}`" if tau.action else "a reply without an action"
    rule = cut(f"Avoid {what}: {tau.error or tau.result or 'it brought nothing new'}", PITFALL_CHARS)
    return (*named, Pitfall(rule, "rule"))


def extend_pitfalls(pitfalls: tuple[Pitfall, ...], new: tuple[Pitfall, ...], limit: int) -> tuple[Pitfall, ...]:
    """Add lessons; one that says the same as an older one takes its place at the end, the newest are kept."""
    for lesson in new:
        same = _normalized(lesson.text)
        pitfalls = (*(old for old in pitfalls if _normalized(old.text) != same), lesson)
    return newest(pitfalls, limit)


def pi(path: tuple[Record, ...], prune_to: PruneTo, eta: int) -> tuple[Record, ...]:
    """Pruning: the failed turn never enters the path, and the path goes back to its last verified node.

    [choice] eta is not given: without a verified node, or by the equation's letter, it is the setting.
    """
    if prune_to is PruneTo.verified:
        for length in range(len(path), 0, -1):
            if path[length - 1].is_verified:
                return path[:length]
    return path[: max(0, len(path) - eta)]


def with_candidates(state: State, lines: tuple[str, ...], limit: int) -> State:
    """The ledger after a reply's lines `name: note`; a name comes back with its newest note."""
    if not lines:
        return state
    ledger = dict(state.candidates)
    for line in lines:
        name, _, note = line.partition(":")
        ledger.pop(name.strip(), None)
        ledger[name.strip()] = cut(note, PITFALL_CHARS)
    return replace(state, candidates=dict(newest(tuple(ledger.items()), limit)))


def newest(entries: tuple[T, ...], limit: int) -> tuple[T, ...]:
    """The last `limit` entries."""
    return entries[-limit:] if len(entries) > limit else entries


def _current_step(state: State) -> str:
    """The head of what is left of the checklist."""
    return state.checklist[state.num_done] if state.num_done < len(state.checklist) else ""


def _normalized(text: str) -> str:
    return " ".join(_WORDS.findall(text.lower()))

"""ARSM's operators and the transition matrix, each by hand (section 3.2, appendix)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from workers.renderers.arsm_loops import Loop
from workers.renderers.arsm_records import Record
from workers.renderers.arsm_signals import Status
from workers.renderers.arsm_state import (
    DoneSteps,
    Pitfall,
    PitfallSource,
    PruneTo,
    Rules,
    State,
    delta,
    ell,
    extend_pitfalls,
    phi,
    pi,
    transition,
    with_candidates,
)

RULES = Rules(
    num_pitfalls=3,
    num_milestones=3,
    num_path=2,
    num_candidates=2,
    done_steps=DoneSteps.mark,
    pitfall_source=PitfallSource.model_else_rule,
    prune_to=PruneTo.verified,
    eta=1,
    gamma=1,
    fold_closing_turn=True,
)


def record(turn: int, *, is_clean: bool = True, status: Status = Status.ongoing, **given: object) -> Record:
    """A closed record; its texts name the turn."""
    texts = {"hypothesis": f"h{turn}", "action": f"a{turn}", "excerpt": f"o{turn}", "result": f"r{turn}"}
    return Record(turn, **{**texts, **given}, is_clean=is_clean, status=status)  # type: ignore[arg-type]


LOOPS = {"read x": Loop(2, frozenset({"out"}), "cat x")}
START = State(
    checklist=("look", "fix", "test"),
    pitfalls=(Pitfall("old lesson", "model"),),
    loops=LOOPS,
    milestones=("old milestone",),
    path=(record(1), record(2)),
)


def test_ongoing_extends_the_path_and_keeps_the_rest() -> None:
    """Checklist, pitfalls, warnings and milestones stay; the path grows and its oldest record leaves at W = 2."""
    tau = record(3)
    assert transition(START, tau, "", RULES) == replace(START, path=(record(2), tau))


def test_success_extends_the_path_and_keeps_the_rest() -> None:
    """The same as Ongoing: the checklist does not advance."""
    tau = record(3, status=Status.success)
    assert transition(START, tau, "a lesson", RULES) == replace(START, path=(record(2), tau))


def test_milestone_folds_advances_and_clears() -> None:
    """m + phi(a), a emptied, delta on the checklist, warnings cleared, pitfalls kept."""
    tau = record(3, status=Status.milestone, conclusion="c3")
    after = transition(START, tau, "", RULES)
    assert after == replace(
        START, num_done=1, loops={}, path=(), milestones=("old milestone", "look: c3 | Evidence: o3; o2; o1")
    )


def test_milestone_by_the_letter_folds_the_path_before_it() -> None:
    """phi(a) without the closing turn; an empty path leaves no milestone."""
    letter = replace(RULES, fold_closing_turn=False)
    tau = record(3, status=Status.milestone, conclusion="c3")
    assert transition(START, tau, "", letter).milestones[-1] == "look | Evidence: o2; o1"
    assert transition(replace(START, path=()), tau, "", letter).milestones == ("old milestone",)


def test_failure_learns_counts_and_prunes() -> None:
    """p + ell(tau), mu on the warnings, pi on the path; the failed turn never enters it."""
    path = (record(1), record(2, is_clean=False))
    tau = record(3, is_clean=False, status=Status.failure, error="KeyError: 'x'", repeats=("read x",))
    after = transition(replace(START, path=path), tau, "", RULES)
    assert after.pitfalls == (*START.pitfalls, Pitfall("Avoid `a3`: KeyError: 'x'", "rule"))
    assert after.loops["read x"].count == 3
    assert after.path == (record(1),)
    assert (after.checklist, after.num_done, after.milestones) == (START.checklist, 0, START.milestones)


def test_delta_marks_or_removes_the_head() -> None:
    """D.2 shows finished steps as `[x]`; the equation delta(c) = c without c(0) removes them; past the end it stays."""
    marked = delta(START, DoneSteps.mark)
    assert (marked.checklist, marked.num_done) == (("look", "fix", "test"), 1)
    removed = delta(START, DoneSteps.remove)
    assert (removed.checklist, removed.num_done) == (("fix", "test"), 0)
    for _ in range(5):
        marked, removed = delta(marked, DoneSteps.mark), delta(removed, DoneSteps.remove)
    assert (marked.num_done, removed.checklist) == (3, ())


def test_phi_is_one_line_of_at_most_300_characters() -> None:
    """Step name and newest conclusion first, distinct evidence as far as it fits, newest first."""
    path = (record(1, excerpt="same"), record(2, excerpt="same", conclusion="found it"), record(3, excerpt=""))
    assert phi(path, "look") == "look: found it | Evidence: same"
    assert phi((record(1, step="own step", conclusion="c"),), "look") == "own step: c | Evidence: o1"
    long = tuple(record(turn, excerpt=f"{turn} " + "e" * 90, conclusion="c" * 500) for turn in range(1, 9))
    assert len(phi(long, "look")) <= 300
    assert phi((), "look") == ""


def test_ell_takes_the_agent_s_pitfall_else_the_rule() -> None:
    """[PITFALL] when it says something, else `Avoid <action>: <error>`; by the letter both; at most 200 characters."""
    tau = record(3, error="E" * 400)
    both = ell(tau, "read the log first", PitfallSource.both)
    assert [pitfall.source for pitfall in both] == ["model", "rule"]
    assert ell(tau, "read the log first", PitfallSource.model_else_rule) == (Pitfall("read the log first", "model"),)
    assert both[1].text.startswith("Avoid `a3`: EEE")
    assert len(both[1].text) == 200
    assert ell(record(3), "", PitfallSource.both) == (Pitfall("Avoid `a3`: r3", "rule"),)


def test_a_lesson_learnt_again_is_kept_once_and_the_newest_stay() -> None:
    """Case and punctuation do not make another lesson; it moves to the end; W = 3 entries stay."""
    first = tuple(Pitfall(text, "model") for text in ("One.", "two", "three"))
    again = extend_pitfalls(first, (Pitfall("ONE", "rule"),), 3)
    assert [pitfall.text for pitfall in again] == ["two", "three", "ONE"]
    assert [pitfall.text for pitfall in extend_pitfalls(again, (Pitfall("four", "rule"),), 3)] == [
        "three",
        "ONE",
        "four",
    ]


@pytest.mark.parametrize(
    ("clean", "left"),
    [([True, True], 2), ([True, False], 1), ([True, False, False], 1), ([False, False], 1), ([], 0)],
)
def test_pi_goes_back_to_the_last_verified_node(clean: list[bool], left: int) -> None:
    """Verified: return code 0 with new evidence, or SUCCESS; without one, eta = 1 record goes."""
    path = tuple(record(turn, is_clean=value) for turn, value in enumerate(clean, start=1))
    assert pi(path, PruneTo.verified, 1) == path[:left]


def test_pi_by_the_equation() -> None:
    """(tau_1 .. tau_(k - eta)), whatever is verified."""
    path = tuple(record(turn) for turn in range(1, 5))
    assert [len(pi(path, PruneTo.eta, eta)) for eta in (0, 1, 3, 9)] == [4, 3, 1, 0]


def test_a_confirmed_record_is_verified() -> None:
    """SUCCESS verifies a turn whatever its return code."""
    path = (record(1, is_clean=False, status=Status.success), record(2, is_clean=False))
    assert pi(path, PruneTo.verified, 1) == path[:1]


def test_the_ledger_keeps_the_newest_note_of_each_candidate() -> None:
    """A name comes back at the end with its new note; two entries stay."""
    state = with_candidates(State(), ("a: cheap", "b: dear"), 2)
    state = with_candidates(state, ("a: sold out", "c"), 2)
    assert dict(state.candidates) == {"a": "sold out", "c": ""}

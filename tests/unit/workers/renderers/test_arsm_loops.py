"""Loop warnings mu and chi, and the execution guard."""

from __future__ import annotations

import pytest

from tests.unit.workers.renderers.histories import command_turn
from workers.history import Action
from workers.renderers.arsm_loops import Loop, Loops, alerts, chi, counted, guarded, mu, signature


def after(*steps: tuple[str, str], step: int = 1, forgets: bool = True) -> Loops:
    """The counters after commands with these outputs."""
    loops: Loops = {}
    for label, (command, body) in enumerate(steps):
        loops, _ = counted(loops, command_turn(label, command, body), step=step, forgets_on_edit=forgets)
    return loops


def counts(loops: Loops) -> dict[str, int]:
    """signature -> omega."""
    return {name: loop.count for name, loop in loops.items()}


@pytest.mark.parametrize(
    ("first", "second", "is_same"),
    [
        ("cat a.py", "sed -n '1,9p' a.py", True),
        ("cat a.py b.py", "cat b.py a.py", True),
        ("cat a.py", "cat b.py", False),
        ("grep -n needle src", "grep -rn  needle   src", True),
        ("grep -n needle src", "grep -n other src", False),
        ("python x.py", "python  x.py", True),
        ("python x.py", "python y.py", False),
        ("click[B07X]", "click[B07X]", True),
    ],
)
def test_signatures(first: str, second: str, is_same: bool) -> None:
    """Same class and same normalized targets: line ranges, flags and blanks do not make another action."""
    assert (signature(first) == signature(second)) is is_same


def test_submitting_has_no_signature() -> None:
    """A submission is never a loop, so the guard never blocks it."""
    assert signature("echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT && cat patch.txt") is None


def test_repeats_count_only_without_new_evidence() -> None:
    """First try 1, the same output again 2 and 3, another output adds nothing."""
    steps = [("cat a.py", "x"), ("cat a.py", "x"), ("cat a.py", "y"), ("head a.py", "x")]
    assert [counts(after(*steps[:number])) for number in (1, 2, 3, 4)] == [
        {"read a.py": 1},
        {"read a.py": 2},
        {"read a.py": 2},
        {"read a.py": 3},
    ]


def test_an_edit_forgets_what_it_may_have_changed() -> None:
    """Reads and runs before an edit count anew, the edit's own repeats stay; by the letter nothing is forgotten."""
    steps = (("cat a.py", "x"), ("cat a.py", "x"), ("sed -i s/a/b/ a.py", ""), ("sed -i s/a/b/ a.py", ""))
    assert counts(after(*steps)) == {"edit sed -i s/a/b/ a.py": 2}
    assert counts(after(*steps, forgets=False)) == {"read a.py": 2, "edit sed -i s/a/b/ a.py": 2}


def test_counting_by_the_letter_waits_for_mu() -> None:
    """With step 0 a repeat is only named; mu adds gamma for it, and nothing for a signature that is unknown."""
    loops, repeats = counted(
        after(("cat a.py", "x"), step=0), command_turn(1, "cat a.py", "x"), step=0, forgets_on_edit=True
    )
    assert counts(loops) == {"read a.py": 1}
    assert repeats == ("read a.py",)
    assert counts(mu(loops, (*repeats, "read b.py"), 2)) == {"read a.py": 3}


def test_chi_warns_from_theta_on() -> None:
    """SAFE below theta_loop = 3, WARN at 3."""
    loops = {"read a": Loop(2, frozenset(), "cat a"), "read b": Loop(3, frozenset(), "cat b")}
    assert [loop.command for loop in chi(loops, 3)] == ["cat b"]
    assert chi({"read a": loops["read a"]}, 3) == ()


def test_alerts_name_the_action_and_the_guard() -> None:
    """One line per warning, and one for the guard when it is on and something is warned about."""
    loops = after(*[("cat a.py", "x")] * 3)
    lines = alerts(loops, 3, has_guard=True)
    assert len(lines) == 2
    assert "`cat a.py`" in lines[0]
    assert "3 times" in lines[0]
    assert lines[1].startswith("Execution guard active")
    assert len(alerts(loops, 3, has_guard=False)) == 1
    assert alerts(after(("cat a.py", "x")), 3, has_guard=True) == ()


def test_the_guard_blocks_the_try_after_the_warning() -> None:
    """Two tries pass, the third raises the warning, the fourth is answered by the guard; others pass."""
    for number, is_blocked in ((1, False), (2, False), (3, True)):
        loops = after(*[("cat a.py", "x")] * number)
        answer = guarded(loops, Action("sed -n '5,9p' a.py", "call-7"), 3)
        assert (answer is not None) is is_blocked
    assert answer is not None
    assert answer.body.startswith("[execution guard] Not run: `cat a.py`")
    assert (answer.tool_call_id, answer.returncode) == ("call-7", None)
    assert guarded(loops, Action("cat b.py"), 3) is None


def test_a_blocked_try_is_no_evidence() -> None:
    """The guard's own text neither counts nor resets."""
    loops = after(*[("cat a.py", "x")] * 3)
    answer = guarded(loops, Action("cat a.py"), 3)
    assert answer is not None
    turn = command_turn(3, "cat a.py")
    blocked = type(turn)(4, turn.assistant, turn.actions, (answer,))
    assert counted(loops, blocked, step=1, forgets_on_edit=True) == (loops, ())


def test_only_the_newest_signatures_are_remembered() -> None:
    """At most 64, the longest untouched leave first, so that a step's cost does not grow."""
    loops = after(*[(f"cat {number}.py", "x") for number in range(70)])
    assert len(loops) == 64
    assert "read 5.py" not in loops
    assert "read 69.py" in loops

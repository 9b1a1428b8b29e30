"""Stand-ins for the tags of recorded runs, by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from serving.calls import Message
from tests.unit.workers.renderers.histories import command_turn
from workers.history import Turn
from workers.renderers.arsm_signals import Status
from workers.renderers.heuristic_signals import CHECKLIST, HeuristicSignals, thought

TRACE = "Traceback (most recent call last):\n  File ...\nKeyError: 'x'"


def statuses(*steps: tuple[str, str, int]) -> list[Status]:
    """The status of each step (command, output, return code), told by the reply after it."""
    signals = HeuristicSignals()
    turns = [
        command_turn(label, command, body, returncode=code)
        for label, (command, body, code) in enumerate([*steps, ("true", "", 0)])
    ]
    return [signals.read(turn).status for turn in turns][1:]


@pytest.mark.parametrize(
    ("command", "body", "code", "status"),
    [
        ("ls", "a.py", 0, Status.ongoing),
        ("grep needle a.py", "", 1, Status.failure),
        ("python x.py", TRACE, 0, Status.failure),
        ("python x.py", "done", 0, Status.success),
        ("python -m pytest -q | tail -3", "2 failed, 3 passed", 0, Status.ongoing),
        ("echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT && cat patch.txt", "", 0, Status.success),
        ("python -m pytest -q", "5 passed", 0, Status.success),
    ],
)
def test_status_of_one_step(command: str, body: str, code: int, status: Status) -> None:
    """FAILURE on a return code or traceback, SUCCESS on a passing run or a submission, else ONGOING."""
    assert statuses((command, body, code)) == [status]


def test_the_first_passing_test_after_an_edit_is_a_milestone() -> None:
    """The next one is a success, until something is edited again; a failing test in between does not use it up."""
    edit, passing, failing = ("sed -i s/a/b/ a.py", "", 0), ("pytest -q", "5 passed", 0), ("pytest -q", "1 failed", 1)
    assert statuses(passing, edit, failing, passing, passing, edit, passing) == [
        Status.success,
        Status.ongoing,
        Status.failure,
        Status.milestone,
        Status.success,
        Status.ongoing,
        Status.milestone,
    ]


def test_aim_and_reflection_are_first_sentences() -> None:
    """A reply's first sentence is its own aim and the reflection on the turn before; the first reply brings a plan."""
    signals = HeuristicSignals()
    first, second = (
        replace(command_turn(label), assistant=Message("assistant", text))
        for label, text in enumerate(
            ["THOUGHT: Look around. Then fix.\n```bash\nls\n```", "Found a.py 1.5 times! Good"]
        )
    )
    plan = signals.read(first)
    assert (plan.aim, plan.reflection, plan.checklist) == ("Look around.", "", CHECKLIST)
    said = signals.read(second)
    assert (said.aim, said.reflection, said.checklist) == ("Found a.py 1.5 times!",) * 2 + ((),)


def test_a_thought_may_stand_in_the_reasoning_field() -> None:
    """Tool-call replies without prose have it there."""
    turn: Turn = replace(command_turn(0), assistant=Message("assistant", "", reasoning="Check it. Now."))
    assert thought(turn) == "Check it."

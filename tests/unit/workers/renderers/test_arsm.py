"""The arsm renderer: D.2's layout, what is shown where, live replies, prompt layer, settings by the letter."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.calls import Message
from tests.unit.workers.renderers.histories import (
    OPENING,
    command_turn,
    history_of,
    random_turns,
    run_through,
    started,
)
from workers.history import Action, Form, Rendered, Turn, TurnKind
from workers.interfaces import HarnessTemplate
from workers.renderers.arsm import Arsm
from workers.renderers.arsm_block import state_block
from workers.renderers.arsm_loops import Loop, alerts
from workers.renderers.arsm_records import Record, cut, har_line
from workers.renderers.arsm_state import Pitfall, State


def reply(
    label: int,
    command: str = "true",
    body: str = "out",
    *,
    status: str = "ONGOING",
    about: str = "",
    aim: str = "",
    pitfall: str = "N/A",
    extra: str = "",
    returncode: int = 0,
) -> Turn:
    """A live turn whose reply carries the tags; `about` is its conclusion on the turn before."""
    text = (
        f"<conclusion>\n[REFLECTION] Result: {about} Conclusion: N/A\n[STATUS] {status}\n[PITFALL] {pitfall}\n"
        f'</conclusion>\n<reasoning type="CONTINUE">\n[AIM] {aim}\n{extra}</reasoning>\n```bash\n{command}\n```'
    )
    turn = command_turn(label, command, body, returncode=returncode)
    return replace(turn, assistant=Message("assistant", text), signals=Arsm().read_reply(Message("assistant", text)))


def block_of(rendered: Rendered) -> str:
    """The text of the state block."""
    found = [segment for segment in rendered.segments if segment.form is Form.state]
    assert len(found) == 1
    return found[0].messages[0].content


def section(block: str, heading: str) -> list[str]:
    """The lines under one heading."""
    lines = block.split("\n")
    start = lines.index(heading) + 1
    ends = [place for place in range(start, len(lines)) if lines[place].startswith("# ")]
    return lines[start : ends[0] if ends else len(lines)]


PLAN = "[CHECKLIST]\n1. Explore\n2. Fix\n3. Verify\n"


def test_the_block_has_the_layout_of_d2() -> None:
    """Heading, five sections in D.2's order, its checklist boxes, bullets, milestone line and path lines."""
    state = State(
        checklist=("Exploring the codebase", "Understand current logic"),
        num_done=1,
        pitfalls=(Pitfall("Use the test runner.", "model"),),
        loops={"read a.py": Loop(3, frozenset(), "cat a.py")},
        path=(Record(1, "Find the files", "find . -name x", "a.py b.py", "Found them. Need the test file."),),
    )
    block = state_block(state, line_of=har_line, loop_alerts=alerts(state.loops, 3, has_guard=False), has_ledger=False)
    assert block == (
        "[Internal State Update]\n"
        "# Global Checklist\n"
        "[x] 1. Exploring the codebase\n"
        "[ ] 2. Understand current logic\n"
        "# Pitfall\n"
        "- Use the test runner.\n"
        "# Milestones\n"
        "- No verified milestones yet.\n"
        "# Loop Alerts\n"
        "- Loop warning: `cat a.py` or the same action on the same target was tried 3 times without new evidence. "
        "Turn to another target, change something first, or report FAILURE and take another way.\n"
        "# Active Reasoning Path\n"
        "- Turn 1: [Hypothesis] Find the files [Action] find . -name x [Reflection] a.py b.py. Found them. "
        "Need the test file."
    )


def test_an_excerpt_is_one_line_of_at_most_360_characters() -> None:
    """Blanks and line ends become single blanks, as in D.2; text that fits is not marked."""
    assert cut("a\n  b\tc", 360) == "a b c"
    assert cut("x" * 360, 360) == "x" * 360
    assert cut("x" * 361, 360) == "x" * 359 + "\u2026"
    assert cut("x" * 5000, 360) == "x" * 359 + "\u2026"
    assert cut("word " * 1000, 8) == "word wo\u2026"
    assert cut("word " * 1000, 6) == "word\u2026"
    assert cut(" " * 5000 + "late", 360) == "\u2026"


FOUND = """\
/testbed/django/db/models/query.py
/testbed/django/db/models/query_utils.py
/testbed/django/db/models/sql/query.py
/testbed/django/db/models/__init__.py
/testbed/tests/filtered_relation/tests.py
/testbed/tests/select_related_onetoone/tests.py
/testbed/tests/queryset_pickle/tests.py
/testbed/tests/known_related_objects/tests.py
bash: -c: line 2: syntax error near unexpected token `newline'
bash: -c: line 2: `</mscontent>'"""
TESTS = """\
from django.db.models import FilteredRelation
from django.test import TestCase

from .models import Organiser, Pool, PoolStyle, Tournament


class ExistingRelatedInstancesTests(TestCase):
    @classmethod
    def setUpTestData(cls):
        cls.t1 = Tournament.objects.create(name="Tourney 1")
        cls.t2 = Tournament.objects.create(name="Tourney 2")
        cls.o1 = Organiser.objects.create(name="Organiser 1")
        cls.p1 = Pool.objects.create("""


def test_the_path_lines_of_d2() -> None:
    """Turns 1 and 2 of django-16408 as D.2 prints them, to the character: the outputs are rebuilt with line ends.

    D.2's first action also shows a stray `</mscontent>`, which the shell complains of; it is left out here.
    """
    turns = [
        reply(
            0,
            'find /testbed -type f -name "*.py" | xargs grep -l "FilteredRelation" | head -20',
            FOUND,
            aim="Find the relevant files for FilteredRelation and the test case",
        ),
        reply(
            1,
            "cat /testbed/tests/known_related_objects/tests.py",
            TESTS,
            about="Found relevant files containing FilteredRelation. Need to examine the test file to understand the "
            "issue context.",
            aim="Read the known_related_objects/tests.py file to understand the test and models",
        ),
        reply(
            2,
            about="Found the test file. Need to see the full content including the test case that's failing and the "
            "models.",
        ),
    ]
    assert section(block_of(started(Arsm()).render(history_of(*turns))), "# Active Reasoning Path") == [
        "- Turn 1: [Hypothesis] Find the relevant files for FilteredRelation and the test case [Action] find /testbed "
        '-type f -name "*.py" | xargs grep -l "FilteredRelation" | head -20 [Reflection] '
        "/testbed/django/db/models/query.py /testbed/django/db/models/query_utils.py "
        "/testbed/django/db/models/sql/query.py /testbed/django/db/models/__init__.py "
        "/testbed/tests/filtered_relation/tests.py /testbed/tests/select_related_onetoone/tests.py "
        "/testbed/tests/queryset_pickle/tests.py /testbed/tests/known_related_objects/tests.py bash: -c: line 2: "
        "syntax error\u2026. Found relevant files containing FilteredRelation. Need to examine the test file to "
        "understand the issue context.",
        "- Turn 2: [Hypothesis] Read the known_related_objects/tests.py file to understand the test and models "
        "[Action] cat /testbed/tests/known_related_objects/tests.py [Reflection] from django.db.models import "
        "FilteredRelation from django.test import TestCase from .models import Organiser, Pool, PoolStyle, Tournament "
        "class ExistingRelatedInstancesTests(TestCase): @classmethod def setUpTestData(cls): cls.t1 = "
        'Tournament.objects.create(name="Tourney 1") cls.t2 = Tournament.objects.create(name="Tourney 2") cls.o1 = '
        "Organiser.objects.crea\u2026. Found the test file. Need to see the full content including the test case "
        "that's failing and the models.",
    ]


def test_before_the_first_turn_only_the_opening_is_shown() -> None:
    """There is no state yet."""
    assert started(Arsm()).render(history_of()).messages == OPENING


def test_the_newest_raw_turns_then_the_block() -> None:
    """rho = 0.5 shows five raw turns; the block comes last, or right behind the task with state_position=after_task."""
    turns = [command_turn(label, f"cmd {label}") for label in range(9)]
    at_end = started(Arsm()).render(history_of(*turns))
    assert [segment.first_turn for segment in at_end.segments if segment.part == "agent"] == [5, 6, 7, 8, 9]
    assert at_end.segments[-1].form is Form.state
    assert at_end.boundary == 4
    after_task = started(Arsm(state_position="after_task")).render(history_of(*turns))  # type: ignore[arg-type]
    assert after_task.segments[1].form is Form.state
    assert after_task.segments[2:] == at_end.segments[1:-1]


@pytest.mark.parametrize(("rho", "num_raw"), [(0.0, 50), (0.1, 37), (0.5, 5), (0.8, 2), (1.0, 1)])
def test_rho_sets_the_raw_window(rho: float, num_raw: int) -> None:
    """W(rho) raw turns of a history of 60."""
    rendered = started(Arsm(rho=rho)).render(history_of(*(command_turn(label) for label in range(60))))
    assert sum(segment.part == "agent" for segment in rendered.segments) == num_raw


def test_a_turn_is_judged_by_the_next_reply() -> None:
    """Turn n enters the path with the reflection of reply n + 1; the newest turn is not in the path yet."""
    turns = [
        reply(0, "ls", "a.py\nb.py", aim="Look around", extra=PLAN),
        reply(1, "cat a.py", "x = 1", about="Two files.", aim="Read a.py"),
    ]
    block = block_of(started(Arsm()).render(history_of(*turns)))
    assert section(block, "# Global Checklist") == ["[ ] 1. Explore", "[ ] 2. Fix", "[ ] 3. Verify"]
    assert section(block, "# Active Reasoning Path") == [
        "- Turn 1: [Hypothesis] Look around [Action] ls [Reflection] a.py b.py. Two files."
    ]


def test_a_session_through_all_four_routes() -> None:
    """Ongoing extends, MILESTONE folds and advances, FAILURE learns and prunes, SUCCESS extends."""
    turns = [
        reply(0, "ls", "a.py", aim="Look", extra=PLAN),
        reply(1, "cat a.py", "x = 1", about="One file.", aim="Read"),
        reply(2, "sed -i s/1/2/ a.py", "", about="x is 1.", status="MILESTONE", aim="Change"),
        reply(3, "python a.py", "boom", about="Changed.", status="SUCCESS", aim="Try", returncode=1),
        reply(4, "true", about="It fails.", status="FAILURE", pitfall="Import first."),
    ]
    block = block_of(started(Arsm()).render(history_of(*turns)))
    assert section(block, "# Global Checklist") == ["[x] 1. Explore", "[ ] 2. Fix", "[ ] 3. Verify"]
    assert section(block, "# Pitfall") == ["- Import first."]
    assert section(block, "# Milestones") == ["- Explore: x is 1. | Evidence: x = 1; a.py"]
    assert section(block, "# Active Reasoning Path") == [
        "- Turn 3: [Hypothesis] Change [Action] sed -i s/1/2/ a.py [Reflection] Changed."
    ]


def test_only_the_first_plan_counts() -> None:
    """A later checklist does not replace the first one."""
    turns = [reply(0, extra=PLAN), reply(1, extra="[CHECKLIST]\n1. Other\n")]
    assert len(section(block_of(started(Arsm()).render(history_of(*turns))), "# Global Checklist")) == 3


def test_a_reply_without_tags_is_an_ongoing_turn() -> None:
    """It extends the path with what is known."""
    turns = [command_turn(0, "ls", "a.py"), command_turn(1)]
    block = block_of(started(Arsm()).render(history_of(*turns)))
    assert section(block, "# Active Reasoning Path") == ["- Turn 1: [Hypothesis] - [Action] ls [Reflection] a.py"]


def test_the_guard_answers_in_place_of_the_environment() -> None:
    """After three identical reads without new evidence the fourth is refused; the block says so; off, it passes."""
    turns = [reply(label, "cat a.py", "x = 1") for label in range(3)]
    renderer = started(Arsm())
    history = history_of(*turns[:2])
    assert renderer.intercept(history, Action("cat a.py")) is None
    history.append(turns[2])
    answer = renderer.intercept(history, Action("cat a.py"))
    assert answer is not None
    assert answer.body.startswith("[execution guard]")
    assert renderer.intercept(history, Action("cat b.py")) is None
    assert len(section(block_of(renderer.render(history)), "# Loop Alerts")) == 2
    assert started(Arsm(guard=False)).intercept(history, Action("cat a.py")) is None


def test_counting_loops_by_the_letter_needs_failures() -> None:
    """count_loops=failure warns only after the repeats were reported as FAILURE."""
    turns = [reply(label, "cat a.py", "x = 1") for label in range(6)]
    letter = Arsm(count_loops="failure")  # type: ignore[arg-type]
    assert started(letter).intercept(history_of(*turns), Action("cat a.py")) is None
    failing = [reply(label, "cat a.py", "x = 1", status="FAILURE") for label in range(4)]
    assert started(letter).intercept(history_of(*failing), Action("cat a.py")) is not None


def test_the_ledger_is_a_section_of_its_own() -> None:
    """With ledger=true the candidates stand between milestones and alerts; by default there is no such section."""
    turns = [reply(0, extra="[CANDIDATES]\nB07X: red\n")]
    block = block_of(started(Arsm(ledger=True)).render(history_of(*turns)))
    assert section(block, "# Candidates") == ["- B07X: red"]
    assert "# Candidates" not in block_of(started(Arsm()).render(history_of(*turns)))


def test_clamped_raw_turns_give_way_from_the_oldest() -> None:
    """Raw turns and block stay within clamp_tokens (four characters a token here); the newest turn always stays."""
    turns = [command_turn(label, body="x" * 400) for label in range(5)]
    block_tokens = len(block_of(started(Arsm()).render(history_of(*turns)))) // 4
    newest = started(Arsm()).render(history_of(*turns)).segments[1:3]
    turn_tokens = sum(len(message.content) // 4 for segment in newest for message in segment.messages)
    for room, num_raw in ((3 * turn_tokens, 3), (3 * turn_tokens - 1, 2), (0, 1)):
        rendered = started(Arsm(clamp_tokens=block_tokens + room)).render(history_of(*turns))
        assert sum(segment.part == "agent" for segment in rendered.segments) == num_raw


def test_an_outer_renderer_s_turns_leave_window_and_path() -> None:
    """With visible_from = 4 neither raw turns nor path lines before turn 4 are shown."""
    turns = [command_turn(label, f"cmd {label}", f"out {label}") for label in range(5)]
    rendered = started(Arsm()).render(history_of(*turns), visible_from=4)
    assert [segment.first_turn for segment in rendered.segments if segment.part == "agent"] == [4, 5]
    assert [line[:8] for line in section(block_of(rendered), "# Active Reasoning Path")] == ["- Turn 4"]


def test_the_layer_takes_the_place_of_the_reasoning_item() -> None:
    """Its list number stays, the action item stays, all tags are asked for and the window is named."""
    template = HarnessTemplate("You are an agent.", "Fix it.\n\n1. Think aloud.\n2. One command.", "1. Think aloud.")
    layered = started(Arsm()).prompt_layer(template)
    assert layered.system == template.system
    assert "Think aloud" not in layered.task
    assert layered.task.startswith("Fix it.\n\n1. Your memory: only the newest 5 of your past steps are shown")
    assert layered.task.endswith("\n2. One command.")
    for tag in ("REFLECTION", "STATUS", "PITFALL", "CURRENT_STEP", "AIM", "CHECKLIST"):
        assert f"[{tag}]" in layered.task
    assert "[CANDIDATES]" not in layered.task
    assert "[CANDIDATES]" in started(Arsm(ledger=True)).prompt_layer(template).task
    behind = started(Arsm()).prompt_layer(replace(template, format_item=None))
    assert behind.task.startswith(template.task + "\n\nYour memory")


STATUSES = ("ONGOING", "MILESTONE", "FAILURE", "SUCCESS", "maybe")


@st.composite
def tagged_turns(draw: st.DrawFn) -> list[Turn]:
    """Random turns, some with tags in their replies, some replayed, some blocked by the guard."""
    turns = draw(random_turns(max_turns=20))
    for place, turn in enumerate(turns):
        if turn.kind is TurnKind.command and draw(st.booleans()):
            status = draw(st.sampled_from(STATUSES))
            body = turn.observations[0].body
            tagged = reply(place, turn.command, body, status=status, about="r", aim="h", extra=PLAN)
            turns[place] = replace(tagged, may_remind=draw(st.booleans()))
    return turns


VARIANTS: tuple[dict[str, Any], ...] = (
    {},
    {"rho": 1.0, "ledger": True, "replay_signals": "recorded"},
    {"rho": 0.1, "count_loops": "failure", "forget_loops_on_edit": False, "done_steps": "remove"},
    {"pitfall_source": "both", "prune_to": "eta", "eta": 2, "fold_closing_turn": False, "clamp_tokens": 300},
    {"replay_signals": "none", "state_position": "after_task", "path_capacity": (1, 1, 1)},
)


@given(turns=tagged_turns(), variant=st.sampled_from(VARIANTS))
@settings(max_examples=60, deadline=None)
def test_a_followed_session_equals_a_fresh_render(turns: list[Turn], variant: dict[str, Any]) -> None:
    """Every prompt of a session that renders at each step equals the render of a fresh object over that history."""
    _, prompts = run_through(started(Arsm(**variant)), turns)
    for length, prompt in enumerate(prompts):
        assert started(Arsm(**variant)).render(history_of(*turns[:length])) == prompt


@given(turns=tagged_turns(), rho=st.sampled_from([0.1, 0.5, 0.9, 1.0]))
@settings(max_examples=40, deadline=None)
def test_the_state_stays_within_its_capacities(turns: list[Turn], rho: float) -> None:
    """No section grows beyond W(rho); path lines are in turn order and never name the newest turn."""
    renderer = started(Arsm(rho=rho))
    if not turns:
        return
    block = block_of(renderer.render(history_of(*turns)))
    rules = renderer._machine_settings().rules
    path = section(block, "# Active Reasoning Path")
    assert len(path) <= rules.num_path
    assert len(section(block, "# Pitfall")) <= rules.num_pitfalls
    assert len(section(block, "# Milestones")) <= rules.num_milestones
    labels = [int(line.split(":")[0].removeprefix("- Turn ")) for line in path if line.startswith("- Turn ")]
    assert labels == sorted(labels)
    assert all(label < len(turns) for label in labels)

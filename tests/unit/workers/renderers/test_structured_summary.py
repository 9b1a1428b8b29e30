"""Structured Summary: five fixed fields."""

from __future__ import annotations

from dataclasses import replace

import pytest

from serving.calls import Message
from tests.unit.workers.renderers.histories import (
    command_turn,
    history_of,
    recorded_runs,
    recorded_turns,
    run_through,
    started,
)
from workers.interfaces import HarnessTemplate
from workers.renderers.structured_summary import StructuredSummary

HEADINGS = ["# Goal", "# Progress", "# Important observations", "# Failures", "# Next action"]


def test_fields_are_shown_in_fixed_order() -> None:
    """Whatever order they were written in, `-` for one that is missing; the first of each counts."""
    text = "[NEXT_ACTION] run it\n**[goal]**: fix\n[PROGRESS] read a.py\nand b.py\n[GOAL] again"
    assert StructuredSummary().shown(text) == (
        "# Goal\nfix\n# Progress\nread a.py\nand b.py\n# Important observations\n-\n# Failures\n-\n"
        "# Next action\nrun it"
    )


def test_text_without_fields_is_progress() -> None:
    """A writer that ignores the form is not dropped."""
    assert "# Progress\njust text\n" in StructuredSummary().shown("just text")


def test_the_reply_s_summary_is_shown_in_its_own_message() -> None:
    """Turn 2's reply summarizes turn 1; the prompt shows the fields and turn 2."""
    text = "<summary>[GOAL] fix [PROGRESS] looked</summary>\nGo.\n```bash\nls\n```"
    message = Message("assistant", text)
    second = replace(command_turn(1, "ls"), assistant=message, signals=StructuredSummary().read_reply(message))
    rendered = started(StructuredSummary()).render(history_of(command_turn(0), second))
    note = rendered.segments[1].messages[0].content
    assert [line for line in note.split("\n") if line.startswith("# ")] == HEADINGS
    assert "looked" in note
    assert [segment.first_turn for segment in rendered.segments if segment.part == "agent"] == [2]


def test_the_stand_in_fills_all_five_fields() -> None:
    """On recorded runs from the second turn on, with the task's first line as goal; fresh equals followed."""
    runs = recorded_runs()
    if not runs:
        pytest.skip("recorded runs are not here (../shared/trajectories)")
    turns = recorded_turns(runs[0])
    _, prompts = run_through(started(StructuredSummary()), turns)
    for length in range(2, len(turns) + 1, 6):
        note = prompts[length].segments[1].messages[0].content
        assert [line for line in note.split("\n") if line.startswith("# ")][:5] == HEADINGS
        assert "# Goal\nFix the bug.\n" in note
        assert len(note) < 4_000
        assert started(StructuredSummary()).render(history_of(*turns[:length])) == prompts[length]


def test_what_is_asked() -> None:
    """The five tags inside the summary tags."""
    layered = started(StructuredSummary()).prompt_layer(HarnessTemplate("s", "Fix.\n1. Think.\n2. Act.", "1. Think."))
    for tag in ("GOAL", "PROGRESS", "OBSERVATIONS", "FAILURES", "NEXT_ACTION"):
        assert f"[{tag}]" in layered.task

"""SM-only: ARSM's machine with generic turn summaries and no raw HAR window."""

from __future__ import annotations

from dataclasses import replace

import pytest

from serving.calls import Message
from tests.unit.workers.renderers.histories import command_turn, history_of, recorded_runs, recorded_turns, started
from workers.errors import ConfigurationError
from workers.interfaces import HarnessTemplate
from workers.renderers.arsm import Arsm
from workers.renderers.sm_only import SmOnly


def test_path_lines_are_generic_summaries_and_one_turn_is_raw() -> None:
    """Action, outcome and the agent's own line; no hypothesis, no reflection."""
    text = "[SUMMARY] Listed two files.\n[STATUS] ONGOING\n```bash\ncat a.py\n```"
    second = replace(
        command_turn(1, "cat a.py", "x = 1"),
        assistant=Message("assistant", text),
        signals=SmOnly().read_reply(Message("assistant", text)),
    )
    rendered = started(SmOnly()).render(history_of(command_turn(0, "ls", "a.py\nb.py"), second))
    assert [segment.first_turn for segment in rendered.segments if segment.part == "agent"] == [2]
    assert rendered.messages[-1].content.split("\n")[-1] == (
        "- Turn 1: [Action] ls [Outcome] returned 0, 2 lines of output: a.py [Summary] Listed two files."
    )


def test_the_machine_is_arsm_s() -> None:
    """On recorded runs the same turns are routed the same and the same pitfalls and milestones are kept."""
    runs = recorded_runs()
    if not runs:
        pytest.skip("recorded runs are not here (../shared/trajectories)")
    history = history_of(*recorded_turns(runs[0]))
    full, generic = started(Arsm()), started(SmOnly())
    full.render(history)
    generic.render(history)
    assert full._cache.machine.routes == generic._cache.machine.routes
    assert full._cache.machine.state == generic._cache.machine.state


def test_what_is_asked() -> None:
    """Routing tags and a summary, neither reflection nor aim."""
    layered = started(SmOnly(ledger=True)).prompt_layer(HarnessTemplate("s", "Fix.\n1. Think.\n2. Act.", "1. Think."))
    for tag in ("SUMMARY", "STATUS", "PITFALL", "CURRENT_STEP", "CHECKLIST", "CANDIDATES"):
        assert f"[{tag}]" in layered.task
    assert "[AIM]" not in layered.task
    assert "[REFLECTION]" not in layered.task
    assert "newest 1 of your past steps is shown" in layered.task


def test_wrong_settings_are_named() -> None:
    """One line with the renderer's name, the value and the remedy."""
    with pytest.raises(ConfigurationError, match="renderer sm_only: keep_recent=0; give at least 1"):
        SmOnly(keep_recent=0)
    with pytest.raises(ConfigurationError, match="renderer sm_only: rho=2"):
        SmOnly(rho=2)

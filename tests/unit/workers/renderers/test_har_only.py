"""HAR-only: records in order, whole records dropped at the budget and for good."""

from __future__ import annotations

import pytest

from serving.calls import Message
from tests.unit.workers.renderers.histories import (
    FakeCounter,
    command_turn,
    history_of,
    recorded_runs,
    recorded_turns,
    run_through,
    started,
)
from workers.errors import ConfigurationError
from workers.history import Form, Rendered
from workers.interfaces import HarnessTemplate
from workers.renderers.har_only import HarOnly


def within(budget_tokens: int, **settings: object) -> HarOnly:
    """A started renderer with this budget; four characters a token."""
    renderer = HarOnly(**settings)  # type: ignore[arg-type]
    renderer.start(counter=FakeCounter(), budget_tokens=budget_tokens, path="renderer")  # type: ignore[arg-type]
    return renderer


def records(rendered: Rendered) -> list[str]:
    """The lines of the records message, heading first; empty without one."""
    return [
        line
        for segment in rendered.segments
        if segment.form is Form.folded
        for line in segment.messages[0].content.split("\n")
    ]


def test_all_closed_turns_are_records_and_the_newest_is_raw() -> None:
    """Chronological records of turns 1..t-1 behind the task, then turn t in full."""
    turns = [command_turn(label, f"cmd {label}", f"out {label}") for label in range(3)]
    rendered = within(10_000).render(history_of(*turns))
    assert records(rendered) == [
        "[Hypothesis-Action-Result records]",
        "- Turn 1: [Hypothesis] - [Action] cmd 0 [Reflection] out 0",
        "- Turn 2: [Hypothesis] - [Action] cmd 1 [Reflection] out 1",
    ]
    assert [segment.first_turn for segment in rendered.segments if segment.part == "agent"] == [3]
    assert rendered.segments[1].form is Form.folded
    assert within(10_000).render(history_of()).messages == history_of().opening


def test_the_prompt_only_grows_before_the_budget() -> None:
    """Each records message starts with the one before it."""
    turns = [command_turn(label, f"cmd {label}", f"out {label}") for label in range(8)]
    _, prompts = run_through(within(10_000), turns)
    texts = ["\n".join(records(prompt)) for prompt in prompts]
    assert all(later.startswith(earlier) for earlier, later in zip(texts, texts[1:], strict=False))


def test_at_the_budget_the_oldest_whole_records_go_for_good() -> None:
    """The prompt stays within B, what is left is a contiguous newest run of whole records, and none comes back."""
    turns = [command_turn(label, f"cmd {label}", "x" * (600 if label % 5 == 4 else 80)) for label in range(40)]
    budget_tokens = 400
    _, prompts = run_through(within(budget_tokens), turns)
    first_shown = 0
    for length, prompt in enumerate(prompts):
        tokens = sum(len(message.content) // 4 for message in prompt.messages)
        assert tokens <= budget_tokens
        shown = [int(line.split(":")[0].removeprefix("- Turn ")) for line in records(prompt) if "Turn" in line]
        assert shown == list(range(length - len(shown), length))
        assert not shown or shown[0] >= first_shown
        first_shown = shown[0] if shown else first_shown
    assert first_shown > 20
    assert "older records were dropped)" in records(prompts[-1])[1]


def test_an_outer_renderer_s_turns_have_no_record() -> None:
    """With visible_from = 3 records begin at turn 3, and the segment says so."""
    turns = [command_turn(label) for label in range(6)]
    rendered = within(10_000).render(history_of(*turns), visible_from=3)
    assert [line[:8] for line in records(rendered)[1:]] == ["- Turn 3", "- Turn 4", "- Turn 5"]
    assert (rendered.segments[1].first_turn, rendered.segments[1].last_turn) == (3, 5)


def test_a_smaller_share_drops_earlier() -> None:
    """budget_share = 0.5 keeps the prompt within half of B."""
    turns = [command_turn(label, f"cmd {label}", "x" * 80) for label in range(40)]
    rendered = within(800, budget_share=0.5).render(history_of(*turns))
    assert sum(len(message.content) // 4 for message in rendered.messages) <= 400


def test_a_followed_run_equals_a_fresh_render() -> None:
    """On a recorded run with a tight budget, where records are dropped."""
    runs = recorded_runs()
    if not runs:
        pytest.skip("recorded runs are not here (../shared/trajectories)")
    turns = recorded_turns(runs[0])
    _, prompts = run_through(within(6_000), turns)
    for length in range(0, len(turns) + 1, 7):
        assert within(6_000).render(history_of(*turns[:length])) == prompts[length]


def test_what_is_asked_and_read() -> None:
    """Reflection and aim only; a reply without the aim is a miss."""
    layered = started(HarOnly()).prompt_layer(HarnessTemplate("s", "Fix.\n1. Think.\n2. Act.", "1. Think."))
    assert "[AIM]" in layered.task
    assert "[STATUS]" not in layered.task
    text = "[REFLECTION] Result: r Conclusion: c\n[AIM] go\n```bash\nls\n```"
    signals = HarOnly().read_reply(Message("assistant", text))
    assert (signals.progress, signals.extra["aim"], "parse_miss" in signals.extra) == ("go", "go", False)
    assert HarOnly().read_reply(Message("assistant", "hello")).progress is None


def test_wrong_settings_are_named() -> None:
    """One line with the value and the remedy."""
    for settings, message in (({"budget_share": 0.0}, "budget_share=0.0"), ({"keep_recent": 0}, "keep_recent=0")):
        with pytest.raises(ConfigurationError, match=message):
            HarOnly(**settings)  # type: ignore[arg-type]

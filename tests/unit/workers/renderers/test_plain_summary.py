"""Plain Summary: one free-form summary, written in the reply or by an auxiliary call, and its stand-in in replay."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from serving.calls import CallKind, Message, TokenUsage
from tests.unit.workers.renderers.histories import (
    command_turn,
    history_of,
    no_aux,
    recorded_runs,
    recorded_turns,
    run_through,
    started,
)
from workers.errors import AuxiliaryError, ConfigurationError
from workers.history import Form, History, Rendered, Turn
from workers.interfaces import AuxReply, HarnessTemplate
from workers.renderers.plain_summary import PlainSummary


def live(label: int, summary: str | None) -> Turn:
    """A live turn whose reply carries a summary of the turns before it."""
    turn = command_turn(label, f"cmd {label}", f"out {label}")
    written = "" if summary is None else f"<summary>\n{summary}\n</summary>\n"
    message = replace(turn.assistant, content=written + turn.assistant.content)
    return replace(turn, assistant=message, signals=PlainSummary().read_reply(message))


def summary_of(rendered: Rendered) -> str | None:
    """The shown summary without its heading, None without one."""
    found = [segment for segment in rendered.segments if segment.form is Form.summary]
    return found[0].messages[0].content.removeprefix("[Summary of the steps before]\n") if found else None


def raw_turns(rendered: Rendered) -> list[int]:
    """The turns shown in full."""
    return [segment.first_turn for segment in rendered.segments if segment.part == "agent"]


def test_the_newest_summary_stands_for_all_turns_before_the_reply_that_wrote_it() -> None:
    """Opening, the summary of turns 1..t-1, turn t; the reply is shown without the summary it wrote."""
    turns = [live(0, None), live(1, "Looked around."), live(2, "Looked around, read a.py.")]
    rendered = started(PlainSummary()).render(history_of(*turns))
    assert summary_of(rendered) == "Looked around, read a.py."
    assert raw_turns(rendered) == [3]
    texts = "\n".join(message.content for message in rendered.messages)
    assert texts.count("read a.py") == 1
    assert "<summary>" not in texts
    assert "thinking about 2" in texts


def test_turns_that_no_summary_covers_stay_in_full() -> None:
    """A reply without a summary leaves the older one standing, and its turns raw."""
    turns = [live(0, None), live(1, "Looked around."), live(2, None), live(3, None)]
    rendered = started(PlainSummary()).render(history_of(*turns))
    assert summary_of(rendered) == "Looked around."
    assert raw_turns(rendered) == [2, 3, 4]


def test_more_turns_can_stay() -> None:
    """keep_recent = 3 shows three turns even where the summary covers two of them."""
    turns = [live(label, f"summary {label}" if label else None) for label in range(6)]
    assert raw_turns(started(PlainSummary(keep_recent=3)).render(history_of(*turns))) == [4, 5, 6]


class Writer:
    """An auxiliary model that numbers its answers and keeps what it was sent."""

    def __init__(self, fail_at: int = 0) -> None:
        self.calls: list[dict[str, Any]] = []
        self._fail_at = fail_at

    async def __call__(self, **call: Any) -> AuxReply:
        self.calls.append(call)
        if len(self.calls) == self._fail_at:
            raise AuxiliaryError("came back empty")
        return AuxReply(f"summary {len(self.calls)}", TokenUsage(10, None, 10, "client"), "model")


def follow(renderer: PlainSummary, turns: list[Turn], writer: Writer) -> tuple[History, Rendered]:
    """The session loop with this auxiliary model."""

    async def run() -> History:
        history = history_of()
        for turn in turns:
            seen = renderer.render(history)
            history.append(turn)
            history.extend(await renderer.observe(history, seen, writer))
        return history

    history = asyncio.run(run())
    return history, renderer.render(history)


def test_an_auxiliary_model_rewrites_the_summary_every_turn() -> None:
    """From the second turn on one call a turn, of kind summary, with the summary before and the one turn it lacks."""
    turns = [command_turn(label, f"cmd {label}", f"out {label}") for label in range(4)]
    writer = Writer()
    renderer = started(PlainSummary(written_by="aux"))  # type: ignore[arg-type]
    history, rendered = follow(renderer, turns, writer)
    assert summary_of(rendered) == "summary 3"
    assert raw_turns(rendered) == [4]
    assert [call["kind"] for call in writer.calls] == [CallKind.summary] * 3
    assert {call["declared_tokens"] for call in writer.calls} == {1000}
    last = writer.calls[-1]["messages"][0].content
    assert "summary 2" in last
    assert "out 2" in last
    assert "out 1" not in last
    fresh = started(PlainSummary(written_by="aux"))  # type: ignore[arg-type]
    assert fresh.render(history) == rendered
    assert renderer.signals is None
    assert {memo.kind for memo in history.all_memos} == {"turn_summary"}


def test_a_failed_call_is_noted_and_the_turn_stays_in_full() -> None:
    """The summary before it stands; the next call covers both turns."""
    turns = [command_turn(label, f"cmd {label}", f"out {label}") for label in range(5)]
    renderer = started(PlainSummary(written_by="aux"))  # type: ignore[arg-type]
    history, rendered = follow(renderer, turns[:4], Writer(fail_at=3))
    assert raw_turns(rendered) == [3, 4]
    assert summary_of(rendered) == "summary 2"
    assert history.all_memos[-1].kind == "turn_summary_failed"
    assert "came back empty" in history.all_memos[-1].data["error"]
    writer = Writer(fail_at=3)
    _, rendered = follow(started(PlainSummary(written_by="aux")), turns, writer)  # type: ignore[arg-type]
    assert raw_turns(rendered) == [5]
    assert "out 2" in writer.calls[3]["messages"][0].content
    assert "out 3" in writer.calls[3]["messages"][0].content


def test_replay_has_a_stand_in_of_bounded_length() -> None:
    """Recorded replies hold no summary: one sentence a turn, the newest within max_words."""
    runs = recorded_runs()
    if not runs:
        pytest.skip("recorded runs are not here (../shared/trajectories)")
    turns = recorded_turns(max(runs, key=lambda run: len(run.steps)))
    renderer = started(PlainSummary(max_words=120))
    _, prompts = run_through(renderer, turns)
    for length in range(2, len(turns) + 1, 9):
        text = summary_of(prompts[length])
        assert text is not None
        assert text.split("\n")[-1].startswith(f"Step {length - 1}: ")
        assert len(text.split()) <= 120
        assert raw_turns(prompts[length]) == [length]
        assert started(PlainSummary(max_words=120)).render(history_of(*turns[:length])) == prompts[length]


def test_without_signals_replay_shows_everything() -> None:
    """replay_signals=none has nothing to show in place of turns."""
    turns = [command_turn(label, may_remind=False) for label in range(4)]
    renderer = started(PlainSummary(replay_signals="none"))  # type: ignore[arg-type]
    assert raw_turns(renderer.render(history_of(*turns))) == [1, 2, 3, 4]


def test_what_is_asked() -> None:
    """The layer asks for the summary tags in the place of reasoning; with aux the prompt is the harness's."""
    template = HarnessTemplate("s", "Fix.\n1. Think.\n2. Act.", "1. Think.")
    layered = started(PlainSummary()).prompt_layer(template)
    assert "<summary>" in layered.task
    assert "at most 300 words" in layered.task
    assert layered.task.endswith("\n2. Act.")
    assert started(PlainSummary(written_by="aux")).prompt_layer(template) == template  # type: ignore[arg-type]


def test_observing_makes_no_call_when_replies_write() -> None:
    """written_by=reply never uses the auxiliary caller."""
    renderer = started(PlainSummary())
    history = history_of(live(0, None), live(1, "x"))
    assert asyncio.run(renderer.observe(history, renderer.render(history), no_aux)) == ()


def test_wrong_settings_are_named() -> None:
    """One line with the value and the remedy."""
    with pytest.raises(ConfigurationError, match="written_by=me; give one of reply, aux"):
        PlainSummary(written_by="me")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="renderer plain_summary: max_words=0; give at least 1"):
        PlainSummary(max_words=0)


def test_message_type_is_kept() -> None:
    """Taking the summary out of a reply keeps its tool calls and reasoning."""
    turn = live(1, "x")
    turn = replace(turn, assistant=replace(turn.assistant, reasoning="why"))
    rendered = started(PlainSummary()).render(history_of(live(0, None), turn))
    shown = next(segment for segment in rendered.segments if segment.part == "agent").messages[0]
    assert isinstance(shown, Message)
    assert (shown.reasoning, shown.role) == ("why", "assistant")

"""compact summarizes the oldest turns when the estimated prompt passes 75 % of B."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.calls import CallKind
from tests.unit.workers.renderers.composed_histories import (
    Auxiliary,
    begun,
    check_chat,
    counted,
    prompt_tokens,
    session,
    sized_turn,
)
from tests.unit.workers.renderers.histories import FakeCounter, command_turn, history_of, random_turns
from workers.errors import ConfigurationError
from workers.history import Form, History, Memo, Rendered, Turn
from workers.renderers.base import Base
from workers.renderers.compact import Compact
from workers.renderers.compact_plan import units_of
from workers.renderers.refold import Refold

BUDGET = 10_000


def observed(renderer: Compact, turns: list[Turn], aux: Any) -> tuple[Memo, ...]:
    """What `observe` returns for the last of these turns."""
    history = history_of(*turns[:-1])
    seen = renderer.render(history)
    history.append(turns[-1])
    return asyncio.run(renderer.observe(history, seen, aux))


@pytest.mark.parametrize(("budget", "cap"), [(16_384, 2048), (32_768, 4096), (65_536, 8192), (245_760, 30_720)])
def test_a_summary_has_at_most_the_larger_of_2048_and_an_eighth_of_b(budget: int, cap: int) -> None:
    """max(2048, B/8), appendix B.1."""
    assert Compact().cap_tokens(budget) == cap


@pytest.mark.parametrize(("prompt_before", "num_calls"), [(6490, 0), (6491, 1)])
def test_the_trigger_is_passed_above_75_percent(prompt_before: int, num_calls: int) -> None:
    """6,490 + 10 + 1,000 = 7,500 = 75 % of 10,000 does not pass it, 7,501 does."""
    turns = [sized_turn(label, 1000) for label in range(9)] + [sized_turn(9, 1000, prompt_tokens=prompt_before)]
    aux = Auxiliary("done")
    observed(begun(Compact(), BUDGET), turns, aux)
    assert len(aux.calls) == num_calls


def test_the_oldest_60_percent_of_whole_turns_are_taken() -> None:
    """Of ten turns of equal size the oldest six, when two are protected; with six protected only four are in reach."""
    turns = [sized_turn(label, 700, prompt_tokens=6800) for label in range(10)]
    (memo,) = observed(begun(Compact(keep_recent=2), BUDGET), turns, Auxiliary("done"))
    assert (memo.data["first_turn"], memo.data["last_turn"], memo.data["num_protected"]) == (1, 6, 2)
    (memo,) = observed(begun(Compact(), BUDGET), turns, Auxiliary("done"))
    assert (memo.data["first_turn"], memo.data["last_turn"], memo.data["num_protected"]) == (1, 4, 6)


def test_fewer_than_six_stay_when_they_do_not_fit() -> None:
    """9,000 - 710 n + 2,048 <= 7,500 needs n = 5 of eight turns: 9,000 - 3,550 + 2,048 = 7,498; so three stay."""
    turns = [sized_turn(label, 700, prompt_tokens=8290) for label in range(8)]
    (memo,) = observed(begun(Compact(), BUDGET), turns, Auxiliary("done"))
    assert memo.data["estimate_tokens"] == 9000
    assert (memo.data["last_turn"], memo.data["num_protected"]) == (5, 3)


def test_the_call_is_a_summary_of_declared_length_on_the_cached_prefix() -> None:
    """Kind summary, 1,000 declared and 2,048 allowed tokens, and its prompt starts with the prompt seen before."""
    turns = [sized_turn(label, 700, prompt_tokens=6800, tool_call_id=f"c{label}") for label in range(10)]
    aux = Auxiliary("done")
    renderer = begun(Compact(), BUDGET)
    observed(renderer, turns, aux)
    (call,) = aux.calls
    assert call["kind"] is CallKind.summary
    assert (call["declared_tokens"], call["max_completion_tokens"]) == (1000, 2048)
    assert call["messages"][:-1] == renderer.render(history_of(*turns[:4])).messages
    assert call["messages"][-1].role == "user"
    assert "steps 0-3" in call["messages"][-1].content


def test_the_instruction_joins_a_last_user_message() -> None:
    """Where outputs are user messages, two of them never follow each other in the call."""
    aux = Auxiliary("done")
    observed(begun(Compact(), BUDGET), [sized_turn(label, 700, prompt_tokens=6800) for label in range(10)], aux)
    roles = [message.role for message in aux.calls[0]["messages"]]
    assert roles == ["system", "user", *["assistant", "user"] * 4]


def test_declared_length_is_capped() -> None:
    """1,000 tokens are declared, or the cap where that is less."""
    aux = Auxiliary("done")
    renderer = begun(Compact(min_cap_tokens=100, cap_divisor=1000), BUDGET)
    observed(renderer, [sized_turn(label, 700, prompt_tokens=6800) for label in range(10)], aux)
    assert (aux.calls[0]["declared_tokens"], aux.calls[0]["max_completion_tokens"]) == (100, 100)


def test_the_summary_replaces_its_turns_for_good() -> None:
    """Opening, one summary message, then the turns behind it."""
    turns = [sized_turn(label, 700, prompt_tokens=6800 if label == 9 else 0) for label in range(11)]
    history, prompts = session(begun(Compact(), BUDGET), turns, Auxiliary("all is well"))
    assert [memo.kind for memo in history.all_memos] == ["summary"]
    for prompt in prompts[10:]:
        summary = prompt.segments[1]
        assert (summary.form, summary.first_turn, summary.last_turn) == (Form.summary, 1, 4)
        assert summary.messages[0].content.endswith("\n\nall is well")
        assert prompt.segments[2].first_turn == 5


def test_an_empty_reply_is_noted_and_tried_again() -> None:
    """The failed call leaves a memo with its estimate and changes no prompt; the next step asks again."""
    turns = [sized_turn(label, 700, prompt_tokens=6800 if label >= 9 else 0) for label in range(11)]
    history, prompts = session(begun(Compact(), BUDGET), turns, Auxiliary(None, "done"))
    failed, done = history.all_memos
    assert (failed.kind, failed.after_turn, failed.data["estimate_tokens"]) == ("summary_failed", 10, 7510)
    assert (done.kind, done.after_turn) == ("summary", 11)
    assert all(segment.form is Form.full for segment in prompts[10].segments)


def stacked_history(text_chars: int) -> History:
    """Ten turns, the first four summarized by a text of this length."""
    history = history_of(*(sized_turn(label, 700, prompt_tokens=7600) for label in range(10)))
    history.extend((Memo("renderer", "summary", 9, {"first_turn": 1, "last_turn": 4, "text": "s" * text_chars}),))
    return history


@pytest.mark.parametrize(("text_chars", "first_turn", "num_absorbed"), [(9000, 5, 0), (10_000, 1, 1)])
def test_summaries_above_a_quarter_of_b_are_taken_in(text_chars: int, first_turn: int, num_absorbed: int) -> None:
    """9,000 characters are below 2,500 tokens, 10,000 and a heading above: then the next summary covers turn 1 on."""
    renderer, history, aux = begun(Compact(), BUDGET), stacked_history(text_chars), Auxiliary("short")
    (memo,) = asyncio.run(renderer.observe(history, renderer.render(history), aux))
    assert (memo.data["first_turn"], memo.data["num_absorbed"]) == (first_turn, num_absorbed)
    history.extend((memo,))
    summaries = [segment for segment in renderer.render(history).segments if segment.form is Form.summary]
    assert len(summaries) == 2 - num_absorbed


@dataclass(frozen=True)
class Spy(Base):
    """`base` that notes the `visible_from` it is given."""

    seen: list[int] = field(default_factory=list)

    def render(self, history: History, visible_from: int = 1) -> Rendered:
        """As base."""
        self.seen.append(visible_from)
        return super().render(history, visible_from)


def test_the_inner_renderer_is_told_where_the_summaries_end() -> None:
    """After a summary of turns 1-4 the inner render begins at turn 5; an outer renderer's later start wins."""
    spy = Spy()
    renderer = begun(Compact(inner=spy), BUDGET)
    history = stacked_history(100)
    renderer.render(history)
    renderer.render(history, visible_from=8)
    assert spy.seen == [5, 8]


def test_a_fold_note_is_never_parted() -> None:
    """Turns under one note make one unit."""
    turns = [command_turn(label, body="z" * 40, stale=(label - 1,), asked=True) for label in range(9)]
    rendered = session(begun(Refold(), BUDGET), turns)[1][-1]
    units = units_of(rendered.segments, FakeCounter(), start=1)
    assert [(unit.first_turn, unit.last_turn) for unit in units] == [(1, 6), (7, 7), (8, 8), (9, 9)]
    assert [unit.end for unit in units] == [2, 4, 6, 8]


def test_summaries_can_join_the_task_message() -> None:
    """merge_previous: the summary stands in the task's message, its segment stays as a mark without a message."""
    renderer = begun(Compact(summary_role="merge_previous"), BUDGET)
    rendered = renderer.render(stacked_history(100))
    assert [message.role for message in rendered.messages[:3]] == ["system", "user", "assistant"]
    assert rendered.messages[1].content.endswith("s" * 100)
    assert (rendered.segments[1].form, rendered.segments[1].messages) == (Form.summary, ())


@given(turns=random_turns(max_turns=24), budget=st.integers(400, 3000), is_folding=st.booleans(), merges=st.booleans())
@settings(max_examples=40, deadline=None)
def test_pure_valid_and_newest_shown(turns: list[Turn], budget: int, is_folding: bool, merges: bool) -> None:
    """Fresh equals cached, chats stay valid, the newest turn stays, and the estimate is the next prompt's length."""

    def make() -> Compact:
        return begun(
            Compact(
                min_cap_tokens=60,
                summary_role="merge_previous" if merges else "user",
                inner=Refold() if is_folding else None,
            ),
            budget,
        )

    history, prompts = counted(turns, make(), Auxiliary("s" * 200, None, "t" * 100))
    assert make().render(history) == prompts[-1]
    for prompt in prompts:
        check_chat(prompt)
    if turns:
        assert prompts[-1].segments[-1].last_turn == len(turns)
        assert turns[-1].observations[0].shown in prompts[-1].messages[-1].content
    for memo in history.all_memos:
        if memo.kind == "summary_failed":
            assert abs(memo.data["estimate_tokens"] - prompt_tokens(prompts[memo.after_turn])) <= 2


@pytest.mark.parametrize("options", [{"share": 0.0}, {"fit_share": 2.0}, {"keep_recent": 0}, {"summary_role": "tool"}])
def test_impossible_settings_are_refused(options: dict[str, Any]) -> None:
    """A user's mistake is one line that names the value."""
    with pytest.raises(ConfigurationError, match=next(iter(options))):
        Compact(**options)

"""agentdiet has one earlier output a step rewritten and adopts the text if it saves more than theta tokens."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings

from serving.calls import CallKind
from tests.unit.workers.renderers.composed_histories import Auxiliary, begun, check_chat, session, sized_turn
from tests.unit.workers.renderers.histories import command_turn, random_turns, text_of
from tests.unit.workers.test_session import LIST, SUBMIT, run
from workers.errors import ConfigurationError
from workers.history import Observation, Turn, TurnKind
from workers.renderers.agentdiet import AgentDiet


def tokens(number: int) -> str:
    """A text of so many tokens by the fake counter."""
    return "r" * 4 * number


def test_the_candidate_is_the_newest_output_behind_the_three_newest() -> None:
    """After turn 4 it is turn 1, after turn 5 turn 2: one call a step, each output once."""
    aux = Auxiliary(tokens(10))
    turns = [sized_turn(label, 600) for label in range(6)]
    history, prompts = session(begun(AgentDiet(), 1000), turns, aux)
    assert [memo.data["turn"] for memo in history.all_memos] == [1, 2, 3]
    assert [memo.after_turn for memo in history.all_memos] == [4, 5, 6]
    assert [prompt.num_stubs for prompt in prompts] == [0, 0, 0, 0, 1, 2, 3]
    assert text_of(prompts[-1], 3) == tokens(10)
    assert text_of(prompts[-1], 4) == "y" * 2400


@pytest.mark.parametrize(("theta", "size", "num_calls"), [(500, 500, 0), (500, 501, 1), (150, 151, 1), (150, 150, 0)])
def test_only_outputs_longer_than_theta_are_tried(theta: int, size: int, num_calls: int) -> None:
    """theta 500 and 150, appendix D.4."""
    aux = Auxiliary("short")
    turns = [sized_turn(0, size), *(sized_turn(label, 10) for label in range(1, 4))]
    session(begun(AgentDiet(theta_tokens=theta), 1000), turns, aux)
    assert len(aux.calls) == num_calls


@pytest.mark.parametrize(("rewrite", "is_adopted"), [(300, False), (299, True)])
def test_a_rewrite_is_adopted_only_if_it_saves_more_than_theta(rewrite: int, is_adopted: bool) -> None:
    """800 - 300 = 500 does not, 800 - 299 = 501 does; the memo keeps both lengths, the call knows the verdict."""
    aux = Auxiliary(tokens(rewrite))
    turns = [sized_turn(0, 800), *(sized_turn(label, 10) for label in range(1, 4))]
    history, prompts = session(begun(AgentDiet(), 1000), turns, aux)
    (memo,) = history.all_memos
    assert (memo.data["num_tokens"], memo.data["num_rewrite_tokens"]) == (800, rewrite)
    assert (memo.data["text"] is not None) is is_adopted
    assert text_of(prompts[-1], 1) == (tokens(rewrite) if is_adopted else "y" * 3200)
    assert aux.calls[0]["adopt"](tokens(rewrite)) is is_adopted


def test_the_call_is_a_rewrite_priced_uncached() -> None:
    """Kind rewrite, at most 2,048 tokens, half the output declared, the whole prompt at the uncached rate."""
    aux = Auxiliary("short")
    session(begun(AgentDiet(), 1000), [sized_turn(label, 800) for label in range(4)], aux)
    call = aux.calls[0]
    assert call["kind"] is CallKind.rewrite
    assert (call["max_completion_tokens"], call["declared_tokens"]) == (2048, 400)
    assert call["is_priced_uncached"] is True


def test_the_call_shows_two_steps_before_and_one_after() -> None:
    """For candidate label 2 (after turn 6): labels 0 and 1 before, 3 after, and the target is marked once."""
    aux = Auxiliary("short")
    turns = [command_turn(label, f"cat file{label}", f"text {label} " * 300) for label in range(6)]
    session(begun(AgentDiet(), 1000), turns, aux)
    system, user = aux.calls[2]["messages"]
    assert (system.role, user.role) == ("system", "user")
    assert [f"cat file{label}" in user.content for label in range(6)] == [True, True, True, True, False, False]
    assert user.content.count("output (TARGET)") == 1
    assert f"=== step 2: output (TARGET)\n{turns[2].observations[0].body}" in user.content


def test_the_frame_of_an_output_stays() -> None:
    """Only the body is rewritten."""
    turns = [command_turn(label, "cat a", "z" * 4000) for label in range(4)]
    _, prompts = session(begun(AgentDiet(), 1000), turns, Auxiliary("short"))
    assert text_of(prompts[-1], 1) == "<returncode>0</returncode>\n<output>\nshort\n</output>"


def test_an_empty_reply_is_noted_and_tried_again_once() -> None:
    """After turn 4 the call fails; turn 5 has no candidate of its own, so turn 1 is tried again, and then given up."""
    aux = Auxiliary(None)
    turns = [sized_turn(0, 800), *(sized_turn(label, 10) for label in range(1, 7))]
    history, prompts = session(begun(AgentDiet(), 1000), turns, aux)
    assert [(memo.kind, memo.data["turn"], memo.after_turn) for memo in history.all_memos] == [
        ("rewrite_failed", 1, 4),
        ("rewrite_failed", 1, 5),
    ]
    assert text_of(prompts[-1], 1) == "y" * 3200


def test_the_longest_output_of_a_turn_is_the_candidate() -> None:
    """One candidate a step, also where a reply ran several commands."""
    first = sized_turn(0, 600)
    outputs = (Observation("a" * 2400), Observation("b" * 4000))
    first = replace(first, actions=first.actions * 2, observations=outputs)
    turns = [first, *(sized_turn(label, 10) for label in range(1, 4))]
    _, prompts = session(begun(AgentDiet(), 1000), turns, Auxiliary("short"))
    assert text_of(prompts[-1], 1) == "a" * 2400 + "\nshort"


def test_an_error_text_is_no_candidate() -> None:
    """Format errors are not rewritten."""
    aux = Auxiliary("short")
    first = replace(sized_turn(0, 900), actions=(), kind=TurnKind.format_error)
    session(begun(AgentDiet(), 1000), [first, *(sized_turn(label, 10) for label in range(1, 4))], aux)
    assert aux.calls == []


@pytest.mark.parametrize(("theta", "is_adopted"), [(1, True), (2, False)])
def test_the_row_of_a_call_says_how_it_is_priced_and_whether_it_was_used(theta: int, is_adopted: bool) -> None:
    """In a whole session: `output of ls` has 3 tokens, its stand-in 1, so 2 are saved."""
    outcome = run([LIST, LIST, SUBMIT], renderer=AgentDiet(theta_tokens=theta, keep_recent=1))
    row = next(call for call in outcome.calls if call.kind == "rewrite")
    assert (row.is_priced_uncached, row.is_adopted, row.aux_source) == (True, is_adopted, "seeded")
    assert not any(call.is_priced_uncached for call in outcome.calls if call.kind == "main")
    assert all(call.is_adopted is None for call in outcome.calls if call.kind == "main")


@given(turns=random_turns(max_turns=16))
@settings(max_examples=30, deadline=None)
def test_pure_and_valid(turns: list[Turn]) -> None:
    """Fresh equals cached, chats stay valid, at most one memo a step, nothing gets longer."""
    aux = Auxiliary("short", None, tokens(200))
    history, prompts = session(begun(AgentDiet(theta_tokens=20), 1000), turns, aux)
    assert begun(AgentDiet(theta_tokens=20), 1000).render(history) == prompts[-1]
    for prompt in prompts:
        check_chat(prompt)
    steps = [memo.after_turn for memo in history.all_memos]
    assert len(steps) == len(set(steps)) == len(aux.calls)
    adopted = [memo.data["turn"] for memo in history.all_memos if memo.data.get("text")]
    assert len(adopted) == len(set(adopted))


@pytest.mark.parametrize("options", [{"theta_tokens": 0}, {"keep_recent": 0}, {"declared_share": 0.0}])
def test_impossible_settings_are_refused(options: dict[str, Any]) -> None:
    """A user's mistake is one line that names the value."""
    with pytest.raises(ConfigurationError, match=next(iter(options))):
        AgentDiet(**options)

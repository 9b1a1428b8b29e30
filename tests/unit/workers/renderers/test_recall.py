"""recall moves old outputs to a store when the estimated prompt passes 75 % of B, until it is below 60 %."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.workers.renderers.composed_histories import (
    Auxiliary,
    begun,
    check_chat,
    counted,
    prompt_tokens,
    session,
    sized_turn,
)
from tests.unit.workers.renderers.histories import history_of, random_turns, text_of
from workers.errors import ConfigurationError
from workers.history import Action, History, Memo, Rendered, Turn, TurnKind
from workers.interfaces import HarnessTemplate
from workers.renderers.recall import Recall
from workers.renderers.refold import Refold

BUDGET = 1000
# In place of 200 tokens of output (800 characters); 108 to 111 characters, 27 tokens.
LINE = "[context-manager] output of step 0 is stored: `cat a`, 800 characters in 1 lines. `recall 0` shows it again."


def last_memos(renderer: Recall, turns: list[Turn]) -> tuple[Memo, ...]:
    """What `observe` returns for the last of these turns."""
    history = history_of(*turns[:-1])
    seen = renderer.render(history)
    history.append(turns[-1])
    return asyncio.run(renderer.observe(history, seen, Auxiliary("s")))


@pytest.mark.parametrize(("prompt_before", "is_triggered"), [(540, False), (541, True)])
def test_the_trigger_is_passed_above_75_percent(prompt_before: int, is_triggered: bool) -> None:
    """540 + 10 (reply) + 200 (output) = 750 = 75 % of 1,000 does not pass it, 751 does."""
    turns = [sized_turn(label, 200, prompt_tokens=540) for label in range(8)]
    turns.append(sized_turn(8, 200, prompt_tokens=prompt_before))
    assert bool(last_memos(begun(Recall(), BUDGET), turns)) is is_triggered


def test_the_oldest_go_until_the_estimate_is_below_60_percent() -> None:
    """751 - 1 * (200 - len(LINE) // 4) = 751 - 173 = 578 < 600: one output is enough, the oldest."""
    assert len(LINE) // 4 == 27
    turns = [sized_turn(label, 200, prompt_tokens=541) for label in range(9)]
    (memo,) = last_memos(begun(Recall(), BUDGET), turns)
    assert memo.data == {"turns": [1], "estimate_tokens": 751, "last_prompt_tokens": 541, "left_tokens": 578}
    assert (memo.owner, memo.kind, memo.after_turn) == ("renderer", "evict", 9)


def test_several_go_when_one_is_not_enough() -> None:
    """From 951 three have to go: 951 - 3 * 173 = 432, and after two 605 is not below 600."""
    turns = [sized_turn(label, 200, prompt_tokens=741) for label in range(9)]
    (memo,) = last_memos(begun(Recall(), BUDGET), turns)
    assert (memo.data["turns"], memo.data["left_tokens"]) == ([1, 2, 3], 432)


def test_short_outputs_and_the_newest_stay() -> None:
    """499 characters are too short, and what just happened is never stored."""
    turns = [sized_turn(0, body="z" * 499), sized_turn(1, body="z" * 500, prompt_tokens=900)]
    assert last_memos(begun(Recall(), BUDGET), turns) == ()
    turns = [sized_turn(0, body="z" * 500), sized_turn(1, 10, prompt_tokens=900)]
    assert last_memos(begun(Recall(), BUDGET), turns)[0].data["turns"] == [1]


def test_fewer_than_six_stay_when_that_is_not_enough() -> None:
    """With three turns nothing is older than the six newest: the paper's letter evicts among them, the option waits."""
    turns = [sized_turn(label, 200, prompt_tokens=560) for label in range(3)]
    assert last_memos(begun(Recall(), BUDGET), turns)[0].data["turns"] == [1]
    assert last_memos(begun(Recall(shrink_share=0.8), BUDGET), turns) == ()


def test_the_placeholder_names_index_command_and_size() -> None:
    """The evicted output is one line; everything else is as before."""
    turns = [sized_turn(label, 200, prompt_tokens=541) for label in range(9)]
    history, prompts = session(begun(Recall(), BUDGET), turns)
    assert text_of(prompts[-1], 1) == LINE
    assert text_of(prompts[-1], 9) == "y" * 800
    assert prompts[-1].num_stubs == len({turn for memo in history.all_memos for turn in memo.data["turns"]})


def test_recall_returns_the_text_verbatim_and_runs_nothing() -> None:
    """`recall 1` answers with step 1's output as first shown, paired with the call that asked."""
    history = history_of(sized_turn(0), sized_turn(1, body="the text"))
    answer = begun(Recall(), BUDGET).intercept(history, Action(" recall 1 ", "call-7"))
    assert answer is not None
    assert (answer.shown, answer.tool_call_id, answer.returncode) == ("the text", "call-7", 0)


def test_an_unknown_id_is_a_one_line_error_and_other_commands_pass() -> None:
    """Only a whole command is intercepted; a wrong number says what exists."""
    history, renderer = history_of(sized_turn(0), sized_turn(1)), begun(Recall(), BUDGET)
    wrong = renderer.intercept(history, Action("recall 9"))
    assert wrong.shown == "[context-manager] recall: there is no step 9; steps 0 to 1 exist."
    assert "\n" not in wrong.shown
    assert renderer.intercept(history, Action("recall 1 && ls")) is None
    assert renderer.intercept(history, Action("recall everything")) is None


def test_a_lookup_takes_a_tenth_of_a_second_before_the_next_call_only() -> None:
    """The declared constant is in the render right after the lookup and not in the one after that."""
    turns = [sized_turn(0), sized_turn(1, command="recall 0", kind=TurnKind.recall), sized_turn(2)]
    _, prompts = session(begun(Recall(), BUDGET), turns)
    assert [prompt.own_s_modelled for prompt in prompts] == [0.0, 0.0, 0.1, 0.0]


def test_over_refold_both_commands_work_and_the_prompt_explains_both() -> None:
    """`restore` goes to the inner renderer, signals and prompt layer are the inner one's and ours."""
    renderer = begun(Recall(inner=Refold()), BUDGET)
    history = history_of(sized_turn(0, body="zero"), sized_turn(1, body="one"))
    assert renderer.intercept(history, Action("restore 0")).shown == "zero"
    assert renderer.intercept(history, Action("recall 1")).shown == "one"
    layered = renderer.prompt_layer(HarnessTemplate("You are an agent.", "Fix it.\n1. Think.", "1. Think."))
    assert "restore <step>" in layered.system
    assert "recall <step>" in layered.system
    assert "STALE" in layered.task
    assert renderer.signals == Refold().signals


def test_an_inner_stub_says_when_the_copy_it_points_to_is_stored() -> None:
    """Steps 0 and 1 print the same, step 1 is ReFold's stub; once step 0 is evicted the stub no longer claims it shown.

    Eight steps of 10 + 200 tokens, the last two different: step 0 goes first.
    """
    body = "a line of the same output\n" * 32
    turns = [sized_turn(label, body=body, command="make") for label in range(2)]
    turns += [sized_turn(label, 10, command=f"echo {label}") for label in range(2, 7)]
    renderer = begun(Recall(inner=Refold()), BUDGET)
    history, _ = counted(turns, renderer)
    before = renderer.render(history)
    assert text_of(before, 2).startswith("[step 1]\n[context-manager] output omitted: identical to step 0. `restore 1`")
    history.extend([Memo("renderer", "evict", 7, {"turns": [1]})])
    after = renderer.render(history)
    assert text_of(after, 1).startswith("[context-manager] output of step 0 is stored: `make`, ")
    assert text_of(after, 2) == text_of(before, 2).replace("step 0.", "step 0, which is stored.")
    assert "step 0, which is stored." in text_of(after, 2)
    assert renderer.render(history) == after
    assert renderer.render(history).segments[4] is after.segments[4]


@given(turns=random_turns(max_turns=24), budget=st.integers(300, 3000), is_folding=st.booleans())
@settings(max_examples=40, deadline=None)
def test_pure_valid_and_newest_shown(turns: list[Turn], budget: int, is_folding: bool) -> None:
    """Fresh equals cached, chats stay valid, the newest output stays, an eviction only ever shortens the prompt."""

    def make() -> Recall:
        return begun(Recall(min_chars=100, inner=Refold() if is_folding else None), budget)

    history, prompts = counted(turns, make())
    assert make().render(history) == prompts[-1]
    for prompt in prompts:
        check_chat(prompt)
    if turns:
        assert turns[-1].observations[0].shown in text_of(prompts[-1], len(turns))
    check_estimates(history, prompts)


def check_estimates(history: History, prompts: list[Rendered]) -> None:
    """What a memo says is left is the next prompt's length, up to rounding and the words it adds to stubs.

    A stub whose copy was evicted says ", which is stored": 17 characters, at most 5 tokens of this counter, each.
    """
    for memo in history.all_memos:
        if memo.kind == "evict":
            prompt = prompts[memo.after_turn]
            assert abs(memo.data["left_tokens"] - prompt_tokens(prompt)) <= 2 + 5 * prompt.num_stubs
            assert memo.data["left_tokens"] < memo.data["estimate_tokens"]


@pytest.mark.parametrize(
    "options",
    [
        {"trigger_share": 0.0},
        {"target_share": 1.5},
        {"keep_recent": 0},
        {"shrink_share": 0.5},
        {"trigger_share": 0.5},
    ],
)
def test_impossible_settings_are_refused(options: dict[str, float]) -> None:
    """A user's mistake is one line that names the value."""
    with pytest.raises(ConfigurationError, match=next(iter(options))):
        Recall(**options)

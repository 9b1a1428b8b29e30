"""Renderers over renderers: nothing points where nothing is shown, and every command still reaches who answers it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

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
from tests.unit.workers.renderers.histories import (
    FakeCounter,
    command_turn,
    history_of,
    random_turns,
    recorded_runs,
    recorded_turns,
    text_of,
)
from tests.unit.workers.renderers.test_refold_properties import TARGET, check_targets
from workers.history import Action, Form, History, Memo, Rendered, Turn
from workers.renderers.base import Base
from workers.renderers.compact import Compact
from workers.renderers.composing import estimate_next, hidden_by_others, with_memos
from workers.renderers.mask import Mask
from workers.renderers.memory import Memory
from workers.renderers.prune import Prune
from workers.renderers.recall import Recall
from workers.renderers.refold import Refold

STACKS: dict[str, Callable[[], Any]] = {
    "compact+refold": lambda: Compact(min_cap_tokens=100, inner=Refold()),
    "recall+refold": lambda: Recall(min_chars=100, inner=Refold()),
    "memory+refold": lambda: Memory(inner=Refold()),
    "compact+mask": lambda: Compact(min_cap_tokens=100, inner=Mask(keep_recent=4)),
    "compact+prune": lambda: Compact(min_cap_tokens=100, inner=Prune()),
    "memory+compact+refold": lambda: Memory(inner=Compact(min_cap_tokens=100, inner=Refold())),
    "compact+recall+refold": lambda: Compact(
        min_cap_tokens=100, inner=Recall(min_chars=100, trigger_share=0.5, target_share=0.4, inner=Refold())
    ),
    "recall+compact": lambda: Recall(min_chars=100, inner=Compact(min_cap_tokens=100)),
}


def summarized(rendered: Rendered) -> int:
    """The newest turn under a summary, 0 without one."""
    return max((segment.last_turn for segment in rendered.segments if segment.form is Form.summary), default=0)


@pytest.mark.parametrize("stack", STACKS)
@given(turns=random_turns(max_turns=24), budget=st.integers(500, 3000))
@settings(max_examples=15, deadline=None)
def test_every_stack_is_pure_and_valid(stack: str, turns: list[Turn], budget: int) -> None:
    """Fresh equals cached at the end, chats valid at every step, the newest output shown (prune cuts it first)."""
    history, prompts = counted(turns, begun(STACKS[stack](), budget), Auxiliary("s" * 200))
    assert begun(STACKS[stack](), budget).render(history) == prompts[-1]
    for prompt in prompts:
        check_chat(prompt)
    if turns and "prune" not in stack:
        assert turns[-1].observations[0].shown in "\n".join(message.content for message in prompts[-1].messages[-2:])


@given(turns=random_turns(max_turns=30), budget=st.integers(400, 2000))
@settings(max_examples=30, deadline=None)
def test_no_stub_points_at_a_summarized_turn(turns: list[Turn], budget: int) -> None:
    """At every step of compact over refold each stub's target is visible and not before the newest summary's end."""
    renderer = begun(Compact(min_cap_tokens=60, inner=Refold()), budget)
    history = history_of()
    prompts = [renderer.render(history)]

    async def follow() -> None:
        for turn in turns:
            history.append(turn)
            history.extend(await renderer.observe(history, prompts[-1], Auxiliary("s" * 100)))
            prompts.append(renderer.render(history))
            check_targets(history, prompts[-1], summarized(prompts[-1]) + 1)

    asyncio.run(follow())


def dangling(rendered: Rendered, last: int) -> tuple[int, int]:
    """Stubs behind turn `last`, and those of them that point at a turn up to it."""
    num_stubs = num_dangling = 0
    for segment in rendered.segments:
        if segment.form is Form.stub and segment.first_turn > last:
            targets = TARGET.findall(text_of(rendered, segment.first_turn))
            num_stubs += 1
            num_dangling += any(int(label) + 1 <= last for label in targets)
    return num_stubs, num_dangling


@pytest.mark.parametrize("fold", [True, False])
def test_recorded_runs_compact_over_refold(fold: bool) -> None:
    """Over all recorded runs at 16 k no stub points at a summarized turn, at any step; most would without visible_from.

    Fold notes begin behind the summaries, prompts stay inside the budget, and `restore` still reaches summarized steps
    word for word.
    """
    runs = recorded_runs()
    if not runs:
        pytest.skip("recorded runs are not here (../shared/trajectories)")
    found: list[tuple[int, int]] = []
    unaware: list[tuple[int, int]] = []  # what a ReFold that knows nothing of the summaries would show
    for run in runs:
        turns = recorded_turns(run, lambda label: (label - 1,) if label * 7 % 10 < 5 else ())
        renderer = begun(Compact(inner=Refold(fold=fold)), 16_384)
        history, prompts = counted(turns, renderer, Auxiliary("s" * 4000))
        assert max(map(prompt_tokens, prompts)) <= 16_384
        for prompt in prompts:
            if last := summarized(prompt):
                found.append(dangling(prompt, last))
                assert all(part.first_turn > last for part in prompt.segments[1:] if part.form is not Form.summary)
        if last := summarized(prompts[-1]):
            check_targets(history, prompts[-1], last + 1)
            unaware.append(dangling(begun(Refold(fold=fold), 16_384).render(history), last))
            answer = renderer.intercept(history, Action("restore 0"))
            assert answer is not None
            assert answer.body == turns[0].observations[0].body
    assert sum(stubs for stubs, _ in found) > 400
    assert sum(bad for _, bad in found) == 0
    assert sum(bad for _, bad in unaware) > 20


@pytest.mark.parametrize("stack", ["recall+refold", "memory+refold", "memory+compact+refold", "compact+recall+refold"])
def test_recorded_runs_other_stacks(stack: str) -> None:
    """The other stacks over recorded runs: fresh equals cached, chats are valid."""
    runs = recorded_runs()
    if not runs:
        pytest.skip("recorded runs are not here (../shared/trajectories)")
    for run in runs[::12]:
        turns = recorded_turns(run, lambda label: (label - 1,) if label * 7 % 10 < 5 else ())
        history, prompts = counted(turns, begun(STACKS[stack](), 16_384), Auxiliary("s" * 4000))
        assert begun(STACKS[stack](), 16_384).render(history) == prompts[-1]
        for prompt in prompts[::5]:
            check_chat(prompt)


def test_memos_carry_the_path_of_their_owner() -> None:
    """The outermost is `renderer`, the next `renderer.inner`; each reads its own memos only."""
    stack = begun(Memory(inner=Compact(min_cap_tokens=10, inner=Recall(min_chars=100, trigger_share=0.7))), 1000)
    turns = [sized_turn(label, 100 if label % 4 else 20) for label in range(40)]
    history, _ = counted(turns, stack, Auxiliary("s"))
    owners = {(memo.owner, memo.kind) for memo in history.all_memos}
    assert owners == {("renderer.inner", "summary"), ("renderer.inner.inner", "evict")}


def test_exemption_is_judged_on_the_outermost_render() -> None:
    """A command that repeats a summarized one is exempt in the inner ReFold, which only `seen` can tell it."""
    renderer = begun(Compact(inner=Refold()), 100_000)
    body = "\n".join(f"a line of text number {number}" for number in range(20))
    history = history_of(*(command_turn(label, f"cat f{label}", f"{label} {body}") for label in range(8)))
    history.extend((Memo("renderer", "summary", 8, {"first_turn": 1, "last_turn": 4, "text": "done"}),))
    seen = renderer.render(history)
    history.append(command_turn(8, "cat f1", f"1 {body}"))
    memos = asyncio.run(renderer.observe(history, seen, Auxiliary("s")))
    assert [(memo.owner, memo.kind, memo.data["turn"]) for memo in memos] == [("renderer.inner", "exempt", 9)]


def test_an_inner_recall_leaves_summarized_turns_out_of_its_estimate() -> None:
    """Beneath a summary of turns 1-6 the inner recall counts what is visible: 400 + 110 of 1,000 evict nothing."""
    renderer = begun(Compact(inner=Recall(min_chars=100)), 1000)
    history = history_of(*(sized_turn(label, 100, prompt_tokens=400) for label in range(9)))
    history.extend((Memo("renderer", "summary", 8, {"first_turn": 1, "last_turn": 6, "text": "s" * 400}),))
    seen = renderer.render(history)
    history.append(sized_turn(9, 100, prompt_tokens=400))
    assert asyncio.run(renderer.observe(history, seen, Auxiliary("s"))) == ()


def test_the_estimate_is_the_last_prompt_and_what_was_added() -> None:
    """Usage of the last call plus reply and output; without usage the counter's own sum; a memory block stays in."""
    renderer = begun(Base(), 1000)
    history = history_of(sized_turn(0, 100, prompt_tokens=77))
    seen = renderer.render(history)
    history.append(sized_turn(1, 200, reply_tokens=20, prompt_tokens=500))
    estimate = estimate_next(history, seen, renderer.render(history), FakeCounter())
    assert (estimate.tokens, estimate.last_prompt_tokens) == (720, 500)
    fresh = history_of(sized_turn(0, 100))
    length = sum(FakeCounter().count(message) for message in renderer.render(fresh).messages)
    assert estimate_next(fresh, seen, renderer.render(fresh), FakeCounter()) == (length, None)


def test_the_estimate_follows_a_render_that_shrinks() -> None:
    """When ReFold's boundary advances, what it removes is taken off: the estimate is the next prompt's length."""
    turns = [command_turn(label, f"cat f{label}", "z" * 400, stale=(label - 1,), asked=True) for label in range(9)]
    renderer = begun(Refold(), 1000)
    for number in range(2, 10):
        before = renderer.render(history_of(*turns[: number - 1]))
        known = prompt_tokens(before)
        history: History = history_of(*turns[: number - 1])
        history.append(sized_turn(number - 1, 100, prompt_tokens=known))
        after = renderer.render(history)
        assert estimate_next(history, before, after, FakeCounter()).tokens == prompt_tokens(after)


def test_hidden_turns_are_those_an_outer_renderer_summarized() -> None:
    """A summary in `seen` that the own render does not have is another renderer's."""
    compact = begun(Compact(), 1000)
    history = history_of(*map(sized_turn, range(8)))
    history.extend((Memo("renderer", "summary", 8, {"first_turn": 1, "last_turn": 4, "text": "t"}),))
    seen = compact.render(history)
    assert hidden_by_others(seen, begun(Base(), 1000).render(history)) == 4
    assert hidden_by_others(seen, seen) == 0


def test_memos_are_looked_at_without_touching_the_history() -> None:
    """`with_memos` is the same object when there is nothing to add, and a copy otherwise."""
    history = history_of(sized_turn(0))
    assert with_memos(history, ()) is history
    copy = with_memos(history, (Memo("renderer", "x", 1, {}),))
    assert (len(copy.all_memos), len(history.all_memos), copy.turns) == (1, 0, history.turns)


def test_the_seam_is_handed_down() -> None:
    """Signals, reversibility and reply reading are the inner renderer's, whatever lies above it."""
    for outer in (Compact(inner=Refold(k=4)), Memory(inner=Compact(inner=Refold(k=4)))):
        assert outer.signals == Refold(k=4).signals
        assert outer.is_reversible
        reply = command_turn(0).assistant
        assert outer.read_reply(reply) == Refold(k=4).read_reply(reply)
    assert not Compact().is_reversible
    assert not Memory().is_reversible
    assert Recall().is_reversible


def test_compact_over_base_with_a_declared_summary_keeps_every_prompt_inside_the_budget() -> None:
    """Appendix B.1: only compact keeps every task within the budget; here over recorded runs at 16 k."""
    runs = recorded_runs()
    if not runs:
        pytest.skip("recorded runs are not here (../shared/trajectories)")
    for run in runs[::6]:
        _, prompts = session(begun(Compact(), 16_384), recorded_turns(run), Auxiliary("s" * 4000))
        assert max(map(prompt_tokens, prompts)) <= 16_384

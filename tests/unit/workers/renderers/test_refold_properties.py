"""ReFold's invariants over random histories (methods 1A.2, 1A.5): append-only chunks, no dangling stub, Eq. 4-7."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.workers.renderers.histories import (
    history_of,
    random_turns,
    recorded_runs,
    recorded_turns,
    run_through,
    started,
    text_of,
)
from workers.history import Form, History, Part, Rendered, Turn
from workers.renderers.refold import Refold

SETTINGS = st.fixed_dictionaries(
    {
        "k": st.integers(1, 5),
        "dedup": st.sampled_from([True, True, False]),
        "exempt_on": st.sampled_from(["folded", "folded_or_stubbed"]),
        "pin_restored": st.booleans(),
        "reversible": st.sampled_from([True, True, False]),
        "note_role": st.sampled_from(["user", "tool_append", "merge_previous"]),
    }
)
TARGET = re.compile(r"identical to step (\d+)\.")
NUMBER = re.compile(r"^[ \t]*\d+[\t:]")


def check_growth(prompts: list[Rendered]) -> None:
    """While b_t stands still, c_t starts with every message of c_{t-1} and is longer."""
    for before, after in zip(prompts, prompts[1:], strict=False):
        if before.boundary == after.boundary:
            assert after.messages[: len(before.messages)] == before.messages
            assert len(after.messages) > len(before.messages)


@given(turns=random_turns(), options=SETTINGS)
@settings(max_examples=60, deadline=None)
def test_prompts_only_grow_between_advances(turns: list[Turn], options: dict[str, object]) -> None:
    """The append-only property of section 3.3, whatever the settings."""
    _, prompts = run_through(started(Refold(**options)), turns)
    check_growth(prompts)


@given(turns=random_turns(), options=SETTINGS, visible_from=st.integers(1, 12))
@settings(max_examples=60, deadline=None)
def test_no_stub_dangles(turns: list[Turn], options: dict[str, object], visible_from: int) -> None:
    """What a stub omits stands in the same render, in an earlier turn not before visible_from."""
    options["reversible"] = True
    history = history_of(*turns)
    check_targets(history, started(Refold(**options)).render(history, visible_from=visible_from), visible_from)


def test_recorded_runs_grow_and_have_no_dangling_stub() -> None:
    """The same two invariants on real outputs, about 60 % of the turns named one step later."""
    runs = recorded_runs()
    if not runs:
        pytest.skip("recorded runs are not here (../shared/trajectories)")
    num_stubs = 0
    for run in runs[::5]:
        turns = recorded_turns(run, lambda label: (label - 1,) if label * 7 % 10 < 6 else ())
        for options in ({}, {"fold": False}):
            history, prompts = run_through(started(Refold(**options)), turns)
            check_growth(prompts)
            check_targets(history, prompts[-1], 1)
            num_stubs += prompts[-1].num_stubs
    assert num_stubs > 50


def check_targets(history: History, rendered: Rendered, visible_from: int) -> None:
    """Every omitted line stands in a target of its stub."""
    shown = {segment.first_turn for segment in rendered.segments if segment.part is Part.observation}
    for segment in rendered.segments:
        if segment.form is not Form.stub:
            continue
        index = segment.first_turn
        text = text_of(rendered, index)
        targets = {int(label) + 1 for label in TARGET.findall(text)}
        assert targets
        assert all(visible_from <= target < index and target in shown for target in targets)
        copies = {plain(line) for target in targets for line in text_of(rendered, target).split("\n")}
        kept = set(text.split("\n"))
        original = history.turn(index).observations[0].body.split("\n")
        assert all(plain(line) in copies for line in original if line not in kept)


def plain(line: str) -> str:
    """A line without its number."""
    return NUMBER.sub("", line)


@given(turns=random_turns(), options=SETTINGS)
@settings(max_examples=60, deadline=None)
def test_a_stub_is_shorter_than_the_output_it_stands_for(turns: list[Turn], options: dict[str, object]) -> None:
    """Every observation with a stub is shorter than in full, so deduplication never makes a prompt longer."""
    history = history_of(*turns)
    rendered = started(Refold(**(options | {"note_role": "user"}))).render(history)
    for segment in rendered.segments:
        if segment.form is Form.stub:
            full = sum(len(observation.shown) for observation in history.turn(segment.first_turn).observations)
            label = f"[step {segment.first_turn - 1}]\n"
            assert sum(len(message.content) - len(label) for message in segment.messages) < full


def folded_by_hand(turns: list[Turn], k: int) -> list[set[int]]:
    """The folded turns of c_0..c_n by Eq. 4 and 6 read literally, without exemptions."""
    result = []
    for t in range(len(turns) + 1):
        named = {
            label + 1
            for turn in turns[:t]
            for label in turn.signals.stale
            if turn.index - k <= label + 1 <= turn.index - 1
        }
        boundary = max(0, k * ((t - k) // k))
        result.append({index for index in named if index <= boundary})
    return result


@given(turns=random_turns(), k=st.integers(1, 5))
@settings(max_examples=60, deadline=None)
def test_folded_turns_are_those_of_the_equations(turns: list[Turn], k: int) -> None:
    """Without exemptions the folded set of every prompt is that of Eq. 4 and 6 computed afresh (1A.15 row 1)."""
    _, prompts = run_through(started(Refold(k=k, reversible=False)), turns)
    assert [folded(prompt) for prompt in prompts] == folded_by_hand(turns, k)


def folded(rendered: Rendered) -> set[int]:
    """Turns inside fold notes."""
    return {
        index
        for segment in rendered.segments
        if segment.form is Form.folded
        for index in range(segment.first_turn, segment.last_turn + 1)
    }


@given(turns=random_turns(), options=SETTINGS, visible_from=st.integers(1, 12))
@settings(max_examples=60, deadline=None)
def test_a_fresh_renderer_equals_one_that_followed(
    turns: list[Turn], options: dict[str, object], visible_from: int
) -> None:
    """Caches decide nothing: also when visible_from moves while the session runs."""
    follower = started(Refold(**options))
    history, prompts = run_through(follower, turns)
    assert started(Refold(**options)).render(history) == prompts[-1]
    again = follower.render(history, visible_from=visible_from)
    assert started(Refold(**options)).render(history, visible_from=visible_from) == again
    assert follower.render(history) == prompts[-1]


@given(turns=random_turns(max_turns=20))
@settings(max_examples=30, deadline=None)
def test_every_turn_is_shown_once(turns: list[Turn]) -> None:
    """Each turn is in full, a stub or inside exactly one note, in order."""
    history: History = history_of(*turns)
    rendered = started(Refold()).render(history)
    covered = [
        index
        for segment in rendered.segments[1:]
        if segment.part is not Part.agent
        for index in range(segment.first_turn, segment.last_turn + 1)
    ]
    assert covered == list(range(1, len(turns) + 1))

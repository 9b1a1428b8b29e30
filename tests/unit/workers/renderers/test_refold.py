"""ReFold as a whole: the boundary, the worked example of appendix C.3, reminders, exemptions, ablations."""

import asyncio
from dataclasses import replace

import pytest

from serving.calls import Message
from tests.unit.workers.renderers.histories import (
    command_turn,
    history_of,
    no_aux,
    output,
    run_through,
    started,
    text_of,
)
from workers.errors import ConfigurationError
from workers.history import Action, Form, Part, Rendered, Segment, Turn, TurnKind
from workers.renderers.refold import Refold


@pytest.mark.parametrize(
    ("k", "expected"),
    [
        (3, {1: 0, 5: 0, 6: 3, 8: 3, 9: 6, 11: 6, 12: 9, 14: 9, 15: 12, 17: 12, 18: 15, 20: 15}),
        (5, {1: 0, 9: 0, 10: 5, 14: 5, 15: 10, 19: 10}),
        (1, {0: 0, 1: 0, 2: 1, 7: 6}),
    ],
)
def test_boundary_table(k: int, expected: dict[int, int]) -> None:
    """b_t of Eq. 6 by completed turns t (methods 1A.2, worked by hand)."""
    assert {t: Refold(k=k).boundary(t) for t in expected} == expected


def test_unchunked_boundary_slides() -> None:
    """Chunking off: b_t = max(0, t - k), at every step (methods 1A.9)."""
    assert [Refold(chunked=False).boundary(t) for t in (0, 3, 4, 5, 10)] == [0, 0, 1, 2, 7]


@pytest.mark.parametrize("k", [1, 2, 3, 5, 8])
def test_between_k_and_2k_minus_1_turns_are_protected(k: int) -> None:
    """After warm-up between k and 2k-1 turns render in full (methods 1A.2)."""
    protected = {t - Refold(k=k).boundary(t) for t in range(2 * k, 100)}
    assert protected == set(range(k, 2 * k))


TRACEBACK = "\n".join([f"frame {line:2} of the traceback, {'x' * 13}" for line in range(24)] + ["AssertionError"])
READ_6 = "sed -n '189,290p' /testbed/xarray/core/variable.py"
FUNCTION = "def as_compatible_data(data, fastpath=False):\n" + "\n".join(f"    line {n} of it" for n in range(90))


def worked_example() -> list[Turn]:
    """Labels 0..20 of appendix C.3: 1-5 named in time, 7 names 4,5,6; 13 repeats 12; 16 runs the command of 6 again."""
    named = {2: (1,), 4: (2, 3), 5: (4,), 6: (5,), 7: (4, 5, 6)}
    turns = []
    for label in range(21):
        command, body, code = f"echo {label}", f"output of step {label}", 0
        if label in (6, 16):
            command, body = READ_6, FUNCTION
        if label in (12, 13):
            command, body, code = f"cat > t.py <<EOF\n{label}\nEOF\npython t.py", TRACEBACK, 1
        turns.append(
            command_turn(
                label, command, body, progress=f"P{label}", stale=named.get(label, ()), returncode=code, asked=True
            )
        )
    return turns


def folded_labels(rendered: Rendered) -> list[int]:
    """Labels inside the fold notes of a prompt."""
    return [
        turn - 1
        for segment in rendered.segments
        if segment.form is Form.folded
        for turn in range(segment.first_turn, segment.last_turn + 1)
    ]


def test_worked_example_folding() -> None:
    """Steps 1-5 are folded in the prompts of steps 9 to 11, from the prompt of step 12 on step 6 joins them."""
    _, prompts = run_through(started(Refold()), worked_example())
    assert folded_labels(prompts[8]) == [1, 2]
    assert [folded_labels(prompts[t]) for t in (9, 10, 11)] == [[1, 2, 3, 4, 5]] * 3
    assert [folded_labels(prompts[t]) for t in (12, 15, 18, 20)] == [[1, 2, 3, 4, 5, 6]] * 4
    note = next(segment for segment in prompts[12].segments if segment.part is Part.note)
    assert note.messages[0].role == "user"
    assert note.messages[0].content.split("\n")[0] == (
        "[context-manager] steps 1-6 folded: P1 · P2 · P3 · P4 · P5 · P6. `restore 1-6` shows them again."
    )
    # Neither the command nor the body of step 6 is in the prompt any more.
    everything = "\n".join(message.content for message in prompts[12].messages)
    assert READ_6 not in everything
    assert "line 50 of it" not in everything
    assert "variable.py: def as_compatible_data(data, fastpath=False):" in everything


def test_worked_example_stub() -> None:
    """Step 13 repeats step 12: in full up to the prompt of step 17, from step 18 on a 130-character stub."""
    _, prompts = run_through(started(Refold()), worked_example())
    assert TRACEBACK in text_of(prompts[17], 14)
    shown = text_of(prompts[18], 14)
    assert TRACEBACK in text_of(prompts[18], 13)
    assert shown == (
        "[step 13]\n"
        "[context-manager] output omitted: identical to step 12. `restore 13` shows it again.\n"
        "<returncode>1</returncode>\n"
        "... (25 lines) ..."
    )
    # 84 + 1 + 26 + 1 + 18 = 130, the `[step 13]` line not counted (methods 1A.5).
    assert len(shown.removeprefix("[step 13]\n")) == 130


def test_worked_example_rerun() -> None:
    """Step 16 repeats the folded step 6 and renders in full, also behind the boundary."""
    renderer = started(Refold())
    turns = worked_example() + [command_turn(label, stale=(16,), progress="late") for label in range(21, 27)]
    _, prompts = run_through(renderer, turns)
    assert FUNCTION in text_of(prompts[17], 17)
    assert prompts[26].boundary >= 17
    assert FUNCTION in text_of(prompts[26], 17)


def test_every_output_carries_its_step_number() -> None:
    """`[step N]` and a newline before every rendered output, N = turn index - 1 (appendix C.2, third place)."""
    rendered = started(Refold()).render(history_of(*(command_turn(label) for label in range(8))))
    assert [text_of(rendered, index).split("\n")[0] for index in range(1, 9)] == [f"[step {n}]" for n in range(8)]


def test_all_outputs_of_one_reply_share_its_label() -> None:
    """Two commands in one reply: both outputs carry the same `[step 0]`, and folding removes both (methods 1A.1)."""
    first = Turn(
        1,
        Message("assistant", "two"),
        (Action("a", "id-1"), Action("b", "id-2")),
        (output("one", tool_call_id="id-1"), output("two", tool_call_id="id-2")),
    )
    turns = [first, *(command_turn(label, stale=(0,) if label == 1 else ()) for label in range(1, 6))]
    _, prompts = run_through(started(Refold()), turns)
    assert [m.content.split("\n")[0] for m in prompts[1].messages[-2:]] == ["[step 0]", "[step 0]"]
    assert folded_labels(prompts[6]) == [0]
    assert not any(message.tool_call_id == "id-1" for message in prompts[6].messages)


def missed(label: int, progress: str | None = None, *, may_remind: bool = True, asked: bool = True) -> Turn:
    """A turn whose reply lacks the PROGRESS line unless `progress` is given."""
    return command_turn(label, f"echo {label}", progress=progress, asked=asked, may_remind=may_remind)


def test_reminders() -> None:
    """Soft, then firm with the count; a good reply starts over; the text stays while the turn is protected."""
    turns = [missed(0), missed(1), missed(2, "fine"), missed(3), *(missed(label, "ok") for label in range(4, 9))]
    history, prompts = run_through(started(Refold()), turns)
    assert text_of(prompts[1], 1).endswith("STALE: <step numbers you are done with, or `-`>")
    assert "FORMAT VIOLATION (2 in a row)" in text_of(prompts[2], 2)
    assert "[context-manager]" not in text_of(prompts[3], 3)
    assert "did not start with" in text_of(prompts[4], 4)
    assert "did not start with" in text_of(prompts[5], 1)  # b_5 = 0: still there
    assert "[context-manager]" not in text_of(prompts[6], 1)  # b_6 = 3: gone
    assert "did not start with" in text_of(prompts[8], 4)
    assert "[context-manager]" not in text_of(prompts[9], 4)


@pytest.mark.parametrize(
    ("turn", "renderer"),
    [
        (missed(0, may_remind=False), Refold()),
        (missed(0, asked=False), Refold()),
        (missed(0), Refold(reminders=False)),
    ],
)
def test_no_reminder_for_pinned_replies_or_without_a_request(turn: Turn, renderer: Refold) -> None:
    """Replayed replies are never reminded, nor replies that were not asked, nor with reminders off."""
    _, prompts = run_through(started(renderer), [turn])
    assert "context-manager" not in text_of(prompts[1], 1)


LONG = "\n".join(f"result line {n} with some text in it" for n in range(12))


def repeated_tests(num: int, command: str = "pytest -q") -> list[Turn]:
    """The same command with the same long output, `num` times."""
    return [command_turn(label, command, LONG, progress="run") for label in range(num)]


def test_exempt_on_folded_leaves_repeated_commands_to_deduplication() -> None:
    """Default rule: nothing folded, so all but the first of the compressible runs are stubs (methods 1A.8)."""
    _, prompts = run_through(started(Refold()), repeated_tests(15))
    assert (prompts[15].boundary, prompts[15].num_stubs, prompts[15].num_exempt) == (12, 11, 0)


def test_exempt_on_folded_or_stubbed_is_the_literal_rule() -> None:
    """Literal rule: a run that repeats a run the agent saw stubbed is exempt.

    By hand: runs 2 and 3 are stubs from t=6 on (b=3), so run 7, which answers c_6, is the first exempt one; runs 4 to 6
    became stubs too. Of 12 compressible runs: 1 in full, 2-6 stubs, 7-12 exempt.
    """
    _, prompts = run_through(started(Refold(exempt_on="folded_or_stubbed")), repeated_tests(15))
    assert (prompts[15].boundary, prompts[15].num_stubs, prompts[15].num_exempt) == (12, 5, 6)


@pytest.mark.parametrize(("exempt_on", "num_stubs"), [("folded", 11), ("folded_or_stubbed", 2)])
def test_fourteen_identical_test_runs_in_forty_steps(exempt_on: str, num_stubs: int) -> None:
    """The measured case of methods 1A.8: of 12 compressible runs 11 are stubs, 2 under the literal rule."""
    turns = [
        command_turn(label, "pytest -q", LONG) if label % 3 == 0 else command_turn(label, f"echo {label}")
        for label in range(40)
    ]
    _, prompts = run_through(started(Refold(exempt_on=exempt_on)), turns)
    assert (prompts[40].boundary, prompts[40].num_stubs) == (36, num_stubs)


def test_equal_output_of_200_characters_exempts_short_ones_do_not() -> None:
    """Another command whose output equals a folded one is exempt from 200 characters on (methods 1A.8)."""
    for body, is_exempt in ((LONG, True), ("short", False)):
        turns = [command_turn(0, "first", body), command_turn(1, stale=(0,))]
        turns += [command_turn(label) for label in range(2, 6)]
        turns += [command_turn(6, "other", body), *(command_turn(label, stale=(6,)) for label in range(7, 12))]
        _, prompts = run_through(started(Refold()), turns)
        assert (6 in folded_labels(prompts[12])) is not is_exempt


def test_a_repeat_inside_the_protected_window_is_not_exempt() -> None:
    """The exemption looks at the render the agent saw: at step 2 nothing was folded yet."""
    turns = [command_turn(0, "cat a", LONG), command_turn(1, stale=(0,)), command_turn(2, "cat a", LONG)]
    turns += [command_turn(label, stale=(2,)) for label in range(3, 9)]
    _, prompts = run_through(started(Refold()), turns)
    assert 2 in folded_labels(prompts[9])


@pytest.mark.parametrize("pin_restored", [True, False])
@pytest.mark.parametrize("kind", [TurnKind.restore, TurnKind.recall])
def test_restored_output_is_never_deduplicated_and_folds_only_unpinned(kind: TurnKind, pin_restored: bool) -> None:
    """A restored (or recalled) turn repeats compressed text by construction (methods 1A.8)."""
    turns = [command_turn(0, "cat a", LONG), *(command_turn(label) for label in range(1, 6))]
    turns.append(command_turn(6, f"{kind.value} 0", LONG, kind=kind))
    turns += [command_turn(label) for label in range(7, 12)]
    _, prompts = run_through(started(Refold(pin_restored=pin_restored)), turns)
    assert LONG in text_of(prompts[12], 7)
    turns[7] = command_turn(7, stale=(6,))
    _, prompts = run_through(started(Refold(pin_restored=pin_restored)), turns)
    assert (6 in folded_labels(prompts[12])) is not pin_restored


def test_not_reversible() -> None:
    """Ablation: no restore, no hint, no exemption, and a stub may point to a folded turn (methods 1A.8)."""
    renderer = started(Refold(reversible=False))
    turns = [command_turn(0, "cat a", LONG), command_turn(1, stale=(0,)), *(command_turn(n) for n in range(2, 6))]
    turns += [command_turn(6, "cat a", LONG), *(command_turn(n) for n in range(7, 12))]
    history, prompts = run_through(renderer, turns)
    assert folded_labels(prompts[12]) == [0]
    assert "identical to step 0." in text_of(prompts[12], 7)
    assert "restore" not in "\n".join(message.content for message in prompts[12].messages[2:])
    assert renderer.intercept(history, Action("restore 0")) is None
    assert renderer.is_reversible is False


def test_restore_is_answered_by_the_renderer() -> None:
    """`restore 0` returns the output as first shown; other commands go to the environment."""
    renderer = started(Refold())
    history = history_of(command_turn(0, "cat a", LONG))
    shown = renderer.intercept(history, Action("restore 0", "id"))
    assert shown is not None
    assert shown.body == LONG
    assert renderer.intercept(history, Action("cat a")) is None


def test_both_operators_off_is_base() -> None:
    """With both off the prompt is the harness's own (Table 11): no labels, no signals, no layer."""
    renderer = started(Refold(dedup=False, fold=False))
    history = history_of(*(command_turn(label, "cat a", LONG, stale=(0,)) for label in range(12)))
    assert "[step" not in "".join(message.content for message in renderer.render(history).messages)
    assert renderer.signals is None
    assert started(Refold(fold=False)).signals is None
    assert started(Refold()).signals.window == 3


@pytest.mark.parametrize("note_role", ["user", "tool_append", "merge_previous"])
def test_note_roles(note_role: str) -> None:
    """The note is a user message, or part of the output before it; merge_previous never makes two user messages."""
    turns = [command_turn(label, stale={2: (1,), 3: (2,)}.get(label, ()), progress=f"P{label}") for label in range(9)]
    _, prompts = run_through(started(Refold(note_role=note_role)), turns)
    messages = prompts[9].messages
    note = next(message for message in messages if "steps 1-2 folded" in message.content)
    assert note.content.startswith("[context-manager]") is (note_role == "user")
    assert note.content.startswith("[step 0]") is (note_role != "user")
    roles = [message.role for message in messages[1:]]
    assert all(a != b for a, b in zip(roles, roles[1:], strict=False)) is (note_role != "user")


def test_a_note_behind_the_opening() -> None:
    """tool_append keeps a user message when there is no output to append to; merge_previous uses the task message."""
    turns = [command_turn(label, stale=(0,) if label == 1 else (), progress=f"P{label}") for label in range(6)]
    for role, num_messages in (("tool_append", 13), ("merge_previous", 12)):
        _, prompts = run_through(started(Refold(note_role=role)), turns)
        assert len(prompts[6].messages) == num_messages
        note = next(message for message in prompts[6].messages if "step 0 folded" in message.content)
        assert (note.content == "Fix the bug.") is False
        assert note.content.startswith("Fix the bug.") is (role == "merge_previous")


def test_visible_from_hides_earlier_turns_from_notes_and_stubs() -> None:
    """No fold group begins before visible_from, and no stub points there."""
    turns = [command_turn(label, "pytest", LONG, stale=(label - 1,) if 2 <= label <= 4 else ()) for label in range(15)]
    renderer = started(Refold())
    history = history_of(*turns)
    assert "identical to step 0" in text_of(renderer.render(history), 6)
    rendered = renderer.render(history, visible_from=3)
    assert folded_labels(rendered) == [2, 3]
    assert min(segment.first_turn for segment in rendered.segments[1:]) == 3
    assert LONG in text_of(rendered, 5)
    assert "identical to step 4" in text_of(rendered, 6)


def test_wrong_settings_are_one_line() -> None:
    """A user's mistake names the field and the value, and what exists."""
    with pytest.raises(ConfigurationError, match="k=0"):
        Refold(k=0)
    with pytest.raises(ConfigurationError, match="note_role=tool; give one of user, tool_append, merge_previous"):
        Refold(note_role="tool")


def test_repeating_what_an_outer_summary_covers_is_exempt_by_memo() -> None:
    """Only the outermost render tells that turn 1 was summarized; turn 8 is exempt by memo (architecture 3)."""
    renderer = started(Refold())
    history = history_of(command_turn(0, "cat a", LONG), *(command_turn(n, f"echo {n}") for n in range(1, 7)))
    inner = renderer.render(history, visible_from=3)
    summary = Segment((Message("user", "what happened"),), 1, 2, Form.summary, Part.note)
    seen = replace(inner, segments=(inner.segments[0], summary, *inner.segments[1:]))
    history.append(command_turn(7, "cat a", LONG))
    memos = asyncio.run(renderer.observe(history, seen, no_aux))
    assert [(memo.owner, memo.kind, memo.after_turn, dict(memo.data)) for memo in memos] == [
        ("renderer", "exempt", 8, {"turn": 8})
    ]
    history.extend(memos)
    for label in range(8, 14):
        history.append(command_turn(label, f"echo {label}", stale=(7,)))
    assert 7 not in folded_labels(renderer.render(history, visible_from=3))
    assert renderer.render(history, visible_from=3) == started(Refold()).render(history, visible_from=3)


def test_repeating_a_visible_turn_writes_no_memo() -> None:
    """Without a summary over the repeated turn there is nothing turns do not tell."""
    _, prompts = run_through(started(Refold()), [command_turn(n, "cat a", LONG) for n in range(9)])
    history, _ = run_through(started(Refold()), [command_turn(n, "cat a", LONG) for n in range(9)])
    assert history.all_memos == ()
    assert prompts[9].num_exempt == 0


def test_a_renderer_starts_again_for_another_history() -> None:
    """Its caches follow one history; another one is rendered from its own turns."""
    renderer = started(Refold())
    renderer.render(history_of(*(command_turn(n, "cat a", LONG, stale=(n - 1,)) for n in range(12))))
    other = history_of(*(command_turn(n, f"echo {n}", f"output {n}") for n in range(12)))
    assert renderer.render(other) == started(Refold()).render(other)


def test_a_note_is_never_merged_into_the_opening_behind_an_outer_summary() -> None:
    """With visible_from > 1 the outer renderer's text comes between opening and note, so the note stands alone."""
    turns = [command_turn(n, stale=(2,) if n == 3 else (), progress=f"P{n}") for n in range(9)]
    rendered = started(Refold(note_role="merge_previous")).render(history_of(*turns), visible_from=3)
    assert rendered.segments[0].messages[-1].content == "Fix the bug."
    assert folded_labels(rendered) == [2]

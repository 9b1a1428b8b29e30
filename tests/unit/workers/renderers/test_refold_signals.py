"""The two lines of a reply, `restore`, and reminders."""

import pytest

from tests.unit.workers.renderers.histories import command_turn, history_of, output
from workers.history import NO_SIGNALS, Action, History, Turn, TurnKind
from workers.renderers.refold_signals import accepted, parse_labels, parse_signals, reminder, restored


@pytest.mark.parametrize(
    ("line", "labels"),
    [
        ("3,4", (3, 4)),
        ("3-5", (3, 4, 5)),
        ("[3, 4]", (3, 4)),
        ("step 3", (3,)),
        ("steps 3 and 4", (3, 4)),
        ("steps 3-5, 7", (3, 4, 5, 7)),
        ("3 to 5", (3, 4, 5)),
        ("`3`, `4`", (3, 4)),
        ("-", ()),
        ("`-`", ()),
        ("none", ()),
        ("", ()),
        ("3 (the read of lines 45-60)", (3,)),
        ("5-3", (5, 3)),
        ("9" * 30, ()),
    ],
)
def test_stale_variants(line: str, labels: tuple[int, ...]) -> None:
    """The forms of methods 1A.3, ranges expanded; a comment behind the numbers is not read."""
    assert parse_labels(line) == labels


@pytest.mark.parametrize(
    "reply",
    [
        "PROGRESS: reading a.py\nSTALE: 3,4\nI will",
        "progress: reading a.py\nstale: 3,4",
        "**PROGRESS:** reading a.py\n**STALE:** 3,4",
        "**PROGRESS**: reading a.py\n**STALE**: 3,4",
        "- PROGRESS: `reading a.py`\n- STALE: 3,4",
        "Some words first.\nPROGRESS: reading a.py\nSTALE: 3,4\nPROGRESS: another\nSTALE: 9",
    ],
)
def test_lines_are_found_in_every_usual_dress(reply: str) -> None:
    """Case, markdown and bullets do not matter, and the first of several lines wins (methods 1A.3)."""
    signals = parse_signals(reply, asked=True)
    assert (signals.progress, signals.stale, signals.asked) == ("reading a.py", (3, 4), True)


def test_lines_count_only_at_the_start_of_a_line() -> None:
    """A word inside a sentence or a command is no signal."""
    signals = parse_signals('I made progress: yes\necho "STALE: 3"', asked=True)
    assert (signals.progress, signals.stale) == (None, ())


def test_progress_is_one_line_of_at_most_200_characters() -> None:
    """Long texts are cut; an empty one counts as missing."""
    assert parse_signals("PROGRESS: " + "x" * 500, asked=True).progress == "x" * 200
    assert parse_signals("PROGRESS:\nSTALE: 1", asked=True).progress is None


def test_a_reply_that_was_not_asked_has_no_signals() -> None:
    """Without a request nothing is missed."""
    assert parse_signals("hello", asked=False) == NO_SIGNALS


def test_only_the_last_k_steps_can_be_named() -> None:
    """Eq. 4 and Figure 3: turn 8 (label 7) naming 4, 5, 6 with k=3 folds turns 5, 6, 7; others are dropped."""
    turn = command_turn(7, stale=(3, 4, 5, 6, 7, 12))
    assert accepted(turn, 3) == [5, 6, 7]


def test_reminder_is_soft_once_then_firm_with_the_count() -> None:
    """The two texts of appendix C.2."""
    assert reminder(1).startswith("[context-manager] Your last response did not start with the two metadata lines.")
    assert reminder(2).startswith("[context-manager] FORMAT VIOLATION (2 in a row): every response MUST start")


def three_outputs() -> History:
    """Steps 0 to 2."""
    return history_of(*(command_turn(label, "ls", f"output {label}") for label in range(3)))


def test_restore_shows_one_output_as_first_shown() -> None:
    """`restore 1` returns the frame and text of step 1, under the new tool call's id."""
    shown = restored(three_outputs(), " restore 1 ", "call-9")
    assert shown is not None
    assert shown.shown == "<returncode>0</returncode>\n<output>\noutput 1\n</output>"
    assert (shown.tool_call_id, shown.returncode) == ("call-9", 0)


@pytest.mark.parametrize("command", ["restore 0-1", "restore 0,1", "restore 0 - 1", "restore 1-0"])
def test_restore_of_several_steps_labels_each(command: str) -> None:
    """Ranges and lists return all outputs in order."""
    shown = restored(three_outputs(), command, None)
    assert shown is not None
    assert [shown.shown.count(f"[step {label}]") for label in range(3)] == [1, 1, 0]
    assert shown.shown.index("output 0") < shown.shown.index("output 1")


def test_restore_returns_all_outputs_of_a_turn_with_several_commands() -> None:
    """Several commands in one reply share a label; restoring it shows them all (methods 1A.1)."""
    turn = Turn(1, command_turn(0).assistant, (Action("a"), Action("b")), (output("first"), output("second")))
    shown = restored(history_of(turn), "restore 0", None)
    assert shown is not None
    assert shown.shown.index("first") < shown.shown.index("second")


@pytest.mark.parametrize("command", ["restore 3", "restore 1-99999999", "restore 0,7"])
def test_an_unknown_label_is_a_one_line_error(command: str) -> None:
    """The error names the label and what exists."""
    shown = restored(three_outputs(), command, None)
    assert shown is not None
    assert "\n" not in shown.shown
    assert "steps 0 to 2 exist" in shown.shown


@pytest.mark.parametrize("command", ["restore", "restore x", "restore 1 && ls", "git restore 1", "restore 1; ls"])
def test_anything_else_goes_to_the_shell(command: str) -> None:
    """Only a command that is a restore as a whole is answered (methods 1A.8)."""
    assert restored(three_outputs(), command, None) is None


def test_restored_text_is_not_cut() -> None:
    """The restored output has the length it was first shown with."""
    turn = command_turn(0, "cat x", "q" * 10_000, kind=TurnKind.command)
    shown = restored(history_of(turn), "restore 0", None)
    assert shown is not None
    assert len(shown.body) == 10_000

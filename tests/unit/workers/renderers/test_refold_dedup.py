"""Deduplication: what counts as a repeat, what a stub says, and that it always saves."""

import pytest

from serving.calls import Message
from tests.unit.workers.renderers.histories import command_turn, output
from workers.history import Action, Turn
from workers.renderers.refold_dedup import Deduplicator, DedupSettings


def deduplicator(**settings: object) -> Deduplicator:
    """One with the default settings."""
    defaults = {
        "min_span_lines": 3, "min_span_chars": 200, "signature_lines": 40, "is_reversible": True, "cwd": "/testbed",
    }  # fmt: skip
    return Deduplicator(DedupSettings(**(defaults | settings)))  # type: ignore[arg-type]


def lines(first: int, last: int) -> list[str]:
    """Lines `first`..`last` of a source file, about 40 characters each."""
    return [f"    field_{number} = Field(default={number})  # nr" for number in range(first, last + 1)]


def shorten(dedup: Deduplicator, *reads: tuple[str, list[str]]) -> list[str | None]:
    """The texts in place of outputs of (command, output lines), one turn each, labels from 0."""
    return [dedup.shorten(command_turn(n, command, "\n".join(body)))[0] for n, (command, body) in enumerate(reads)]


def test_overlapping_reads_share_line_runs() -> None:
    """`sed -n 15,40p` after `sed -n 1,20p` of one file: lines 15-20 become a stub with their numbers."""
    found = shorten(
        deduplicator(),
        ("sed -n '1,20p' /testbed/a.py", lines(1, 20)),
        ("cd /testbed && sed -n '15,40p' a.py", lines(15, 40)),
    )
    assert found[0] is None
    assert found[1] == "\n".join(
        [
            "<returncode>0</returncode>",
            "<output>",
            "[context-manager] lines 15-20 omitted: identical to step 0. `restore 1` shows it again.",
            *lines(21, 40),
            "</output>",
        ]
    )


def test_only_reads_of_the_same_path_share_lines() -> None:
    """The same lines in another file, or in the output of a program, are no repeats (methods 1A.5)."""
    found = shorten(
        deduplicator(),
        ("cat a.py", lines(1, 20)),
        ("cat b.py", [*lines(1, 20), "end"]),
        ("python show.py", [*lines(1, 20), "shown"]),
    )
    assert found == [None, None, None]


@pytest.mark.parametrize("command", ["cat -n a.py", "nl -ba a.py"])
def test_line_numbers_are_ignored_in_comparison_and_kept_in_the_text(command: str) -> None:
    """A numbered read of known lines is a repeat; what stays visible keeps its numbers."""
    numbered = [f"{number:6}\t{line}" for number, line in enumerate(lines(1, 25), start=1)]
    found = shorten(deduplicator(), ("cat a.py", lines(1, 20)), (command, numbered))
    assert found[1] is not None
    assert "lines 1-20 omitted" in found[1]
    assert numbered[20] in found[1]


def test_paths_follow_cd_and_the_start_directory() -> None:
    """`cd src && cat a.py`, `cat src/a.py` and the absolute path are one file."""
    found = shorten(
        deduplicator(),
        ("cd src && cat a.py", lines(1, 20)),
        ("cat src/../src/a.py", lines(1, 20)),
        ("cat /testbed/src/a.py", lines(1, 20)),
    )
    assert found[0] is None
    assert all(text is not None and "identical to step 0" in text for text in found[1:])


def test_other_outputs_are_compared_whole() -> None:
    """A search that repeats is a stub, one with an added line is not."""
    hits = [f"src/a.py:{n}: a line that matches the pattern" for n in range(10)]
    found = shorten(deduplicator(), ("grep -n x .", hits), ("grep -rn x .", hits), ("grep -n x .", [*hits, "one more"]))
    assert found[1] is not None
    assert "... (10 lines) ..." in found[1]
    assert found[2] is None


@pytest.mark.parametrize(("num_chars", "is_stub"), [(199, False), (200, True)])
def test_span_of_at_least_200_characters(num_chars: int, is_stub: bool) -> None:
    """Shorter repeats stay (methods 1A.5)."""
    body = ["x" * num_chars]
    assert (shorten(deduplicator(), ("run", body), ("run", body))[1] is not None) is is_stub


def test_a_stub_is_shorter_than_what_it_replaces() -> None:
    """With a span limit of 1 a repeat of 60 characters is left alone: its stub would be longer."""
    found = shorten(deduplicator(min_span_chars=1), ("run", ["y" * 60]), ("run", ["y" * 60]))
    assert found[1] is None


def test_runs_of_fewer_than_three_lines_stay() -> None:
    """Two long lines in common are no run."""
    common = ["a" * 300, "b" * 300]
    found = shorten(deduplicator(), ("cat a.py", [*common, "x1", "x2"]), ("cat a.py", [*common, "y1", "y2"]))
    assert found[1] is None


def test_stubbed_lines_are_no_target() -> None:
    """Step 2 repeats what step 1 shows only through its stub; it points to step 0, where the lines are."""
    found = shorten(deduplicator(), ("cat a.py", lines(1, 20)), ("cat a.py", lines(1, 30)), ("cat a.py", lines(5, 15)))
    assert found[1] is not None
    assert found[2] is not None
    assert "identical to step 0" in found[2]


def test_an_invisible_turn_is_no_target() -> None:
    """A turn that was not shown to the walk (folded, summarized) cannot be pointed to."""
    dedup = deduplicator()
    assert dedup.shorten(command_turn(4, "cat a.py", "\n".join(lines(1, 20)))) == [None]


def test_signatures_stay_in_long_stubs_of_reads() -> None:
    """From 40 lines on a stub keeps top-level class and function signatures, not methods (section 3.2)."""
    source = ["class Field(Base):", *lines(1, 20), "    def method(self):", *lines(21, 40), "async def load(path):"]
    found = shorten(deduplicator(), ("cat a.py", source), ("cat a.py", source))
    assert found[1] is not None
    assert found[1].split("\n")[-1] == "class Field(Base):; async def load(path):"
    short = shorten(deduplicator(), ("cat a.py", source[:30]), ("cat a.py", source[:30]))
    assert short[1] is not None
    assert short[1].endswith("... (30 lines) ...")


def test_lines_after_tail_or_a_cut_are_counted_in_the_output() -> None:
    """Where the file's line numbers cannot be known the stub counts lines of its output."""
    found = shorten(deduplicator(), ("cat a.py", lines(1, 50)), ("tail -n 12 a.py", ["new", *lines(40, 50)]))
    assert found[1] is not None
    assert "lines 2-12 of this output omitted" in found[1]


def test_no_stub_points_to_its_own_turn() -> None:
    """Two equal outputs in one reply: nothing earlier shows them, so both stay."""
    body = "\n".join(lines(1, 20))
    turn = Turn(1, Message("assistant", ""), (Action("cat a.py"),) * 2, (output(body), output(body)))
    dedup = deduplicator()
    assert dedup.shorten(turn) == [None, None]
    assert all(dedup.shorten(command_turn(1, "cat a.py", body)))


def test_not_reversible_stubs_carry_no_hint() -> None:
    """Without restore the stub does not promise it."""
    body = lines(1, 20)
    found = shorten(deduplicator(is_reversible=False), ("cat a.py", body), ("cat a.py", body))
    assert found[1] is not None
    assert found[1].startswith("[context-manager] output omitted: identical to step 0.\n<returncode>")


def test_a_stub_of_a_run_is_shorter_than_the_run() -> None:
    """A run of three short lines is left alone when its stub would be longer, whatever the span limit."""
    common = [f"short line {number}" for number in range(4)]
    dedup = deduplicator(min_span_chars=1)
    assert shorten(dedup, ("cat a.py", [*common, "x"]), ("cat a.py", [*common, "y"])) == [None, None]


def test_a_stub_points_to_the_earliest_copy() -> None:
    """Two exempt turns show the same lines; the stub names the first (methods 1A.5)."""
    dedup = deduplicator()
    for label in (0, 1):
        dedup.show(command_turn(label, "cat a.py", "\n".join(lines(1, 20))))
    text = dedup.shorten(command_turn(2, "cat a.py", "\n".join([*lines(1, 20), "end"])))[0]
    assert text is not None
    assert "identical to step 0" in text

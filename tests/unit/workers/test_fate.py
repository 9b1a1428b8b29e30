"""The fate of removed observation tokens."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from tests.unit.workers.renderers.histories import (
    FakeCounter,
    command_turn,
    history_of,
    random_turns,
    run_through,
    started,
)
from workers.fate import FateTracker, RemovedTokens, kept_share
from workers.history import Form, Part, Turn
from workers.renderers.base import Base
from workers.renderers.clip import Clip
from workers.renderers.mask import Mask
from workers.renderers.refold import Refold
from workers.shell_writes import parse_writes

BODY = "\n".join(f"line {n} of the file" for n in range(40))


def removed(renderer: object, *turns: Turn, is_reversible: bool = False) -> RemovedTokens:
    """The fate in the prompt after these turns."""
    history = history_of(*turns)
    return FateTracker().removed(history, started(renderer).render(history), FakeCounter(), is_reversible)


def tokens(turn: Turn) -> int:
    """Observation tokens of a turn as the fake counter counts them."""
    return sum(len(observation.shown) // 4 for observation in turn.observations)


READ, EDIT, TEST, LS = (
    command_turn(0, "cat src/a.py", BODY),
    command_turn(1, "sed -i s/x/y/ /testbed/src/a.py", BODY),
    command_turn(1, "pytest", BODY),
    command_turn(2, "ls", BODY),
)


def test_base_removes_nothing() -> None:
    """All observations are in the prompt."""
    assert removed(Base(), READ, TEST, LS) == RemovedTokens()


def test_a_read_of_an_unchanged_file_is_reproducible_other_output_is_not() -> None:
    """mask N=1 hides a read and a test run: the read can be run again, the test output is gone (appendix B.3)."""
    assert removed(Mask(keep_recent=1), READ, TEST, LS) == RemovedTokens(
        reproducible=tokens(READ), irrecoverable=tokens(TEST)
    )


def test_a_read_of_a_file_changed_since_is_irrecoverable() -> None:
    """The relative and the absolute path are one file."""
    assert removed(Mask(keep_recent=1), READ, EDIT, LS) == RemovedTokens(irrecoverable=tokens(READ) + tokens(EDIT))


def test_what_a_reversible_renderer_removed_is_recoverable() -> None:
    """Everything, changed file or not."""
    assert removed(Mask(keep_recent=1), READ, EDIT, LS, is_reversible=True) == RemovedTokens(
        recoverable=tokens(READ) + tokens(EDIT)
    )


def test_a_read_after_the_change_is_reproducible() -> None:
    """Only later writes count: `sed -i ... && cat` shows the new state."""
    turn = command_turn(0, "sed -i s/x/y/ a.py && cat a.py", BODY)
    assert removed(Mask(keep_recent=0), turn) == RemovedTokens(reproducible=tokens(turn))
    turns = command_turn(0, "sed -i s/x/y/ a.py", BODY), command_turn(1, "cat a.py", BODY)
    assert removed(Mask(keep_recent=0), *turns).reproducible == tokens(turns[1])


def test_clip_counts_the_cut_characters() -> None:
    """Of 4,000 characters clip keeps 1,000: three quarters of the tokens are gone, the marker does not count."""
    turn = command_turn(0, "cat a.py", "\n".join("x" * 79 for _ in range(50)))
    turns = [turn, *(command_turn(n) for n in range(1, 4))]
    lost = removed(Clip(), *turns).reproducible
    assert lost == pytest.approx(tokens(turn) * (1 - 1000 / len(turn.observations[0].shown)), abs=tokens(turn) * 0.06)


def test_folded_turns_and_stubs_count() -> None:
    """A folded turn misses all its tokens, a whole stub all but its frame."""
    turns = [command_turn(n, "pytest", BODY) if n in (0, 1) else command_turn(n, f"echo {n}") for n in range(9)]
    turns[3] = command_turn(3, "echo 3", stale=(0,))
    lost = removed(Refold(), *turns, is_reversible=True).recoverable
    assert lost == tokens(turns[0])  # turn 2 is no stub: its copy is folded


@given(turns=random_turns(max_turns=16))
@settings(max_examples=30, deadline=None)
def test_following_a_session_equals_a_fresh_tracker(turns: list[Turn]) -> None:
    """The incremental tracker agrees with one that sees only the last prompt; no more is lost than is missing."""
    for renderer in (Mask(keep_recent=2), Refold()):
        follower = FateTracker()
        history, prompts = run_through(started(renderer), turns)
        counter = FakeCounter()
        partial = history_of()
        for count, prompt in enumerate(prompts):
            if count:
                partial.append(history.turn(count))
            followed = follower.removed(partial, prompt, counter, False)
            fresh = FateTracker().removed(history_of(*turns[:count]), prompt, counter, False)
            assert followed == fresh
            assert min(fresh.reproducible, fresh.irrecoverable) >= 0
        shown = {
            segment.first_turn
            for segment in prompts[-1].segments
            if segment.part is Part.observation and segment.form is Form.full
        }
        missing = sum(tokens(turn) for turn in turns if turn.index not in shown)
        assert followed.reproducible + followed.irrecoverable <= missing


@pytest.mark.parametrize(
    ("text", "shortened", "share"),
    [("", "x", 1.0), ("abcd", "abcd", 1.0), ("abcd", "ab..", 0.5), ("abcd", "..cd", 0.5), ("a\nb\nc\n", "!", 0.0)],
)
def test_kept_share(text: str, shortened: str, share: float) -> None:
    """Common start and end are kept."""
    assert kept_share(text, shortened) == share


@pytest.mark.parametrize(
    ("command", "paths"),
    [
        ("cat > src/a.py <<'EOF'\nx > y\nEOF", ["src/a.py"]),
        ("echo x >> a.py 2>/dev/null", ["a.py"]),
        ("cd src && sed -i.bak 's/a/b/' b.py c.py", ["src/b.py", "src/c.py"]),
        ("sed -i -e 's/a/b/' b.py", ["b.py"]),
        ("pytest | tee out.log", ["out.log"]),
        ("mv a.py b.py", ["a.py", "b.py"]),
        ("cp a.py b.py", ["b.py"]),
        ("rm -rf build", ["build"]),
        ("git checkout -- a.py", ["a.py"]),
        ("python - <<EOF\nopen('a.py', 'w').write(s)\nEOF", ["a.py"]),
        ("python -c \"from pathlib import Path; Path('a.py').write_text(s)\"", ["a.py"]),
        ("cat a.py 2>&1 | head", []),
        ("python -c \"print(open('a.py').read())\"", []),
        ("sed -n '1,5p' a.py", []),
        ("ls > /dev/null", []),
    ],
)
def test_writes(command: str, paths: list[str]) -> None:
    """Static write detection (methods 1A.14)."""
    writes = parse_writes(command)
    assert list(writes.paths) == paths
    assert not writes.anything


@pytest.mark.parametrize("command", ["git stash", "git checkout main", "patch -p1 < fix.diff", "git apply fix.diff"])
def test_commands_that_may_change_anything(command: str) -> None:
    """Their paths are not in the command, so every file counts as changed."""
    assert parse_writes(command).anything


def test_a_removed_directory_changes_what_is_below() -> None:
    """Paths below a changed directory, and equal ends of relative and absolute paths."""
    assert parse_writes("rm -r src").touches("src/a.py")
    assert parse_writes("echo x > /testbed/src/a.py").touches("src/a.py")
    assert not parse_writes("echo x > src/a.py").touches("src/ba.py")

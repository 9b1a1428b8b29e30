"""Which lines of which file a command shows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.shell_reads import Read, parse_read


@pytest.mark.parametrize(
    ("command", "reads"),
    [
        ("cat a.py", [("a.py", None, None)]),
        ("cat a.py b.py", [("a.py", None, None), ("b.py", None, None)]),
        ("cat -n ./src/../a.py", [("a.py", None, None)]),
        ("cd /repo/src && cat a.py", [("/repo/src/a.py", None, None)]),
        ("cd src; cat a.py; cd ..; cat b.py", [("src/a.py", None, None), ("b.py", None, None)]),
        ("sed -n '3,9p' a.py", [("a.py", 3, 9)]),
        ("sed -n 7p a.py", [("a.py", 7, 7)]),
        ("sed -n '3,$p' a.py", [("a.py", 3, None)]),
        ("sed -n '3,+2p' a.py", [("a.py", 3, 5)]),
        ("nl -ba a.py | sed -n '10,20p'", [("a.py", 10, 20)]),
        ("head -n 5 a.py", [("a.py", 1, 5)]),
        ("head -30 a.py", [("a.py", 1, 30)]),
        ("head a.py", [("a.py", 1, 10)]),
        ("cat a.py | head -50 | sed -n '5,10p'", [("a.py", 5, 10)]),
        ("sed -n '100,200p' a.py | head -n 10", [("a.py", 100, 109)]),
        ("tail -n 20 a.py", [("a.py", None, None)]),
        ("awk 'NR>=3 && NR<=9' a.py", [("a.py", 3, 9)]),
        ("cat 'a b.py' 2>/dev/null", [("a b.py", None, None)]),
        ("open a.py 100", [("a.py", 50, 149)]),
        ("cat a.py > b.py", []),
        ("cat a.py | grep foo", []),
        ("cat > a.py <<'EOF'\ncat b.py\nEOF", []),
        ("cat > a.py <<'EOF'\ncat b.py\nEOF\ncat c.py", [("c.py", None, None)]),
        ("grep -n foo a.py", []),
        ("sed -i 's/a/b/' a.py", []),
        ("python a.py", []),
    ],
)
def test_reads_of_a_command(command: str, reads: list[tuple[str, int | None, int | None]]) -> None:
    """Path and 1-based lines as a person reads them off the command; None is open-ended."""
    assert parse_read(command) == tuple(Read(*read) for read in reads)


def test_the_starting_directory_is_joined() -> None:
    """Relative paths are seen from the directory the command starts in, absolute ones are not."""
    assert parse_read("cat a.py /etc/b", "/repo") == (Read("/repo/a.py", None, None), Read("/etc/b", None, None))


@pytest.mark.parametrize(
    ("one", "other", "overlaps"),
    [
        (("a", 1, 5), ("a", 5, 9), True),
        (("a", 1, 5), ("a", 6, 9), False),
        (("a", None, None), ("a", 6, 9), True),
        (("a", 3, None), ("a", 1, 2), False),
        (("a", 1, 5), ("b", 1, 5), False),
    ],
)
def test_overlap_is_a_common_line(
    one: tuple[str, int | None, int | None], other: tuple[str, int | None, int | None], overlaps: bool
) -> None:
    """Two reads overlap when they show a common line of one file, whichever comes first."""
    assert Read(*one).overlaps(Read(*other)) is overlaps
    assert Read(*other).overlaps(Read(*one)) is overlaps


@given(st.text(max_size=60))
def test_any_text_is_parsed(text: str) -> None:
    """No command line, however broken, raises."""
    assert isinstance(parse_read(f"cat {text}"), tuple)

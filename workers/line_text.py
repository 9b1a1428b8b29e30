"""Lines of tool output as things that can be seen again: line numbers stripped, trivial lines left out."""

from __future__ import annotations

import re

_NUMBER = re.compile(r"^\s*\d+(?:\t|[:\-] ?|  )")
MIN_LINE_CHARS = 8  # shorter lines (`else:`, `"""`, `}`) are everywhere and say nothing about a repeat


def without_number(line: str) -> str:
    """The line without the number that `cat -n`, `nl` or `grep -n` put before it."""
    return _NUMBER.sub("", line, count=1) if line[:1].isdigit() or line[:1].isspace() else line


def telling_lines(text: str) -> frozenset[str]:
    """The distinct lines worth comparing: stripped, numbers removed, at least `MIN_LINE_CHARS` characters."""
    stripped = (without_number(line).strip() for line in text.split("\n"))
    return frozenset(line for line in stripped if len(line) >= MIN_LINE_CHARS)

"""Pruned text from kept lines, as SWE-Pruner writes it, and the cap on what is left (methods 2.2)."""

from __future__ import annotations

from collections.abc import Sequence

# A gap of fewer characters stays: the note in its place would not be shorter.
_SHORT_GAP_CHARS = len("(filtered 0 lines)")


def with_single_gaps(kept: Sequence[int]) -> list[int]:
    """Kept line numbers (1-based) in order, and the lines that stand alone between two of them."""
    numbers = sorted(set(kept))
    between = [b - 1 for a, b in zip(numbers, numbers[1:], strict=False) if b - a == 2]
    return sorted([*numbers, *between])


def pruned_text(text: str, kept: Sequence[int]) -> str:
    """The kept lines of `text` (numbers from 1), `(filtered N lines)` for each gap; blank lines are dropped.

    A gap stays when its text is no longer than the note. Everything kept gives `text` itself, and so does a result
    that is not shorter.
    """
    lines = text.split("\n")
    wanted = set(with_single_gaps(kept))
    if len(wanted) >= len(lines):
        return text
    parts: list[str] = []
    gap: list[str] = []
    for number, line in enumerate(lines, start=1):
        if line.strip() and number in wanted:
            parts += _closed(gap)
            gap = []
            parts.append(line)
        else:
            gap.append(line)
    parts += _closed(gap)
    pruned = "\n".join(parts)
    return pruned if len(pruned) < len(text) else text


def _closed(gap: list[str]) -> list[str]:
    """What stands for a run of lines that were left out."""
    full = [line for line in gap if line.strip()]
    if sum(len(line) for line in full) <= _SHORT_GAP_CHARS:
        return full
    return [f"(filtered {len(gap)} lines)"]


def capped(text: str, cap_chars: int) -> str:
    """The first and the last half of `cap_chars` characters of a longer text, around a marker."""
    if len(text) <= cap_chars:
        return text
    num_head = cap_chars // 2
    num_tail = cap_chars - num_head
    marker = f"\n[... {len(text) - cap_chars} characters left out ...]\n"
    if len(text) <= cap_chars + len(marker):
        return text
    return text[:num_head] + marker + text[len(text) - num_tail :]

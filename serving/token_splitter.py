"""Split text into token-like pieces and give each an id, without a vocabulary and without network.

For `serving.tokens.SplitterCounter`. The pieces follow the pre-tokenization rules of byte-level BPE tokenizers (one
space joins the word after it, case changes and underscores cut identifiers, digits come in groups, indentation is one
piece) and cut long runs at a fixed length, which stands for the merges a real vocabulary lacks. The lengths are
calibrated on recorded token counts (`scripts/bench_tokens.py`).

Invariants: whether a piece begins at a character depends on that character and earlier ones only, so the ids of a
prefix of a text equal the first ids of the text, but for the piece that the prefix cuts. Equal pieces have equal ids
in every process; different pieces collide with a chance of about 1 / vocab_size.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt

from serving.calls import TokenIds

LOWER, UPPER, DIGIT, SPACE, TAB, NEWLINE, PUNCTUATION, BROAD, WIDE = range(9)

# Character class of each ASCII code point; control characters count as punctuation.
_ASCII_CLASS: Final = np.full(128, PUNCTUATION, dtype=np.uint8)
_ASCII_CLASS[ord("a") : ord("z") + 1] = LOWER
_ASCII_CLASS[ord("A") : ord("Z") + 1] = UPPER
_ASCII_CLASS[ord("0") : ord("9") + 1] = DIGIT
_ASCII_CLASS[ord(" ")] = SPACE
_ASCII_CLASS[ord("\t")] = TAB
_ASCII_CLASS[[ord("\n"), ord("\r")]] = NEWLINE

_FIRST_WIDE: Final = 0x2E80  # from here on mostly CJK, where a character is about one token
MAX_RUN: Final = 500
# Powers of an odd multiplier modulo 2**64; a piece is at most one run plus two joined characters.
_POWERS: Final = np.multiply.accumulate(np.full(MAX_RUN + 2, 0x9E3779B97F4A7C15, dtype=np.uint64))


@dataclass(frozen=True, slots=True)
class SplitRules:
    """Longest run, in characters, that stays one piece, per character class.

    Attributes:
        letters: ASCII letters; a lower-case letter followed by an upper-case one always begins a new piece.
        digits: decimal digits.
        spaces: blanks of an indentation or alignment; a single space joins the letters or punctuation after it.
        tabs, newlines, punctuation: runs of these.
        broad: non-ASCII characters below U+2E80 (accents, Greek, Cyrillic, box drawing); above, each is one piece.
        joining: ASCII punctuation that, one character alone, joins the letters after it (`_name`, `.get`).
    """

    letters: int
    digits: int
    spaces: int
    tabs: int
    newlines: int
    punctuation: int
    broad: int
    joining: str


def character_classes(points: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint8]:
    """The class of each code point, shape (n,)."""
    classes = _ASCII_CLASS[np.minimum(points, 127)]
    foreign = points > 127
    if foreign.any():
        classes[foreign] = np.where(points[foreign] < _FIRST_WIDE, BROAD, WIDE)
    return classes


def piece_starts(points: npt.NDArray[np.uint32], rules: SplitRules) -> npt.NDArray[np.intp]:
    """Indices of the characters where a piece begins, ascending, the first 0 when there is text.

    Args:
        points: (n,) code points.
        rules: where runs are cut.
    """
    n = len(points)
    if n == 0:
        return np.empty(0, dtype=np.intp)
    classes = character_classes(points)
    before, after = classes[:-1], classes[1:]
    run_start = np.empty(n, dtype=bool)
    run_start[0] = True
    run_start[1:] = (before != after) & ((before != UPPER) | (after != LOWER))
    start = run_start | _long_run_cuts(run_start, classes, rules)
    after_start = run_start[1:]
    letter_run = after_start & (after <= UPPER)
    # A run of one space joins the letters or punctuation after it.
    single_space = (before == SPACE) & run_start[:-1]
    start[1:] &= ~(single_space & (letter_run | (after_start & (after == PUNCTUATION))))
    if rules.joining:
        joins = _joining_table(rules.joining)[np.minimum(points[:-1], 127)]
        start[1:] &= ~(joins & run_start[:-1] & start[:-1] & letter_run)
    return np.flatnonzero(start)


def _long_run_cuts(
    run_start: npt.NDArray[np.bool_], classes: npt.NDArray[np.uint8], rules: SplitRules
) -> npt.NDArray[np.bool_]:
    """Where a run longer than its class allows is cut, shape (n,)."""
    first = np.flatnonzero(run_start)
    lengths = np.diff(first, append=len(run_start))
    longest = np.array(
        [
            rules.letters, rules.letters, rules.digits, rules.spaces, rules.tabs, rules.newlines, rules.punctuation,
            rules.broad, 1,
        ],
        dtype=np.int64,
    )[classes[first]]  # fmt: skip
    cuts = np.zeros(len(run_start), dtype=bool)
    long = lengths > longest
    step = longest[long]
    num_cuts = (lengths[long] - 1) // step
    # The k-th cut of a run lies k steps behind its first character.
    k = np.arange(1, num_cuts.sum() + 1) - np.repeat(np.cumsum(num_cuts) - num_cuts, num_cuts)
    cuts[np.repeat(first[long], num_cuts) + k * np.repeat(step, num_cuts)] = True
    return cuts


@lru_cache(maxsize=16)
def _joining_table(joining: str) -> npt.NDArray[np.bool_]:
    table = np.zeros(128, dtype=bool)
    table[[ord(character) for character in joining if ord(character) < 127]] = True
    return table


def piece_ids(text: str, rules: SplitRules, *, seed: int, vocab_size: int) -> TokenIds:
    """The ids of a text's pieces, (k,) int64 in [0, vocab_size).

    Args:
        text: any text; lone surrogates count as characters.
        rules: where runs are cut, each at most `MAX_RUN` characters.
        seed: changes every id.
        vocab_size: number of different ids.
    """
    points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
    starts = piece_starts(points, rules)
    if len(starts) == 0:
        return np.empty(0, dtype=np.int64)
    lengths = np.diff(starts, append=len(points))
    position = np.arange(len(points)) - np.repeat(starts, lengths)
    # A polynomial over the piece's characters modulo 2**64, then a mixing step (the finalizer of SplitMix64).
    hashed = np.add.reduceat((points.astype(np.uint64) + np.uint64(1)) * _POWERS[position], starts)
    hashed ^= np.uint64(seed * 0xD1342543DE82EF95 % 2**64)
    hashed = (hashed ^ (hashed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    hashed = (hashed ^ (hashed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    hashed ^= hashed >> np.uint64(31)
    ids: TokenIds = (hashed % np.uint64(vocab_size)).astype(np.int64)
    return ids


def count_pieces(text: str, rules: SplitRules) -> int:
    """Number of pieces of a text."""
    return len(piece_starts(np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32), rules))

"""BM25 over chunks of tool outputs, for `memory`; scores are those of the library bm25s.

bm25s cannot add to an index. Each search therefore indexes the chunks anew, but only over the words of the query: every
other word becomes one and the same filler, which keeps the lengths and so the scores as they are and is a tenth of
the work.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

import bm25s

from workers.history import Turn

_WORD = re.compile(r"\w\w+")
_CAMEL = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+")
_FILLER = 0


@dataclass(frozen=True, slots=True)
class Chunk:
    """Consecutive lines of one output.

    Attributes:
        label: step that produced it. first_line: 1-based, in the output as shown.
    """

    command: str
    label: int
    first_line: int
    lines: tuple[str, ...]


class ChunkIndex:
    """The chunks of the outputs added so far and their words."""

    def __init__(self, chunk_lines: int) -> None:
        self._chunk_lines = chunk_lines
        self._chunks: list[Chunk] = []
        self._words: list[list[str]] = []

    def add(self, turn: Turn) -> None:
        """Add the outputs of one turn; a turn without a command has none."""
        for action, observation in zip(turn.actions, turn.observations, strict=False):
            lines = observation.body.split("\n")
            for start in range(0, len(lines), self._chunk_lines):
                part = tuple(lines[start : start + self._chunk_lines])
                words = words_of("\n".join(part))
                if words:
                    self._chunks.append(Chunk(action.command, turn.label, start + 1, part))
                    self._words.append(words)

    def best(self, query: str, num_chunks: int) -> list[Chunk]:
        """The best chunks for a query, best first, ties to the newer; without those that share no word with it.

        Of chunks with the same lines only the newest counts as a result.
        """
        if not self._chunks:
            return []
        terms = {word: number for number, word in enumerate(dict.fromkeys(words_of(query)), start=_FILLER + 1)}
        if not terms:
            return []
        number_of = terms.get
        documents = [[number_of(word, _FILLER) for word in words] for words in self._words]
        index = bm25s.BM25()
        index.index((documents, {"": _FILLER, **terms}), show_progress=False)
        scores = index.get_scores(list(terms)).tolist()
        order = sorted(range(len(scores)), key=lambda position: (-scores[position], -position))
        found: dict[tuple[str, ...], Chunk] = {}
        for position in order:
            if scores[position] <= 0 or len(found) == num_chunks:
                break
            found.setdefault(self._chunks[position].lines, self._chunks[position])
        return list(found.values())


def words_of(text: str) -> list[str]:
    """Lower-case words, identifiers also in their parts: `as_compatible_data` gives itself, as, compatible, data."""
    return [part for word in _WORD.findall(text) for part in _parts(word)]


@lru_cache(maxsize=65_536)
def _parts(word: str) -> tuple[str, ...]:
    lowered = word.lower()
    if lowered in _STOP_WORDS:
        return ()
    pieces = [piece.lower() for piece in _CAMEL.findall(word) if len(piece) > 1]
    if len(pieces) < 2:
        return (lowered,)
    return (lowered, *(piece for piece in pieces if piece not in _STOP_WORDS))


_STOP_WORDS = frozenset(bm25s.stopwords.STOPWORDS_EN)

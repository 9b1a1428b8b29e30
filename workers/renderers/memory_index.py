"""The chunks of earlier outputs that `memory` searches."""

from __future__ import annotations

from dataclasses import dataclass

from workers.history import Turn
from workers.renderers.lexical_scores import bm25_scores, words_of


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

        Of chunks with the same lines only the newest counts as a result. [choice]
        """
        if not self._chunks:
            return []
        scores = bm25_scores(self._words, query)
        order = sorted(range(len(scores)), key=lambda position: (-scores[position], -position))
        found: dict[tuple[str, ...], Chunk] = {}
        for position in order:
            if scores[position] <= 0 or len(found) == num_chunks:
                break
            found.setdefault(self._chunks[position].lines, self._chunks[position])
        return list(found.values())

"""The chunks of earlier outputs that `memory` searches."""

from __future__ import annotations

from array import array
from dataclasses import dataclass

import numpy as np

from workers.history import Turn
from workers.renderers.lexical_scores import GrowingIndex, words_of_each


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
    """The chunks of the outputs added so far and their words; a chunk's lines are split off its output when found."""

    def __init__(self, chunk_lines: int) -> None:
        self._chunk_lines = chunk_lines
        self._outputs: list[tuple[str, int, str]] = []  # command, label, body
        self._output_of = array("q")  # chunk -> number of its output
        self._starts = array("q")  # chunk -> its first line, from 0
        self._index = GrowingIndex()

    def add(self, turn: Turn) -> None:
        """Add the outputs of one turn; a turn without a command has none."""
        for action, observation in zip(turn.actions, turn.observations, strict=False):
            lines = observation.body.split("\n")
            starts = range(0, len(lines), self._chunk_lines)
            parts = words_of_each("\n".join(lines[start : start + self._chunk_lines]) for start in starts)
            for start, words in zip(starts, parts, strict=True):
                if words:
                    self._output_of.append(len(self._outputs))
                    self._starts.append(start)
                    self._index.add(words)
            self._outputs.append((action.command, turn.label, observation.body))

    def best(self, query: str, num_chunks: int) -> list[Chunk]:
        """The best chunks for a query, best first, ties to the newer; without those that share no word with it.

        Of chunks with the same lines only the newest counts as a result. [choice]
        """
        scores = self._index.scores(query)
        hits = np.flatnonzero(scores > 0)
        found: dict[tuple[str, ...], Chunk] = {}
        for position in hits[np.lexsort((-hits, -scores[hits]))].tolist():
            if len(found) == num_chunks:
                break
            chunk = self._chunk(position)
            found.setdefault(chunk.lines, chunk)
        return list(found.values())

    def _chunk(self, position: int) -> Chunk:
        command, label, body = self._outputs[self._output_of[position]]
        start = self._starts[position]
        return Chunk(command, label, start + 1, tuple(body.split("\n")[start : start + self._chunk_lines]))

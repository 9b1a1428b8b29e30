"""The virtual repository of one synthetic session: files that grow as they are read and change as they are edited."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from workers.benchmarks.generator.code_text import code_lines
from workers.benchmarks.generator.dice import Dice
from workers.benchmarks.generator.lexicon import Lexicon


class Span(NamedTuple):
    """Lines first..last (1-based, inclusive) of a file that a session has seen."""

    file: VirtualFile
    first: int
    last: int


@dataclass(slots=True)
class VirtualFile:
    """A file whose lines are made when they are first looked at.

    Attributes:
        lines: what exists so far; edits change it in place.
        frontier: the last line that was shown.
        source: makes the following lines.
        is_closed: its end has been seen, it grows no more.
    """

    path: str
    source: Iterator[str]
    lines: list[str] = field(default_factory=list)
    frontier: int = 0
    is_closed: bool = False

    def slice(self, first: int, last: int) -> list[str]:
        """Lines first..last, fewer when the file ends before."""
        while not self.is_closed and len(self.lines) < last:
            self.lines.append(next(self.source))
        return self.lines[first - 1 : last]

    def lines_for(self, first: int, num_chars: int) -> int:
        """The last line so that first..last holds about `num_chars` characters, at least one line."""
        last, left = first, num_chars
        while left > 0:
            line = self.slice(last, last)
            if not line:
                break
            left -= len(line[0]) + 1
            last += 1
        return max(first, last - 1)


class Repository:
    """Files by path, made on demand.

    Args:
        key: names the repository; its files' text depends on it and their path.
    """

    def __init__(self, lexicon: Lexicon, *key: object) -> None:
        self.lexicon = lexicon
        self._key = key
        self.files: dict[str, VirtualFile] = {}
        self.scripts: list[str] = []

    def new_file(self, dice: Dice) -> VirtualFile:
        """A file that was not looked at before."""
        lexicon = self.lexicon
        path = f"{dice.pick(lexicon.folders)}/{dice.pick(lexicon.modules)}.py"
        if path in self.files:
            path = f"{dice.pick(lexicon.folders)}/{dice.pick(lexicon.modules)}_{len(self.files)}.py"
        return self.add(VirtualFile(path, code_lines(Dice(*self._key, path), lexicon)))

    def add(self, file: VirtualFile) -> VirtualFile:
        """Put a file into the repository, in place of one of the same path."""
        self.files[file.path] = file
        return file

    def any_path(self, dice: Dice) -> str:
        """A path, known or not, for search results."""
        lexicon = self.lexicon
        return f"{dice.pick(lexicon.folders)}/{dice.pick(lexicon.modules)}.py"

"""What synthetic reads show: fresh lines, lines that overlap an earlier read, lines seen before."""

from __future__ import annotations

from dataclasses import dataclass, field

from workers.benchmarks.generator.dice import Dice
from workers.benchmarks.generator.repository import Repository, Span, VirtualFile

LOOK_BACK = 40  # spans a repeated read chooses from, the newest


@dataclass(slots=True)
class Shown:
    """A command and the lines it printed."""

    command: str
    lines: list[str]
    returncode: int = 0

    @property
    def num_chars(self) -> int:
        """Characters of the output, line ends included."""
        return sum(len(line) + 1 for line in self.lines)


@dataclass(slots=True)
class Reader:
    """Reads and edits of one session."""

    dice: Dice
    repository: Repository
    spans: list[Span] = field(default_factory=list)

    def fresh(self, num_chars: int) -> Shown:
        """Lines that no read has shown, of a known file (continued below) or a new one."""
        dice = self.dice
        known = [file for file in self.repository.files.values() if file.frontier and not file.is_closed]
        if known and dice.chance(0.45):
            file = dice.pick(known)
            return self._show(file, file.frontier + 1 + dice.below(60), num_chars)
        file = self.repository.new_file(dice)
        if dice.chance(0.5):
            last = file.lines_for(1, num_chars)
            file.lines, file.is_closed = file.slice(1, last), True
            return self._command(Span(file, 1, last))
        return self._show(file, 1 + dice.below(180), num_chars)

    def again(self, num_chars: int) -> Shown | None:
        """Lines that an earlier read has shown, or None when there was none of use."""
        span = self._seen(num_chars)
        if span is None:
            return None
        first = span.first
        spare = span.last - span.file.lines_for(first, num_chars)
        if spare > 0:
            first += self.dice.below(spare + 1)
        return self._command(Span(span.file, first, min(span.last, span.file.lines_for(first, num_chars))))

    def overlapping(self, num_chars: int, part: float) -> Shown | None:
        """Lines of which about `part` of the characters were shown by one earlier read, or None."""
        span = self._seen(int(num_chars * part))
        if span is None:
            return None
        num_lines = span.last - span.first + 1
        wanted = max(3, round(num_lines * min(1.0, part * num_chars / max(1, _chars(span)))))
        first = max(span.first, span.last - wanted + 1)
        end = span.file.lines_for(first, num_chars)
        if end <= span.last or len(span.file.slice(first, end)) <= span.last - first + 1:
            return None
        return self._command(Span(span.file, first, end))

    def changed(self, first_words: str) -> tuple[str, VirtualFile, int]:
        """Edit one line of a seen span (or of a new file): the `sed -i` command, the file and the line."""
        dice = self.dice
        span = self._seen(400) or Span(self.repository.new_file(dice), 1, 40)
        number = dice.between(span.first, span.last)
        old = span.file.slice(number, number)[0]
        indent = old[: len(old) - len(old.lstrip())]
        span.file.lines[number - 1] = f"{indent}{first_words}"
        return f"sed -i '{number}s/.*/{indent}{first_words}/' {span.file.path}", span.file, number

    def _seen(self, num_chars: int) -> Span | None:
        """The best-fitting of a few earlier spans."""
        recent = self.spans[-LOOK_BACK:]
        if not recent:
            return None
        tried = [self.dice.pick(recent) for _ in range(6)]
        return min(tried, key=lambda span: abs(_chars(span) - num_chars))

    def _show(self, file: VirtualFile, first: int, num_chars: int) -> Shown:
        file.slice(1, first)
        return self._command(Span(file, first, file.lines_for(first, num_chars)))

    def _command(self, span: Span) -> Shown:
        """A command that prints the span, and its output; remembers that it was seen."""
        file, first, last = span
        lines = file.slice(first, last)
        last = first + len(lines) - 1
        self.spans.append(Span(file, first, last))
        file.frontier = max(file.frontier, last)
        if first == 1 and file.is_closed and last == len(file.lines):
            return Shown(f"cat {file.path}", list(lines))
        form = self.dice.uniform()
        if first == 1 and form < 0.3:
            return Shown(f"head -n {last} {file.path}", list(lines))
        if form < 0.55:
            numbered = [f"{number:6d}\t{line}" for number, line in enumerate(lines, start=first)]
            return Shown(f"nl -ba {file.path} | sed -n '{first},{last}p'", numbered)
        return Shown(f"sed -n '{first},{last}p' {file.path}", list(lines))


def _chars(span: Span) -> int:
    return sum(len(line) + 1 for line in span.file.lines[span.first - 1 : span.last])

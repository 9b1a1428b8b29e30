"""How much of a run's output was shown before: line runs of at least three lines, line numbers stripped."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from workers.interfaces import RecordedRun
from workers.line_text import without_number


@dataclass
class RepeatCount:
    """Characters of outputs, and those of them that an earlier output of the run had shown."""

    num_chars: int = 0
    num_repeated: int = 0
    by_tens: dict[int, tuple[int, int]] = field(default_factory=lambda: defaultdict(lambda: (0, 0)))

    @property
    def share(self) -> float:
        """Repeated share of all characters."""
        return self.num_repeated / self.num_chars

    def share_of_steps(self, first: int, last: int) -> float:
        """The same for steps first..last, which are whole tens (11..20)."""
        pairs = [self.by_tens[ten] for ten in range((first - 1) // 10, last // 10)]
        return sum(repeated for _, repeated in pairs) / sum(chars for chars, _ in pairs)


def count_repeats(runs: Iterable[RecordedRun]) -> RepeatCount:
    """A line counts as repeated when it lies in three consecutive lines that an earlier output had consecutively."""
    found = RepeatCount()
    for run in runs:
        seen: set[tuple[str, ...]] = set()
        for index, step in enumerate(run.steps[:-1]):
            lines = [without_number(line) for line in "\n".join(o.body for o in step.observations).split("\n")]
            triples = list(zip(lines, lines[1:], lines[2:], strict=False))
            marked = {at + offset for at, triple in enumerate(triples) if triple in seen for offset in range(3)}
            seen.update(triples)
            num_chars = sum(len(line) + 1 for line in lines)
            num_repeated = sum(len(lines[at]) + 1 for at in marked)
            found.num_chars += num_chars
            found.num_repeated += num_repeated
            chars, repeated = found.by_tens[index // 10]
            found.by_tens[index // 10] = (chars + num_chars, repeated + num_repeated)
    return found

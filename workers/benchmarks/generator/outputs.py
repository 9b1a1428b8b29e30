"""What synthetic searches, test runs and scripts print, fresh or partly as before."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from workers.benchmarks.generator.code_text import statement_line
from workers.benchmarks.generator.dice import Dice
from workers.benchmarks.generator.reading import Shown
from workers.benchmarks.generator.repository import Repository

NUM_TRIED: Final = 8  # earlier outputs looked at for one of about the wanted length
FORMAT_ERROR: Final = (
    "Format error: your reply has 0 ```bash blocks; give exactly one, with the command you want to run.",
    "",
    "A reply looks like this: a few sentences of reasoning, then the command between two fences, the first one with",
    "the word bash behind it. Nothing but the content of the block is run. To end the task, submit as the first",
    "message says; a reply without a command does not end it.",
)


class Source(NamedTuple):
    """A new command and the endless output it would have."""

    command: str
    lines: Iterator[str]


def new_search(dice: Dice, repository: Repository) -> Source:
    """A grep, find or ls that was not run before."""
    lexicon = repository.lexicon
    folder, path = dice.pick(lexicon.folders), repository.any_path(dice)
    form = dice.uniform()
    if form < 0.35:
        command = f'grep -rn "{dice.pick(lexicon.functions)}" {folder} --include=*.py'
        return Source(command, _hits(dice, repository, with_path=True))
    if form < 0.65:
        return Source(f'grep -n "{dice.pick(lexicon.classes)}" {path}', _hits(dice, repository, with_path=False))
    if form < 0.8:
        return Source(f'grep -rn "def {dice.pick(lexicon.functions)}" .', _hits(dice, repository, with_path=True))
    if form < 0.9:
        return Source(f'find . -name "*{dice.pick(lexicon.modules)}*.py"', _paths(dice, repository))
    return Source(f"ls -la {folder}", _listing(dice, repository))


def _hits(dice: Dice, repository: Repository, *, with_path: bool) -> Iterator[str]:
    while True:
        path, number = repository.any_path(dice), dice.between(5, 60)
        for _ in range(dice.between(1, 6)):
            code = " " * (4 * dice.below(3)) + statement_line(dice, repository.lexicon)
            yield f"{path}:{number}:{code}" if with_path else f"{number}:{code}"
            number += dice.between(3, 90)


def _paths(dice: Dice, repository: Repository) -> Iterator[str]:
    while True:
        yield f"./{repository.any_path(dice)}"


def _listing(dice: Dice, repository: Repository) -> Iterator[str]:
    yield f"total {dice.between(40, 900)}"
    while True:
        size, day = dice.between(200, 90_000), dice.between(1, 28)
        yield f"-rw-r--r-- 1 root root {size:6d} Mar {day:2d} 12:00 {dice.pick(repository.lexicon.modules)}.py"


def new_run(dice: Dice, repository: Repository) -> Source:
    """A run of a script or of tests."""
    lexicon = repository.lexicon
    script = dice.pick(repository.scripts) if repository.scripts else "reproduce.py"
    if dice.chance(0.5):
        return Source(f"python {script}", run_lines(dice, repository))
    command = f"python -m pytest tests/test_{dice.pick(lexicon.modules)}.py -k {dice.pick(lexicon.functions)} -x"
    return Source(command, run_lines(dice, repository))


def run_lines(dice: Dice, repository: Repository) -> Iterator[str]:
    """Endless output of tests or a script: results, tracebacks, values."""
    lexicon = repository.lexicon
    while True:
        form = dice.uniform()
        if form < 0.35:
            module = dice.pick(lexicon.modules)
            for _ in range(dice.between(3, 12)):
                outcome = "ok" if dice.chance(0.85) else "FAIL"
                test, suite = dice.pick(lexicon.functions), dice.pick(lexicon.classes)
                yield f"test_{test} (tests.test_{module}.{suite}Tests) ... {outcome}"
        elif form < 0.6:
            yield "Traceback (most recent call last):"
            for _ in range(dice.between(2, 6)):
                path, line = repository.any_path(dice), dice.between(5, 900)
                yield f'  File "/testbed/{path}", line {line}, in {dice.pick(lexicon.functions)}'
                yield f"    {statement_line(dice, lexicon)}"
            yield f"{dice.pick(lexicon.classes)}Error: {dice.pick(lexicon.variables)} is {dice.between(0, 99)}"
        elif form < 0.7:
            yield "=" * 70
            yield f"Ran {dice.between(2, 140)} tests in {dice.uniform() * 3:.3f}s"
            yield ""
        else:
            for _ in range(dice.between(2, 6)):
                name, field = dice.pick(lexicon.variables), dice.pick(lexicon.variables)
                yield f"{name}: {dice.pick(lexicon.classes)}({field}={dice.between(0, 999)})"


def fresh_lines(source: Iterator[str], num_chars: int) -> list[str]:
    """Lines of `source` until they hold about `num_chars` characters; one long line is cut."""
    lines: list[str] = []
    left = num_chars
    while left > 0:
        line = next(source)
        if len(line) + 1 > left and lines:
            line = line[: max(1, left - 1)]
        lines.append(line)
        left -= len(line) + 1
    return lines


def again(dice: Dice, past: Sequence[Shown], num_chars: int) -> Shown | None:
    """An earlier command with the output it had, or None when there is none of about this length."""
    if not past:
        return None
    found = _fitting(dice, past, num_chars)
    if dice.chance(0.65):
        return Shown(found.command, list(found.lines), found.returncode)
    return Shown(f"{_bare(found.command)} | head -n {len(found.lines)}", list(found.lines), 0)


def partly_again(dice: Dice, past: Sequence[Shown], num_chars: int, part: float, fresh: Source) -> Shown | None:
    """The first lines of earlier outputs, about `part` of the characters, then other lines."""
    if not past:
        return None
    left = int(num_chars * part)
    found = _fitting(dice, past, left)
    kept: list[str] = []
    for source in (found, *(_fitting(dice, past, left) for _ in range(3))):
        for line in source.lines:
            if left <= 0:
                break
            kept.append(line)
            left -= len(line) + 1
    rest = max(1, num_chars - sum(len(line) + 1 for line in kept))
    same = dice.chance(0.5)
    return Shown(found.command if same else fresh.command, kept + fresh_lines(fresh.lines, rest), found.returncode)


def _fitting(dice: Dice, past: Sequence[Shown], num_chars: int) -> Shown:
    tried = [dice.pick(past) for _ in range(NUM_TRIED)]
    return min(tried, key=lambda shown: abs(shown.num_chars - num_chars))


def _bare(command: str) -> str:
    return command.split(" | ", 1)[0]

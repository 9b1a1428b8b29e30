"""Which steps of a recorded run were finished with: what a perfect agent could have named STALE (ReFold Eq. 3).

No recorded run carries PROGRESS/STALE lines, so replays take them from hindsight: a step is *quiet* when no later step
reads it again. Reading again means: the same command, a read of the same file with an overlapping range, or an output
with at least three of the step's lines. [choice] the paper's agent decides in foresight, so this is an upper bound of
what can be named without harm, and `coverage` says how much of it is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final

from workers.actions import without_blocks
from workers.interfaces import RecordedRun, RecordedStep, Streams
from workers.line_text import telling_lines
from workers.shell_reads import Read, parse_read

MIN_SHARED_LINES: Final = 3
MAX_PROGRESS_CHARS: Final = 200


@lru_cache(maxsize=256)
def quiet_steps(run: RecordedRun, cwd: str = "") -> frozenset[int]:
    """The steps (1-based) that no later step reads again; the last step is never among them.

    Commands start in `cwd`.

    Cost: every step looks at most at two shared lines per later step before it is settled, so O(lines + steps^2).
    """
    steps = run.steps
    again = _repeated_commands(steps) | _reread_files(steps, cwd) | _reshown_lines(steps)
    return frozenset(index for index in range(1, len(steps)) if index not in again)


def stale_labels(
    run: RecordedRun, *, window: int, coverage: float, streams: Streams, cwd: str = ""
) -> dict[int, tuple[int, ...]]:
    """Turn -> the labels (0-based) its reply names STALE.

    A quiet step i is named with probability `coverage` in the reply of turn i + delay, delay drawn from 1..window,
    which Eq. 4 accepts; a delay past the end of the run leaves it unnamed. Both draws depend on the step alone.
    """
    named: dict[int, list[int]] = defaultdict(list)
    for step in sorted(quiet_steps(run, cwd)):
        if streams.uniform("stale-coverage", step) < coverage:
            turn = step + 1 + streams.integer("stale-delay", step) % window
            if turn <= len(run.steps):
                named[turn].append(step - 1)
    return {turn: tuple(labels) for turn, labels in named.items()}


def progress_text(step: RecordedStep) -> str:
    """The first sentence of the reply's thought, else `running: <command>`; one line of at most 200 characters."""
    prose = without_blocks(step.assistant.content).strip().removeprefix("THOUGHT:").strip()
    sentence = _first_sentence(prose)
    if not sentence:
        command = " ".join(step.actions[0].command.split()) if step.actions else "nothing"
        sentence = f"running: {command}"
    return sentence[:MAX_PROGRESS_CHARS].rstrip()


def signal_lines(step: RecordedStep, labels: Sequence[int]) -> str:
    """The two lines ReFold asks for (appendix C.2), each ending in a newline."""
    return f"PROGRESS: {progress_text(step)}\nSTALE: {', '.join(map(str, labels)) or '-'}\n"


def _first_sentence(prose: str) -> str:
    line = prose.split("\n", 1)[0].strip()
    ends = [end for mark in (". ", "! ", "? ") if (end := line.find(mark)) >= 0]
    return line[: min(ends) + 1] if ends else line


def _repeated_commands(steps: Sequence[RecordedStep]) -> set[int]:
    """Steps of which a command is issued again later (blanks aside)."""
    again: set[int] = set()
    later: set[str] = set()
    for index in range(len(steps), 0, -1):
        commands = {" ".join(action.command.split()) for action in steps[index - 1].actions}
        if commands & later:
            again.add(index)
        later |= commands
    return again


def _reread_files(steps: Sequence[RecordedStep], cwd: str) -> set[int]:
    """Steps that show lines of a file which a later step shows too."""
    again: set[int] = set()
    later: dict[str, list[Read]] = defaultdict(list)
    for index in range(len(steps), 0, -1):
        reads = [read for action in steps[index - 1].actions for read in parse_read(action.command, cwd)]
        if any(read.overlaps(other) for read in reads for other in later[read.path]):
            again.add(index)
        for read in reads:
            later[read.path].append(read)
    return again


def _reshown_lines(steps: Sequence[RecordedStep]) -> set[int]:
    """Steps of which at least three lines appear together in one later output."""
    again: set[int] = set()
    shown_in: dict[str, list[int]] = defaultdict(list)
    for index in range(len(steps), 0, -1):
        lines = telling_lines("\n".join(observation.body for observation in steps[index - 1].observations))
        if _share_enough(shown_in[line] for line in lines if line in shown_in):
            again.add(index)
        for line in lines:
            shown_in[line].append(index)
    return again


def _share_enough(places: Iterable[Sequence[int]]) -> bool:
    """Whether three of the lines have one later step in common; stops at the first that is found."""
    num_shared: dict[int, int] = defaultdict(int)
    for steps in places:
        for step in steps:
            num_shared[step] += 1
            if num_shared[step] == MIN_SHARED_LINES:
                return True
    return False

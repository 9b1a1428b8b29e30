"""Hypothesis-Action-Result records, T_t = {(R_i, H_{i+1}, A_{i+1}, O_{i+1})}: one per turn, closed by the next reply.

A turn's hypothesis is its [AIM], its result the [REFLECTION] of the reply after it. `Records` reads turns in order,
takes the metadata from the replies or, in replay, from where the settings say, and hands out closed records.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from workers.history import History, Turn
from workers.renderers.arsm_loops import was_blocked
from workers.renderers.arsm_signals import NOTHING_SAID, Metadata, Status, metadata_of
from workers.renderers.heuristic_signals import TRACEBACK, HeuristicSignals, ReplaySignals, has_failed

_ERROR = re.compile(r"(?:Error|Exception)\b|\berror:|fatal:|No such file|not found")
_UNINDENTED = re.compile(r"(?<=\n)\S")
_SEARCHED_CHARS = 20_000  # of an output, for its first error line


@dataclass(frozen=True, slots=True)
class Record:
    """tau of one turn, in the length it is shown in.

    Attributes:
        turn: index, 1-based.
        hypothesis, action, excerpt, result: H, A, start of O, R; one line each.
        conclusion: of the reflection, alone.
        step: the checklist step the turn says it belongs to.
        error: its first error line (or its outcome when it printed nothing), empty when nothing failed.
        outcome: return code and size of the output in words.
        summary: the agent's own line on the turn (SM-only).
        repeats: signatures of its actions that brought nothing new.
        is_clean: ran with return code 0 and brought new evidence.
        status: what the next reply says of it.
    """

    turn: int
    hypothesis: str = ""
    action: str = ""
    excerpt: str = ""
    result: str = ""
    conclusion: str = ""
    step: str = ""
    error: str = ""
    outcome: str = ""
    summary: str = ""
    repeats: tuple[str, ...] = ()
    is_clean: bool = False
    status: Status = Status.ongoing

    @property
    def is_verified(self) -> bool:
        """A node that pruning stops at."""
        return self.is_clean or self.status in (Status.success, Status.milestone)


def draft(turn: Turn, said: Metadata, *, excerpt_chars: int, repeats: tuple[str, ...] = ()) -> Record:
    """The record of a turn that no reply has spoken about yet."""
    shown = "\n".join(observation.body for observation in turn.observations)
    ran = [observation.returncode for observation in turn.observations]
    is_blocked = any(was_blocked(observation) for observation in turn.observations)
    outcome = _outcome(turn, shown)
    failed = any(has_failed(observation) for observation in turn.observations)
    return Record(
        turn.index,
        hypothesis=cut(said.aim, excerpt_chars),
        action=cut(turn.command, excerpt_chars),
        excerpt=cut(shown, excerpt_chars),
        step=cut(said.step, excerpt_chars),
        error=(first_error(shown) or f"it {outcome}") if failed else "",
        outcome=outcome,
        repeats=repeats,
        is_clean=bool(turn.actions) and all(code == 0 for code in ran) and not repeats and not is_blocked,
    )


def closed(record: Record, said: Metadata, *, excerpt_chars: int) -> Record:
    """The record with what the next reply says about its turn."""
    return replace(
        record,
        result=cut(said.reflection, excerpt_chars),
        conclusion=cut(said.conclusion or said.reflection, excerpt_chars),
        summary=cut(said.summary, excerpt_chars),
        status=said.status,
    )


def cut(text: str, limit: int) -> str:
    """The start of a text as one line of at most `limit` characters, the ellipsis where it was cut included.

    Both cut excerpts of D.2 have 359 characters and an ellipsis, its escapes not counted: a limit of 360.
    """
    line = " ".join(text[: limit * 4].split())
    is_cut = len(text) > limit * 4
    if len(line) > limit or (is_cut and len(line) == limit):
        return line[: limit - 1].rstrip() + "\u2026"
    return line + "\u2026" if is_cut else line


def first_error(text: str) -> str:
    """What a traceback ends with, else the first line that names an error, else the first line with text."""
    head = text.find(TRACEBACK)
    found = _UNINDENTED.search(text, head + len(TRACEBACK)) if head >= 0 else None
    found = found or _ERROR.search(text, 0, _SEARCHED_CHARS)
    if found is None:
        return next((" ".join(line.split()) for line in text.split("\n", 50)[:50] if line.strip()), "")
    end = text.find("\n", found.end())
    return " ".join(text[text.rfind("\n", 0, found.start()) + 1 : end if end >= 0 else len(text)].split())


def har_line(record: Record) -> str:
    """A record as the state block shows it (D.2), without the bullet."""
    result = ". ".join(part for part in (record.excerpt, record.result) if part)
    hypothesis, action = record.hypothesis or "-", record.action or "-"
    return f"Turn {record.turn}: [Hypothesis] {hypothesis} [Action] {action} [Reflection] {result or '-'}"


def generic_line(record: Record) -> str:
    """A turn as a generic structured summary (SM-only, C.4): what was done, what came of it."""
    summary = f" [Summary] {record.summary}" if record.summary else ""
    return f"Turn {record.turn}: [Action] {record.action or '-'} [Outcome] {record.outcome}{summary}"


def is_heard(turn: Turn, replayed: ReplaySignals, tag: str) -> bool:
    """Whether a reply's own metadata counts: a live agent's always, a replayed one's by the setting.

    `heuristic` guesses for replies without `tag` and leaves those that have it alone.
    """
    if turn.may_remind or replayed is ReplaySignals.recorded:
        return True
    extra = turn.signals.extra
    return replayed is ReplaySignals.heuristic and tag in extra and "parse_miss" not in extra


class SignalReader:
    """The metadata of each reply, turns read in order."""

    def __init__(self, replayed: ReplaySignals) -> None:
        self._replayed = replayed
        self._heuristic = HeuristicSignals() if replayed is ReplaySignals.heuristic else None

    def read(self, turn: Turn) -> Metadata:
        """What the reply of `turn` says."""
        guessed = self._heuristic.read(turn) if self._heuristic else NOTHING_SAID
        if is_heard(turn, self._replayed, "status"):
            return metadata_of(turn.signals)
        return guessed


class Records:
    """The closed records of a history: of all turns but the newest."""

    def __init__(self, replayed: ReplaySignals, excerpt_chars: int) -> None:
        self._replayed = replayed
        self._excerpt_chars = excerpt_chars
        self._begin(None)

    def _begin(self, history: History | None) -> None:
        self._history = history
        self._reader = SignalReader(self._replayed)
        self._open: Record | None = None
        self.closed: list[Record] = []

    def follow(self, history: History) -> list[Record]:
        """The records of turns 1..t-1 of `history`."""
        if history is not self._history:
            self._begin(history)
        first = self._open.turn + 1 if self._open else 1
        for index in range(first, len(history) + 1):
            turn = history.turn(index)
            said = self._reader.read(turn)
            if self._open is not None:
                self.closed.append(closed(self._open, said, excerpt_chars=self._excerpt_chars))
            self._open = draft(turn, said, excerpt_chars=self._excerpt_chars)
        return self.closed


def _outcome(turn: Turn, shown: str) -> str:
    codes = [observation.returncode for observation in turn.observations if observation.returncode is not None]
    num_lines = shown.count("\n") + 1 if shown.strip() else 0
    size = f"{num_lines} {'line' if num_lines == 1 else 'lines'} of output"
    first = cut(shown.strip().split("\n", 1)[0], 80)
    returned = f"returned {codes[-1]}, " if codes else ""
    return f"{returned}{size}{': ' + first if first else ''}"

"""Stand-ins for what recorded runs lack: [STATUS], [AIM], [REFLECTION] and turn summaries, read off the turns.

For the replay of runs whose agents were never asked (`replay_signals: heuristic`). One forward pass, a turn is judged
by itself and by what came before: FAILURE on a non-zero return code or a traceback, MILESTONE on the first passing test
after an edit, SUCCESS on another passing run or a submission, ONGOING otherwise; the aim is the first sentence of the
thought, the reflection on a turn the first sentence of the next one. [choice] nothing is tuned to ARSM's Table 5.
"""

from __future__ import annotations

import re
from enum import StrEnum

from workers.actions import command_kind, without_blocks
from workers.history import Observation, Turn
from workers.renderers.arsm_signals import Metadata, Status

MAX_SENTENCE_CHARS = 200
# The plan of a run whose agent wrote none: the stages of fixing an issue.
CHECKLIST = (
    "Explore the code",
    "Understand the logic involved",
    "Find the root cause",
    "Change the source",
    "Verify and submit",
)

_SENTENCE_END = re.compile(r"[.!?](?=\s|$)")
_TEST = re.compile(r"\b(?:pytest|unittest|tox|nosetests?|ctest)\b|\btests?\b|test_|_test|runtests", re.I)
_FAILED = re.compile(r"\b[1-9]\d* (?:failed|errors?)\b|^(?:FAILED|ERROR)\b", re.M)
TRACEBACK = "Traceback (most recent call last)"


class ReplaySignals(StrEnum):
    """Where the metadata of replayed replies comes from; a live agent's always comes from its replies.

    `heuristic` guesses for replies that have none.
    """

    none = "none"
    recorded = "recorded"
    heuristic = "heuristic"


class HeuristicSignals:
    """Reads turns in order and gives what each reply would have said."""

    def __init__(self) -> None:
        self._is_edited = False  # something changed since the last milestone
        self._before: Turn | None = None

    def read(self, turn: Turn) -> Metadata:
        """The metadata of the reply of `turn`, which is about the turn before and about its own action."""
        sentence = thought(turn)
        before, self._before = self._before, turn
        if before is None:
            return Metadata(aim=sentence, checklist=CHECKLIST)
        return Metadata(self._status(before), reflection=sentence, summary=sentence, aim=sentence)

    def _status(self, turn: Turn) -> Status:
        kinds = {command_kind(action.command) for action in turn.actions}
        status = Status.ongoing
        if any(has_failed(observation) for observation in turn.observations):
            status = Status.failure
        elif "run" in kinds and not any(_FAILED.search(observation.body) for observation in turn.observations):
            is_first = self._is_edited and any(_TEST.search(action.command) for action in turn.actions)
            status = Status.milestone if is_first else Status.success
        elif "submit" in kinds:
            status = Status.success
        if status is Status.milestone:
            self._is_edited = False
        elif kinds & {"edit", "write"}:
            self._is_edited = True
        return status


def has_failed(observation: Observation) -> bool:
    """A non-zero return code or a traceback."""
    return observation.returncode not in (None, 0) or TRACEBACK in observation.body


def thought(turn: Turn) -> str:
    """The first sentence of a reply's prose, or of its reasoning when it has no prose; at most 200 characters."""
    prose = without_blocks(turn.assistant.content).strip().removeprefix("THOUGHT:").strip()
    prose = prose or (turn.assistant.reasoning or "").strip()
    line = " ".join(prose.split("\n", 1)[0].split())
    end = _SENTENCE_END.search(line)
    return line[: end.end() if end else len(line)][:MAX_SENTENCE_CHARS].rstrip()

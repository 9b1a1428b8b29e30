"""agentdiet: the served model rewrites one earlier output a step, if that saves enough (ReFold appendix D.4).

The candidate is the newest output that is no longer exempt; the call shows it between the two steps before it and the
one after. Rewrites are memos. The calls are priced as uncached prompt tokens, whatever the cache served.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from serving.calls import CallKind, Message
from serving.interfaces import TokenCounter
from workers.errors import AuxiliaryError
from workers.history import History, Memo, Rendered, Turn, TurnKind
from workers.interfaces import AuxCaller
from workers.renderers.common import Quiet, Session
from workers.renderers.composing import check_least, check_share
from workers.renderers.edited_rows import EditedRows, num_edited

REWRITE = "rewrite"
FAILURE = "rewrite_failed"
MAX_TRIES = 2  # calls for one output when the first came back empty, [choice]
_SYSTEM = """\
You shorten the tool outputs in the transcript of a software agent, so that it can go on with fewer tokens. You get a \
few consecutive steps; one output is the target. Rewrite the target only. Leave out what is of no use for the rest of \
the work (progress bars, boilerplate, passing tests), what is said elsewhere in these steps, and what later steps have \
overtaken; write `... (what was left out)` in its place. Keep everything else word for word: paths, line numbers, code \
the agent works on, error messages. Answer with the new text of the target output, nothing before or after it."""


class Candidate(NamedTuple):
    """The output to rewrite: the longest of its turn."""

    turn: Turn
    observation: int
    num_tokens: int


@dataclass(frozen=True)
class AgentDiet(Quiet, Session):
    """Have one output longer than theta tokens rewritten at each step; adopt the text if it saves more than theta.

    Attributes:
        theta_tokens: theta; the paper runs 500 and 150.
        keep_recent: newest turns that are exempt; the candidate is the one before them.
        before, after: steps shown around the candidate.
        max_rewrite_tokens: longest rewrite.
        declared_share: length of a rewrite, in shares of the output, where no model writes one.
    Invariants: at most one call a step; an output is rewritten at most once; its frame stays.
    Source: ReFold (arXiv 2610.07863) appendix D.4; AgentDiet (arXiv 2509.23586). Which output is the candidate, and
        declared_share, are our choice.
    """

    theta_tokens: int = 500
    keep_recent: int = 3
    before: int = 2
    after: int = 1
    max_rewrite_tokens: int = 2048
    declared_share: float = 0.5

    REVISION: ClassVar[int] = 1

    def __post_init__(self) -> None:
        for key in ("theta_tokens", "keep_recent", "max_rewrite_tokens"):
            check_least("agentdiet", key, getattr(self, key), 1)
        for key in ("before", "after"):
            check_least("agentdiet", key, getattr(self, key), 0)
        check_share("agentdiet", "declared_share", self.declared_share)

    def start(self, *, counter: TokenCounter, budget_tokens: int, path: str) -> None:
        """Begin a session; the budget plays no part."""
        self._begin(DietCache(counter, path))

    async def observe(self, history: History, seen: Rendered, aux: AuxCaller) -> tuple[Memo, ...]:
        """Rewrite the newest output that is not exempt, or one whose call came back empty before."""
        candidate = self._candidate(history)
        if candidate is None:
            return ()
        return (await self._rewrite(history, candidate, aux),)

    def render(self, history: History, visible_from: int = 1) -> Rendered:
        """All turns, adopted rewrites in place of their outputs."""
        cache: DietCache = self._cache
        segments = cache.rows.segments(history, cache.adopted(history), visible_from)
        boundary = max(0, len(history) - self.keep_recent)
        return Rendered(segments, boundary=boundary, num_stubs=num_edited(segments))

    def _candidate(self, history: History) -> Candidate | None:
        cache: DietCache = self._cache
        index = len(history) - self.keep_recent
        if index < 1:
            return None
        newest = cache.longest(history.turn(index))
        if newest is not None and newest.num_tokens > self.theta_tokens:
            return newest
        for turn in cache.failed(history):
            return cache.longest(history.turn(turn))
        return None

    async def _rewrite(self, history: History, candidate: Candidate, aux: AuxCaller) -> Memo:
        cache: DietCache = self._cache
        num_tokens = candidate.num_tokens
        data: dict[str, Any] = {
            "turn": candidate.turn.index,
            "observation": candidate.observation,
            "num_tokens": num_tokens,
        }

        def saves_enough(text: str) -> bool:
            return num_tokens - cache.counter.count_text(text) > self.theta_tokens

        try:
            reply = await aux(
                kind=CallKind.rewrite,
                messages=self.request(history, candidate),
                max_completion_tokens=self.max_rewrite_tokens,
                declared_tokens=max(1, int(num_tokens * self.declared_share)),
                is_priced_uncached=True,
                adopt=saves_enough,
            )
        except AuxiliaryError as exc:
            return Memo(cache.path, FAILURE, len(history), data | {"error": str(exc)})
        data["num_rewrite_tokens"] = cache.counter.count_text(reply.text)
        data["text"] = reply.text if saves_enough(reply.text) else None
        return Memo(cache.path, REWRITE, len(history), data)

    def request(self, history: History, candidate: Candidate) -> tuple[Message, ...]:
        """The messages of a rewriting call: the steps around the candidate, as first shown, and the target marked."""
        target = candidate.turn.index
        first, last = max(1, target - self.before), min(len(history), target + self.after)
        parts = []
        for index in range(first, last + 1):
            turn = history.turn(index)
            parts.append(f"=== step {turn.label}: the agent\n{_spoken(turn)}")
            for number, observation in enumerate(turn.observations):
                is_target = index == target and number == candidate.observation
                mark = " (TARGET)" if is_target else ""
                text = observation.body if is_target else observation.shown
                parts.append(f"=== step {turn.label}: output{mark}\n{text}")
        parts.append(f"=== Rewrite the output of step {candidate.turn.label} marked (TARGET).")
        return Message("system", _SYSTEM), Message("user", "\n\n".join(parts))


def _spoken(turn: Turn) -> str:
    """What the agent said and ran in a step."""
    commands = [action.command for action in turn.actions if action.tool_call_id is not None]
    return "\n".join(part for part in (turn.assistant.content, *commands) if part)


class DietCache:
    """One session's collaborators and the segments of its turns."""

    def __init__(self, counter: TokenCounter, path: str) -> None:
        self.counter = counter
        self.path = path
        self.rows = EditedRows(_rewritten)

    def longest(self, turn: Turn) -> Candidate | None:
        """The longest output of a turn in tokens, the first of equals; None for a turn without a command."""
        if turn.kind is TurnKind.format_error or not turn.observations:
            return None
        sizes = [self.counter.count_text(observation.body) for observation in turn.observations]
        number = max(range(len(sizes)), key=lambda position: (sizes[position], -position))
        return Candidate(turn, number, sizes[number])

    def failed(self, history: History) -> list[int]:
        """Turns whose calls all came back empty and that may be tried again, oldest first."""
        tries: dict[int, int] = {}
        for memo in history.memos(self.path):
            turn = memo.data["turn"]
            tries[turn] = tries.get(turn, 0) + 1 if memo.kind == FAILURE else MAX_TRIES
        return sorted(turn for turn, number in tries.items() if number < MAX_TRIES)

    def adopted(self, history: History) -> list[tuple[int, Memo]]:
        """The turns with an adopted rewrite."""
        return [
            (memo.data["turn"], memo)
            for memo in history.memos(self.path)
            if memo.kind == REWRITE and memo.data["text"] is not None
        ]


def _rewritten(turn: Turn, memo: Memo) -> list[str]:
    """The texts of a turn's observations with the rewrite in its frame."""
    texts = [observation.shown for observation in turn.observations]
    target = turn.observations[memo.data["observation"]]
    texts[memo.data["observation"]] = target.head + memo.data["text"] + target.tail
    return texts

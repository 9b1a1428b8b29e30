"""llmlingua2: drop half of the tokens of long outputs once they are no longer recent (ReFold appendix D.4).

A token classifier decides which tokens stay. An output is compressed once, when it leaves the newest `keep_recent`, and
the text is kept as a memo, so that rendering again needs no classifier. Scorers: `llmlingua2_scorers`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from serving.interfaces import TokenCounter
from workers.history import History, Memo, Rendered, Turn, TurnKind
from workers.interfaces import AuxCaller
from workers.renderers.common import Quiet, Session
from workers.renderers.composing import check_least, check_share, chosen
from workers.renderers.edited_rows import EditedRows, num_edited
from workers.renderers.llmlingua2_scorers import LlmLingua, RarityScorer, TokenScorer

COMPRESSION = "compress"


class TokenScorerKind(StrEnum):
    """Who decides which tokens stay."""

    rarity = "rarity"
    llmlingua = "llmlingua"


@dataclass(frozen=True)
class LlmLingua2(Quiet, Session):
    """Keep `rate` of the tokens of every output of at least `min_chars` characters behind the newest `keep_recent`.

    Attributes:
        scorer: rarity (deterministic, needs nothing) or llmlingua (the package of that name and a released classifier).
        rate: share of the tokens that stay.
        min_chars: shortest output body that is compressed.
        keep_recent: newest turns whose outputs stay whole.
        model: name or folder of the classifier for scorer=llmlingua.
        device: where it runs.
    Invariants: the characters that frame an output stay; a compressed body is shorter than the output.
    Source: ReFold (arXiv 2610.07863) appendix D.4; LLMLingua-2 (arXiv 2403.12968).
    """

    scorer: TokenScorerKind = TokenScorerKind.rarity
    rate: float = 0.5
    min_chars: int = 2000
    keep_recent: int = 3
    model: str = "microsoft/llmlingua-2-xlm-roberta-large-meetingbank"
    device: str = "cuda"

    REVISION: ClassVar[int] = 1
    PROVENANCE: ClassVar[frozenset[str]] = frozenset({"device"})

    def __post_init__(self) -> None:
        check_share("llmlingua2", "rate", self.rate)
        for key, least in (("min_chars", 1), ("keep_recent", 0)):
            check_least("llmlingua2", key, getattr(self, key), least)
        object.__setattr__(self, "scorer", chosen("llmlingua2", "scorer", self.scorer, TokenScorerKind))

    def start(self, *, counter: TokenCounter, budget_tokens: int, path: str) -> None:
        """Begin a session.

        Raises:
            ConfigurationError: the llmlingua scorer needs a package that is not installed.
        """
        scorer: TokenScorer = RarityScorer()
        if self.scorer is TokenScorerKind.llmlingua:
            scorer = LlmLingua(self.model, self.device)
        self._begin(CompressionCache(path, scorer))

    async def observe(self, history: History, seen: Rendered, aux: AuxCaller) -> tuple[Memo, ...]:
        """Compress the turn that leaves the newest `keep_recent`."""
        index = len(history) - self.keep_recent
        if index < 1:
            return ()
        cache: CompressionCache = self._cache
        turn = history.turn(index)
        if turn.kind is TurnKind.format_error:
            return ()
        bodies: list[str | None] = []
        for observation in turn.observations:
            body = None
            if len(observation.body) >= self.min_chars:
                compressed = await cache.scorer.compress(observation.body, self.rate)
                body = compressed if len(compressed) < len(observation.body) else None
            bodies.append(body)
        if not any(body is not None for body in bodies):
            return ()
        data = {"turn": index, "scorer": cache.scorer.name, "bodies": bodies}
        return (Memo(cache.path, COMPRESSION, len(history), data),)

    def render(self, history: History, visible_from: int = 1) -> Rendered:
        """All turns, compressed outputs in their compressed form."""
        cache: CompressionCache = self._cache
        rows = cache.rows
        memos = [(memo.data["turn"], memo) for memo in rows.unread(history, cache.path)]
        segments = rows.segments(history, memos, visible_from)
        boundary = max(0, len(history) - self.keep_recent)
        num_stubs = rows.num_stubs if visible_from == 1 else num_edited(segments)
        return Rendered(segments, boundary=boundary, num_stubs=num_stubs)


class CompressionCache:
    """One session's scorer and the segments of its turns."""

    def __init__(self, path: str, scorer: TokenScorer) -> None:
        self.path = path
        self.scorer = scorer
        self.rows = EditedRows(_compressed)


def _compressed(turn: Turn, memo: Memo) -> list[str]:
    """The texts of a turn's observations, compressed bodies in their frames."""
    return [
        observation.shown if body is None else observation.head + body + observation.tail
        for observation, body in zip(turn.observations, memo.data["bodies"], strict=True)
    ]

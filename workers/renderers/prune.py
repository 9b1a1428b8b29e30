"""prune: keep the lines of a read or search that bear on the agent's focus question (SWE-Pruner, ReFold appendix B.1).

The prompt asks for a focus question with each command. A scorer keeps lines of the output when it arrives, and what was
kept then is shown for ever, so that no prompt is rewritten. The kept lines are a memo; the scorers are in
`prune_scorers`, the text is made in `prune_lines`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from serving.calls import Message
from serving.clock import is_virtual
from serving.interfaces import TokenCounter
from workers.actions import command_kind
from workers.history import (
    NO_SIGNALS,
    Action,
    History,
    Memo,
    Observation,
    Rendered,
    Signals,
    Turn,
    TurnKind,
)
from workers.interfaces import AuxCaller, HarnessTemplate, SignalRequest
from workers.renderers.common import Quiet, Session
from workers.renderers.composing import check_least, chosen
from workers.renderers.edited_rows import EditedRows, num_edited
from workers.renderers.heuristic_signals import ReplaySignals, thought
from workers.renderers.prompt_layers import with_paragraph
from workers.renderers.prune_lines import capped, pruned_text
from workers.renderers.prune_scorers import HttpScorer, LexicalScorer, Scorer, ScorerError

PRUNING = "prune"
FOCUS = "focus_question"
_TAG = re.compile(r"<context_focus_question>(.*?)</context_focus_question>", re.S | re.I)
_LAYER = (
    "Focus question: the output of a file read or a search is cut down to the lines that bear on what you want to "
    "know. After the command of your response write one full question that its output should answer, as "
    "`<context_focus_question>How does the parser decide which dialect to use?</context_focus_question>`. Ask about "
    "behaviour, name no files and no line numbers. Without the question the whole output is shown. Lines left out are "
    "marked `(filtered N lines)`, which is NOT part of the file."
)


class ScorerKind(StrEnum):
    """Who judges the lines."""

    lexical = "lexical"
    http = "http"


@dataclass(frozen=True)
class Prune(Quiet, Session):
    """Keep the relevant lines of file reads and searches when they arrive.

    Attributes:
        scorer: lexical (BM25 over lines, needs nothing) or http (the released scorer behind its `/prune` API).
        threshold: least score of a kept line.
        min_chars: shorter outputs stay as they are.
        cap_chars: a pruned output that is still longer keeps its first and last half of so many characters.
        replay_signals: none | recorded | heuristic: where replayed replies, which were never asked, get their question;
            heuristic takes the first sentence of the reply's text.
        scorer_s: declared seconds of a scorer call. A real scorer on a wall clock takes its own time instead.
        url, timeout_s, num_tries: of the http scorer.
    Invariants: the prompt of step t+1 starts with the prompt of step t; an output is judged once.
    Source: ReFold (arXiv 2610.07863) appendix B.1; SWE-Pruner (arXiv 2601.16746).
    """

    scorer: ScorerKind = ScorerKind.lexical
    threshold: float = 0.5
    min_chars: int = 500
    cap_chars: int = 10_000
    replay_signals: ReplaySignals = ReplaySignals.heuristic
    scorer_s: float = 0.4
    url: str = "http://127.0.0.1:8000"
    timeout_s: float = 120.0
    num_tries: int = 3

    REVISION: ClassVar[int] = 1
    PROVENANCE: ClassVar[frozenset[str]] = frozenset({"timeout_s", "num_tries"})

    def __post_init__(self) -> None:
        for key, least in (("threshold", 0), ("min_chars", 1), ("cap_chars", 2), ("scorer_s", 0), ("num_tries", 1)):
            check_least("prune", key, getattr(self, key), least)
        object.__setattr__(self, "scorer", chosen("prune", "scorer", self.scorer, ScorerKind))
        source = chosen("prune", "replay_signals", self.replay_signals, ReplaySignals)
        object.__setattr__(self, "replay_signals", source)

    @property
    def signals(self) -> SignalRequest | None:
        """A focus question with each command."""
        return SignalRequest("focus", 1)

    def start(self, *, counter: TokenCounter, budget_tokens: int, path: str) -> None:
        """Begin a session.

        Raises:
            ConfigurationError: the http scorer needs a package that is not installed.
        """
        scorer: Scorer = LexicalScorer()
        if self.scorer is ScorerKind.http:
            scorer = HttpScorer(self.url, timeout_s=self.timeout_s, num_tries=self.num_tries)
        self._begin(PruneCache(path, scorer, self.cap_chars))

    def prompt_layer(self, template: HarnessTemplate) -> HarnessTemplate:
        """A paragraph that asks for the focus question, in the system prompt."""
        return with_paragraph(template, _LAYER)

    def read_reply(self, reply: Message) -> Signals:
        """The focus question of a reply, as `extra`."""
        match = _TAG.search(reply.content)
        question = " ".join(match[1].split()) if match else ""
        return Signals(extra={FOCUS: question}) if question else NO_SIGNALS

    async def observe(self, history: History, seen: Rendered, aux: AuxCaller) -> tuple[Memo, ...]:
        """Judge the newest turn's reads and searches.

        An output whose scorer call failed is shown whole, and the memo says why.
        """
        turn = history.turn(len(history))
        question, source = self._question(turn)
        if not question or turn.kind is not TurnKind.command:
            return ()
        outputs = [
            (number, observation)
            for number, (action, observation) in enumerate(zip(turn.actions, turn.observations, strict=False))
            if self._is_prunable(action, observation)
        ]
        return (await self._judge(turn, outputs, {"question": question, "question_source": source}),) if outputs else ()

    def render(self, history: History, visible_from: int = 1) -> Rendered:
        """All turns, pruned outputs as they were pruned."""
        cache: PruneCache = self._cache
        rows = cache.rows
        memos = [(memo.after_turn, memo) for memo in rows.unread(history, cache.path)]
        segments = rows.segments(history, memos, visible_from)
        newest = rows.newest
        own_s = newest.data["own_s"] if newest is not None and newest.after_turn == len(history) else 0.0
        num_stubs = rows.num_stubs if visible_from == 1 else num_edited(segments)
        return Rendered(segments, num_stubs=num_stubs, own_s_modelled=own_s)

    def _is_prunable(self, action: Action, observation: Observation) -> bool:
        return len(observation.body) >= self.min_chars and command_kind(action.command) in ("read", "search")

    def _question(self, turn: Turn) -> tuple[str, str]:
        """The question of a turn, empty when there is none, and where it is from: written or heuristic."""
        written = turn.signals.extra.get(FOCUS, "")
        is_replayed = not turn.may_remind
        if is_replayed and self.replay_signals is ReplaySignals.none:
            return "", ""
        if is_replayed and not written and self.replay_signals is ReplaySignals.heuristic:
            return thought(turn), "heuristic"
        return written, "written"

    async def _judge(self, turn: Turn, outputs: list[tuple[int, Observation]], asked: dict[str, str]) -> Memo:
        cache: PruneCache = self._cache
        kept: dict[str, list[int]] = {}  # observation number -> lines; JSON knows text keys only
        failures: dict[str, str] = {}
        for number, observation in outputs:
            try:
                kept[str(number)] = await cache.scorer.kept_lines(asked["question"], observation.body, self.threshold)
            except ScorerError as exc:
                failures[str(number)] = str(exc)
        is_timed = cache.scorer.is_stand_in or is_virtual()
        data = {
            **asked,
            "scorer": cache.scorer.name,
            "own_s": self.scorer_s * len(outputs) if is_timed else 0.0,
            "kept": kept,
            "failures": failures,
        }
        return Memo(cache.path, PRUNING, turn.index, data)


class PruneCache:
    """One session's scorer and the segments of its turns."""

    def __init__(self, path: str, scorer: Scorer, cap_chars: int) -> None:
        self.path = path
        self.scorer = scorer
        self.rows = EditedRows(self._pruned)
        self._cap_chars = cap_chars

    def _pruned(self, turn: Turn, memo: Memo) -> list[str]:
        """The texts of a turn's observations, judged bodies pruned and capped in their frames."""
        texts = [observation.shown for observation in turn.observations]
        for number, kept in memo.data["kept"].items():
            observation = turn.observations[int(number)]
            body = capped(pruned_text(observation.body, kept), self._cap_chars)
            texts[int(number)] = observation.head + body + observation.tail
        return texts

"""What plain_summary and structured_summary share: one summary of all but the newest turns, rewritten again and again.

[choice] the paper does not say who writes it. `written_by: reply` asks for it inside every reply, so it costs no call
of its own; `aux` makes one auxiliary call a turn. In replay, whose replies hold no summary, a deterministic one is made
from the thoughts and outputs (`replay_signals: heuristic`). Not a renderer itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import ClassVar

from serving.calls import CallKind, Message
from serving.interfaces import TokenCounter
from workers.errors import AuxiliaryError, ConfigurationError
from workers.history import Form, History, Memo, Part, Rendered, Segment, Signals, Turn, agent_segment
from workers.interfaces import AuxCaller, HarnessTemplate, SignalRequest
from workers.renderers.arsm_records import Record, Records, is_heard
from workers.renderers.common import Quiet, Rows, Session
from workers.renderers.composing import chosen
from workers.renderers.heuristic_signals import ReplaySignals
from workers.renderers.prompt_layers import with_text

HEADING = "[Summary of the steps before]"
RECORD_CHARS = 200  # of an output or a thought in a stand-in summary
MEMO_KIND = "turn_summary"  # not `summary`, which counts compactions
FAILED_KIND = "turn_summary_failed"
_SUMMARY = re.compile(r"<summary>(.*?)</summary>\s*", re.I | re.S)

_IN_REPLY = """\
Your memory: only your newest {recent} shown in full. Everything before reaches you through one summary, which you \
rewrite in every reply. What you leave out is gone.
Begin every reply with the whole summary, rewritten with what the last output adds, in at most {words} words, then \
give your command as the format asks:
<summary>
{form}
</summary>"""


class WrittenBy(StrEnum):
    """Who writes the summary."""

    reply = "reply"
    aux = "aux"


@dataclass(frozen=True, slots=True)
class Summary:
    """A summary text of turns 1..`last_turn`."""

    text: str = ""
    last_turn: int = 0


@dataclass(frozen=True)
class SummaryRenderer(Quiet, Session):
    """Opening, one summary, the newest turns in full; the fields are described in `PlainSummary`.

    Source: ARSM (arXiv 2609.32852) Table 6 and appendix C.4.
    """

    keep_recent: int = 1
    written_by: WrittenBy = WrittenBy.reply
    max_words: int = 300
    max_summary_tokens: int = 1000
    replay_signals: ReplaySignals = ReplaySignals.heuristic

    name: ClassVar[str]

    def __post_init__(self) -> None:
        for key in ("keep_recent", "max_words", "max_summary_tokens"):
            if getattr(self, key) < 1:
                raise ConfigurationError(f"renderer {self.name}: {key}={getattr(self, key)}; give at least 1")
        object.__setattr__(self, "written_by", chosen(self.name, "written_by", self.written_by, WrittenBy))
        choice = chosen(self.name, "replay_signals", self.replay_signals, ReplaySignals)
        object.__setattr__(self, "replay_signals", choice)

    @property
    def form(self) -> str:
        """What stands between the summary tags in the prompt layer."""
        raise NotImplementedError

    def shown(self, text: str) -> str:
        """A written summary as it is shown."""
        raise NotImplementedError

    def guessed(self, task: str, records: list[Record]) -> str:
        """The stand-in for the summary an agent would have written after these turns."""
        raise NotImplementedError

    @property
    def signals(self) -> SignalRequest | None:
        """A summary in every reply, unless auxiliary calls write it."""
        return SignalRequest("summary", 1) if self.written_by is WrittenBy.reply else None

    def start(self, *, counter: TokenCounter, budget_tokens: int, path: str) -> None:
        """Begin a session; needs neither counter nor budget."""
        self._begin(SummaryCache(self.replay_signals, self.guessed, path))

    def prompt_layer(self, template: HarnessTemplate) -> HarnessTemplate:
        """Asks for the summary in every reply; nothing where auxiliary calls write it."""
        if self.written_by is WrittenBy.aux:
            return template
        recent = "step is" if self.keep_recent == 1 else f"{self.keep_recent} steps are"
        return with_text(template, _IN_REPLY.format(recent=recent, words=self.max_words, form=self.form))

    def read_reply(self, reply: Message) -> Signals:
        """The summary of a reply."""
        text = summary_in(reply.content)
        return Signals(progress=text or None, asked=True, extra={"summary": text} if text else {})

    async def observe(self, history: History, seen: Rendered, aux: AuxCaller) -> tuple[Memo, ...]:
        """With `written_by: aux`, have the summary rewritten up to the turns that stay in full.

        A failed call is noted; the summary before it stays and the turns it lacks are shown in full.
        """
        cache: SummaryCache = self._cache
        last = len(history) - self.keep_recent
        before = cache.newest_memo(history)
        if self.written_by is WrittenBy.reply or last <= before.last_turn:
            return ()
        try:
            reply = await aux(
                kind=CallKind.summary,
                messages=self._request(history, before, last),
                max_completion_tokens=self.max_summary_tokens,
                declared_tokens=self.max_summary_tokens,
            )
        except AuxiliaryError as exc:
            return (Memo(cache.path, FAILED_KIND, len(history), {"error": str(exc)}),)
        return (Memo(cache.path, MEMO_KIND, len(history), {"text": reply.text, "last_turn": last}),)

    def render(self, history: History, visible_from: int = 1) -> Rendered:
        """The summary and the turns it lacks, at least the newest `keep_recent`."""
        cache: SummaryCache = self._cache
        num_turns = len(history)
        if self.written_by is WrittenBy.aux:
            summary = cache.newest_memo(history)
        else:
            summary = cache.newest_in_replies(history)
        first = max(visible_from, min(summary.last_turn, num_turns - self.keep_recent) + 1, 1)
        segments = cache.rows.opening(history)
        if summary.text:
            message = Message("user", f"{HEADING}\n{self.shown(summary.text)}")
            segments.append(Segment((message,), 1, max(1, first - 1), Form.summary, Part.note))
        segments += cache.raw(history, first)
        return Rendered(tuple(segments), boundary=first - 1)

    def _request(self, history: History, before: Summary, last: int) -> tuple[Message, ...]:
        """The prompt of one rewriting call: the task, the summary so far, the turns it lacks."""
        task = history.opening[-1].content
        turns = "\n\n".join(_transcript(history.turn(index)) for index in range(before.last_turn + 1, last + 1))
        text = (
            f"An agent works on this task:\n{task}\n\nSummary of its steps so far:\n{before.text or '(none)'}\n\n"
            f"Its next steps:\n{turns}\n\nRewrite the summary so that it covers these steps too, in at most "
            f"{self.max_words} words. Give the summary alone:\n{self.form}"
        )
        return (Message("user", text),)


class SummaryCache:
    """What one session's renders share; everything in it can be made again from the history."""

    def __init__(self, replayed: ReplaySignals, guessed: Callable[[str, list[Record]], str], path: str) -> None:
        self.path = path
        self.rows = Rows()
        self._replayed = replayed
        self._guessed = guessed
        self._begin(None)

    def _begin(self, history: History | None) -> None:
        self._history = history
        self._records = Records(self._replayed, excerpt_chars=RECORD_CHARS)
        self._stripped: dict[int, Segment] = {}

    def newest_in_replies(self, history: History) -> Summary:
        """The summary in the newest reply that has one; the reply of turn n speaks of turns 1..n-1."""
        for index in range(len(history), 0, -1):
            turn = history.turn(index)
            if is_heard(turn, self._replayed, "summary"):
                if text := turn.signals.extra.get("summary"):
                    return Summary(text, index - 1)
            elif self._replayed is ReplaySignals.heuristic:
                records = self._records.follow(history)[: index - 1]
                return Summary(self._guessed(history.opening[-1].content, records), index - 1)
        return Summary()

    def newest_memo(self, history: History) -> Summary:
        """The summary that the newest auxiliary call wrote."""
        for memo in reversed(history.all_memos):
            if memo.owner == self.path and memo.kind == MEMO_KIND:
                return Summary(memo.data["text"], memo.data["last_turn"])
        return Summary()

    def raw(self, history: History, first: int) -> list[Segment]:
        """Turns `first`..t in full, each reply without the summary it wrote: that one is shown as its own message."""
        if history is not self._history:
            self._begin(history)
        segments = self.rows.between(history, first, len(history))
        for place in range(0, len(segments), 2):
            turn = segments[place].first_turn
            if turn not in self._stripped:
                self._stripped[turn] = _without_summary(segments[place])
            segments[place] = self._stripped[turn]
        return segments


def summary_in(content: str) -> str:
    """The text between the summary tags of a reply, empty without them."""
    found = _SUMMARY.search(content)
    return found[1].strip() if found else ""


def _without_summary(segment: Segment) -> Segment:
    message = segment.messages[0]
    content = _SUMMARY.sub("", message.content, count=1)
    return segment if content == message.content else replace(segment, messages=(replace(message, content=content),))


def _transcript(turn: Turn) -> str:
    """One turn as plain text for the summarizing call."""
    outputs = "\n".join(observation.shown for observation in turn.observations)
    return f"Agent:\n{agent_segment(turn).messages[0].content}\nCommand:\n{turn.command}\nOutput:\n{outputs}"

"""har_only: every closed turn as an HAR record, the oldest whole records dropped at the budget (Table 6, C.4).

The records stand in one message behind the task, in chronological order, so that the prompt only grows until a record
is dropped. The newest turns, which no reply has reflected on yet, follow in full.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from serving.calls import Message
from serving.interfaces import TokenCounter
from workers.errors import ConfigurationError
from workers.history import Form, History, Part, Rendered, Segment, Signals
from workers.interfaces import HarnessTemplate, SignalRequest
from workers.renderers.arsm_prompt import records_layer
from workers.renderers.arsm_records import Records, har_line
from workers.renderers.arsm_signals import parse_reply
from workers.renderers.common import Quiet, Rows, Session
from workers.renderers.composing import chosen
from workers.renderers.heuristic_signals import ReplaySignals
from workers.renderers.prompt_layers import with_text

HEADING = "[Hypothesis-Action-Result records]"
_DROPPED = "({number} older records were dropped)"
_FRAME_TOKENS = 32  # [choice] heading, role frames and generation prompt, so that an estimate never overruns the budget


@dataclass(frozen=True)
class HarOnly(Quiet, Session):
    """Accumulate HAR records; at the budget the oldest complete ones go for good.

    Attributes:
        keep_recent: newest turns shown in full.
        excerpt_chars: characters of an output, an action or a reply's text in a record.
        budget_share: share of the context budget that counts as reached; 1 is the paper's word.
        replay_signals: none | recorded | heuristic: where replayed replies get their tags.
    Source: ARSM (arXiv 2609.32852) Table 6 and appendix C.4.
    """

    keep_recent: int = 1
    excerpt_chars: int = 360
    budget_share: float = 1.0
    replay_signals: ReplaySignals = ReplaySignals.heuristic

    REVISION: ClassVar[int] = 2

    def __post_init__(self) -> None:
        if self.keep_recent < 1 or self.excerpt_chars < 1:
            raise ConfigurationError(
                f"renderer har_only: keep_recent={self.keep_recent}, excerpt_chars={self.excerpt_chars}; "
                "give at least 1 for both"
            )
        if not 0 < self.budget_share <= 1:
            raise ConfigurationError(f"renderer har_only: budget_share={self.budget_share}; give a share up to 1")
        choice = chosen("har_only", "replay_signals", self.replay_signals, ReplaySignals)
        object.__setattr__(self, "replay_signals", choice)

    @property
    def signals(self) -> SignalRequest | None:
        """Aim and reflection of every reply."""
        return SignalRequest("har", 1)

    def start(self, *, counter: TokenCounter, budget_tokens: int, path: str) -> None:
        """Begin a session within `budget_tokens`."""
        self._begin(HarCache(self, counter, int(budget_tokens * self.budget_share)))

    def prompt_layer(self, template: HarnessTemplate) -> HarnessTemplate:
        """The two tags, in the place of the item that asks for reasoning."""
        return with_text(template, records_layer(self.keep_recent))

    def read_reply(self, reply: Message) -> Signals:
        """The tags of the reply's content; without the aim it is a miss."""
        found = parse_reply(reply.content)
        extra = {key: value for key, value in found.extra.items() if key not in ("parse_miss", "status")}
        return Signals(progress=extra.get("aim"), asked=True, extra=extra)

    def render(self, history: History, visible_from: int = 1) -> Rendered:
        """The records that are left of turns `visible_from`..t-K, then the last K turns in full."""
        cache: HarCache = self._cache
        num_turns = len(history)
        first_raw = max(1, num_turns - self.keep_recent + 1, visible_from)
        cache.follow(history)
        segments = cache.rows.opening(history)
        first = max(cache.num_dropped, visible_from - 1)
        lines = cache.lines[first : first_raw - 1]
        if lines:
            dropped = [_DROPPED.format(number=cache.num_dropped)] if cache.num_dropped else []
            message = Message("user", "\n".join([HEADING, *dropped, *lines]))
            segments.append(Segment((message,), first + 1, first_raw - 1, Form.folded, Part.note))
        segments += cache.rows.between(history, first_raw, num_turns)
        cache.rows.forget(num_turns - self.keep_recent)
        return Rendered(tuple(segments), boundary=first_raw - 1, num_folded=len(lines))


class HarCache:
    """The forward pass that decides, turn by turn, how many of the oldest records are gone.

    Attributes:
        lines: the records of turns 1..t-1 as lines, those that no prompt shows any more empty.
        num_dropped: records gone for good after the newest turn.
    """

    def __init__(self, settings: HarOnly, counter: TokenCounter, budget_tokens: int) -> None:
        self._settings = settings
        self._counter = counter
        self._budget_tokens = budget_tokens
        self._begin(None)

    def _begin(self, history: History | None) -> None:
        self._history = history
        self._records = Records(self._settings.replay_signals, self._settings.excerpt_chars)
        self._line_tokens: list[int] = []
        self._turn_tokens: list[int] = []
        self._opening_tokens = 0
        self.rows = Rows()
        self.lines: list[str] = []
        self.num_dropped = 0

    def follow(self, history: History) -> None:
        """Read the turns that are new."""
        if history is not self._history:
            self._begin(history)
            self._opening_tokens = self._tokens(self.rows.opening(history))
        records = self._records.follow(history)
        for record in records:
            self.lines.append(f"- {har_line(record)}")
            self._line_tokens.append(self._counter.count_text(self.lines[-1] + "\n"))
        records.clear()  # their lines are all that is shown
        for index in range(len(self._turn_tokens) + 1, len(history) + 1):
            self._turn_tokens.append(self._tokens(self.rows.between(history, index, index)))
            self._drop(index)

    def _drop(self, num_turns: int) -> None:
        """Drop the oldest records until the prompt after turn `num_turns` fits."""
        last = max(0, num_turns - self._settings.keep_recent)
        raw = sum(self._turn_tokens[last:])
        total = self._opening_tokens + _FRAME_TOKENS + raw + sum(self._line_tokens[self.num_dropped : last])
        while total > self._budget_tokens and self.num_dropped < last:
            total -= self._line_tokens[self.num_dropped]
            self.lines[self.num_dropped] = ""
            self.num_dropped += 1

    def _tokens(self, segments: list[Segment]) -> int:
        return sum(self._counter.count(message) for segment in segments for message in segment.messages)

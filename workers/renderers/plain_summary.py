"""plain_summary: the history as a single free-form summary, rewritten at every turn (Table 6, C.4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from workers.renderers.arsm_records import Record
from workers.renderers.arsm_summaries import SummaryRenderer


@dataclass(frozen=True)
class PlainSummary(SummaryRenderer):
    """Show one free-form summary and the newest turns.

    Attributes:
        keep_recent: newest turns shown in full.
        written_by: `reply` asks for the summary in every reply, `aux` makes an auxiliary call a turn.
        max_words: length the writer is asked for, and of the stand-in in replay.
        max_summary_tokens: limit of an auxiliary summary, and its declared length where no model answers.
        replay_signals: none | recorded | heuristic: where replayed replies get their summary.
    Source: ARSM (arXiv 2609.32852) Table 6 and appendix C.4; who writes it is our choice (methods part 4).
    """

    REVISION: ClassVar[int] = 2
    name: ClassVar[str] = "plain_summary"

    @property
    def form(self) -> str:
        """Free text."""
        return "<what was done, what it showed with the names and numbers you will need, what failed, what is left>"

    def shown(self, text: str) -> str:
        """As it was written."""
        return text

    def guessed(self, task: str, records: list[Record]) -> str:
        """One sentence a turn, the newest as far as the words reach."""
        lines: list[str] = []
        num_words = 0
        for record in reversed(records):
            line = f"Step {record.turn}: {record.result or record.action or 'no action'}"
            num_words += line.count(" ") + 1
            if lines and num_words > self.max_words:
                break
            lines.append(line)
        return "\n".join(reversed(lines))

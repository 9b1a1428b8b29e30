"""structured_summary: one summary with fixed fields, rewritten at every turn (Table 6, C.4)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar

from workers.renderers.arsm_records import Record, cut
from workers.renderers.arsm_signals import Status
from workers.renderers.arsm_summaries import SummaryRenderer

# Tag in a written summary -> heading in the shown one: the five fields of C.4.
FIELDS = {
    "GOAL": "Goal",
    "PROGRESS": "Progress",
    "OBSERVATIONS": "Important observations",
    "FAILURES": "Failures",
    "NEXT_ACTION": "Next action",
}
_ASKED = {
    "GOAL": "<what the task wants>",
    "PROGRESS": "<what is done>",
    "OBSERVATIONS": "<facts you will need, with names and numbers>",
    "FAILURES": "<what went wrong and why>",
    "NEXT_ACTION": "<what to do next>",
}
_TAG = re.compile(r"\[(" + "|".join(FIELDS) + r")\]", re.I)
_NUM_NEWEST = 5  # [choice] entries of a field of the stand-in summary


@dataclass(frozen=True)
class StructuredSummary(SummaryRenderer):
    """Show a summary of five fields and the newest turns.

    Attributes:
        keep_recent, written_by, max_words, max_summary_tokens, replay_signals: as in `PlainSummary`.
    Source: ARSM (arXiv 2609.32852) Table 6 and appendix C.4; who writes it is our choice (methods part 4).
    """

    REVISION: ClassVar[int] = 2
    name: ClassVar[str] = "structured_summary"

    max_words: int = 150
    max_summary_tokens: int = 400

    @property
    def form(self) -> str:
        """The five tags, one a line."""
        return "\n".join(f"[{tag}] {asked}" for tag, asked in _ASKED.items())

    def shown(self, text: str) -> str:
        """The fields in fixed order, `-` for one that is missing; text without any tag counts as progress."""
        marks = list(_TAG.finditer(text))
        ends = [mark.start() for mark in marks[1:]] + [len(text)]
        found = {} if marks else {"PROGRESS": text.strip()}
        for mark, end in zip(marks, ends, strict=False):
            found.setdefault(mark[1].upper(), text[mark.end() : end].strip(" \t\r\n*_:"))
        return "\n".join(f"# {heading}\n{found.get(tag) or '-'}" for tag, heading in FIELDS.items())

    def guessed(self, task: str, records: list[Record]) -> str:
        """The newest results, outputs and failures under their tags."""
        if not records:
            return ""
        newest = records[-_NUM_NEWEST:]
        failed = [record for record in records if record.status is Status.failure][-_NUM_NEWEST:]
        values = {
            "GOAL": cut(next((line for line in task.split("\n") if line.strip()), ""), 200),
            "PROGRESS": "; ".join(record.result for record in newest if record.result),
            "OBSERVATIONS": "; ".join(cut(record.excerpt, 80) for record in newest if record.excerpt),
            "FAILURES": "; ".join(cut(f"{record.action}: {record.error}", 120) for record in failed),
            "NEXT_ACTION": records[-1].result,
        }
        return "\n".join(f"[{tag}] {value}" for tag, value in values.items())

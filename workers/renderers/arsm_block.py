"""The state block as the model sees it: the sections and lines of ARSM's D.2, in its order."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from workers.renderers.arsm_records import Record
from workers.renderers.arsm_state import State

HEADING = "[Internal State Update]"


def state_block(
    state: State,
    *,
    line_of: Callable[[Record], str],
    loop_alerts: Iterable[str],
    has_ledger: bool,
    visible_from: int = 1,
) -> str:
    """The block of one state.

    Args:
        line_of: a record of the active path as one line.
        loop_alerts: the lines of that section.
        has_ledger: adds the candidates section, which D.2 does not have.
        visible_from: records of earlier turns are left to another renderer.
    """
    path = [line_of(record) for record in state.path if record.turn >= visible_from]
    sections = [
        HEADING,
        "# Global Checklist",
        *(_checklist(state) or ["- No checklist yet."]),
        *_section("# Pitfall", [pitfall.text for pitfall in state.pitfalls], "No pitfalls yet."),
        *_section("# Milestones", state.milestones, "No verified milestones yet."),
    ]
    if has_ledger:
        ledger = [f"{name}: {note}" if note else name for name, note in state.candidates.items()]
        sections += _section("# Candidates", ledger, "No candidates yet.")
    sections += _section("# Loop Alerts", loop_alerts, "No loop alerts.")
    sections += _section("# Active Reasoning Path", path, "No active path yet.")
    return "\n".join(sections)


def _checklist(state: State) -> list[str]:
    """`[x] 1. step` for finished steps, `[ ] 2. step` for the others."""
    return [
        f"[{'x' if number <= state.num_done else ' '}] {number}. {item}"
        for number, item in enumerate(state.checklist, start=1)
    ]


def _section(heading: str, lines: Iterable[str], empty: str) -> list[str]:
    return [heading, *([f"- {line}" for line in lines] or [f"- {empty}"])]

"""What our choices change on the recorded runs: every option of a renderer that departs from a paper's letter.

`python -m scripts.measure_choices [--only refold,compact]` prints the markdown tables of docs/choices.md. Every option
is rendered over the recorded runs beside its default, open loop: the replies do not react to what they are shown.

prompt, uncached: prompt tokens of all calls, and those the prefix cache (blocks of 16) did not hold, against the
default. folded, stubs, exempt: turns of the last prompts by form, per 100 turns. removed: observation tokens missing
from the prompts, as a share of the history's, each counted once per prompt.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from scripts.rendered_rows import RECORDED_RUNS, Rows, cell, rendered_rows


class Option(NamedTuple):
    """One setting against the default. `text` is what docs/choices.md calls it; the letter is marked with *."""

    text: str
    overrides: tuple[str, ...]


class Group(NamedTuple):
    """A renderer's options. `base` holds for all, the default included."""

    renderer: str
    base: tuple[str, ...]
    options: tuple[Option, ...]


def _settings(*texts: str) -> tuple[Option, ...]:
    """`exempt_on=folded_or_stubbed *` -> an option of the renderer of that name; several settings with ` + `."""
    options = []
    for text in texts:
        plain = text.removesuffix(" *")
        options.append(Option(text, tuple(f"renderer.{setting}" for setting in plain.split(" + "))))
    return tuple(options)


_BUDGET = ("context_budget_tokens=16384",)
GROUPS = (
    Group(
        "refold",
        (),
        _settings(
            "exempt_on=folded_or_stubbed *",
            "exempt_min_chars=1 *",
            "exempt_on=folded_or_stubbed + exempt_min_chars=1 *",
            "pin_restored=false *",
            "min_span_chars=1 *",
            "min_span_lines=1",
            "min_span_lines=10",
            "signature_lines=10",
            "note_role=tool_append",
            "note_role=merge_previous",
            "max_progress=3 *",
            "keep_test_summary=true",
            "chunked=false",
            "reversible=false",
        ),
    ),
    Group(
        "compact", _BUDGET, _settings("stack_share=1 *", "fit_share=1", "keep_recent=1", "summary_role=merge_previous")
    ),
    Group("recall", _BUDGET, _settings("shrink_share=0.75", "min_chars=1", "keep_recent=1")),
    Group("prune", (), _settings("min_chars=1", "threshold=0.3", "threshold=0.7")),
    Group("llmlingua2", (), _settings("keep_recent=0", "min_chars=500", "rate=0.33")),
    Group("agentdiet", (), _settings("theta_tokens=150", "declared_share=0.25", "declared_share=0.75")),
    Group("memory", (), _settings("max_chars=3000", "block_role=merge_previous")),
    Group("mask", (), _settings("polling=10")),
    Group("plain_summary", (), _settings("written_by=aux")),
    Group("structured_summary", (), _settings("written_by=aux")),
    Group(
        "arsm",
        (),
        _settings(
            "state_position=after_task",
            "done_steps=remove *",
            "pitfall_source=both *",
            "prune_to=eta *",
            "count_loops=failure *",
            "forget_loops_on_edit=false *",
            "fold_closing_turn=false *",
            "guard=false",
            "ledger=true",
            "replay_signals=none",
        ),
    ),
)


def measured(rows: Rows, default: Rows) -> list[str]:
    """The cells of one row of a table."""
    last = rows.last_mains()
    turns = sum((call.step or 1) - 1 for call in last)
    per_turn = [_per_hundred(sum(getattr(call, name) or 0 for call in last), turns) for name in _COUNTS]
    removed = sum(rows.total(f"removed_{fate}_tokens", mains_only=True) for fate in _FATES)
    there = sum(_history_tokens()[call.session_id, call.step or 0] for call in rows.mains)
    return [
        _change(rows.total("num_prompt_tokens"), default.total("num_prompt_tokens")),
        _change(rows.uncached_tokens, default.uncached_tokens),
        *per_turn,
        f"{100 * removed / there:.1f}%",
        str(len(rows.served) - len(rows.mains)),
        str(sum(session.is_exhausted for session in rows.sessions)),
    ]


_COUNTS = ("num_folded", "num_stubs", "num_exempt")
_FATES = ("recoverable", "reproducible", "irrecoverable")
_HEAD = ("option", "prompt", "uncached", "folded", "stubs", "exempt", "removed", "aux calls", "exhausted")


@cache
def _history_tokens() -> dict[tuple[str, int], int]:
    """Observation tokens of the history before each step: those of base's prompts, which lack none."""
    rows = rendered_rows(("renderer=base",))
    return {(call.session_id, call.step or 0): call.observation_tokens or 0 for call in rows.mains}


def _per_hundred(count: int, turns: int) -> str:
    return f"{100 * count / max(1, turns):.1f}"


def _change(value: int, reference: int) -> str:
    return f"{100 * (value / reference - 1):+.1f}%"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def table(group: Group) -> list[str]:
    """A markdown table: the default in absolute figures, every option against it."""
    base = (f"renderer={group.renderer}", *group.base)
    default = rendered_rows(base)
    prompt_m, uncached_m = default.total("num_prompt_tokens") / 1e6, default.uncached_tokens / 1e6
    lines = [_line(_HEAD), f"|{'---|' * len(_HEAD)}"]
    lines.append(_line(["default", f"{prompt_m:.2f} M", f"{uncached_m:.2f} M", *measured(default, default)[2:]]))
    for option in group.options:
        rows = rendered_rows((*base, *option.overrides))
        lines.append(_line([f"`{option.text.removesuffix(' *')}`{' *' if option.text.endswith(' *') else ''}",
                            *measured(rows, default)]))  # fmt: skip
        print(f"{group.renderer}: {option.text}", file=sys.stderr, flush=True)
    return lines


def main() -> int:
    """Print one table per renderer."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="renderers, by commas")
    arguments = parser.parse_args()
    if not RECORDED_RUNS.is_file():
        print(f"no recorded runs at {RECORDED_RUNS}", file=sys.stderr)
        return 2
    wanted = [name for name in arguments.only.split(",") if name]
    if unknown := set(wanted) - {group.renderer for group in GROUPS}:
        print(f"no options are measured for {', '.join(sorted(unknown))}", file=sys.stderr)
        return 2
    chosen = [group for group in GROUPS if not wanted or group.renderer in wanted]
    for group in chosen:  # a wrong setting ends the command before anything is rendered
        for option in group.options:
            cell((f"renderer={group.renderer}", *group.base, *option.overrides))
    for group in chosen:
        if group.options:
            settings = f", {' '.join(group.base)}" if group.base else ""
            print(f"### {group.renderer}{settings}\n")
            print("\n".join(table(group)) + "\n", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

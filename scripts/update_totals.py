"""Totals of every renderer over recorded runs, as a golden file: `python -m scripts.update_totals`.

It writes tests/golden/recorded_totals.json; review the diff: a total that changes without a bumped REVISION of its
renderer is a mistake. The first 6 runs in id order are enough to notice one; the stub shares are over all runs of at
least 5 steps, they need no tokens.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scripts.rendered_rows import RECORDED_RUNS, RENDERERS, ROOT, Rows, cell, rendered_rows
from workers.benchmarks.recorded import Recorded
from workers.fate import kept_share
from workers.history import NO_SIGNALS, Form, History, Part, Rendered, Turn
from workers.interfaces import RecordedRun
from workers.renderers.refold import Refold

GOLDEN = ROOT / "tests" / "golden" / "recorded_totals.json"
NUM_TASKS = 6
# Renderers that act when the prompt nears the budget get one; the others have the model's window.
BUDGETED = frozenset({"compact", "har_only", "recall"})


def overrides_of(renderer: str) -> tuple[str, ...]:
    """The cell of one renderer's totals."""
    budget = ("context_budget_tokens=16384",) if renderer in BUDGETED else ()
    return (f"renderer={renderer}", f"benchmark.num_tasks={NUM_TASKS}", *budget)


def totals_of(renderer: str) -> dict[str, Any]:
    """The totals of one renderer and the revisions of what made them."""
    overrides = overrides_of(renderer)
    rows = rendered_rows(overrides)
    last = rows.last_mains()
    return {
        "revision": cell(overrides).spec["components"]["renderer"]["revision"],
        "main_calls": len(rows.mains),
        "auxiliary_calls": len(rows.served) - len(rows.mains),
        "exhausted": sum(session.is_exhausted for session in rows.sessions),
        "prompt_tokens": rows.total("num_prompt_tokens"),
        "uncached_tokens": rows.uncached_tokens,
        "completion_tokens": rows.total("num_completion_tokens"),
        "shared_prefix_tokens": rows.total("shared_prefix_tokens", mains_only=True),
        **{name: _sum(rows, name) for name in ("system_task_tokens", "agent_tokens", "observation_tokens")},
        **{f"removed_{fate}": _sum(rows, f"removed_{fate}_tokens") for fate in _FATES},
        **{name: sum(getattr(call, name) or 0 for call in last) for name in ("num_folded", "num_stubs", "num_exempt")},
    }


_FATES = ("recoverable", "reproducible", "irrecoverable")


def _sum(rows: Rows, column: str) -> int:
    return rows.total(column, mains_only=True)


def recorded_runs(path: Path = RECORDED_RUNS) -> list[RecordedRun]:
    """The runs of at least 5 steps, in id order."""
    return [task.run for task in Recorded(path=str(path), min_steps=5).tasks() if task.run is not None]


def stub_shares(runs: Sequence[RecordedRun]) -> dict[str, float]:
    """Share of all observation characters that ReFold's deduplication stubs in the last prompt, in percent.

    `whole_output`: outputs equal to an earlier one. `whole_read`: reads that lie within one earlier read of the file,
    so that nothing of them stays either. `line_run`: parts of file reads.
    """
    stubbed = {"whole_output": 0.0, "whole_read": 0.0, "line_run": 0.0}
    num_chars = 0
    for run in runs:
        history, rendered = asyncio.run(_last_prompt(run))
        num_chars += sum(len(observation.body) for turn in history.turns for observation in turn.observations)
        for segment in rendered.segments:
            if segment.part is Part.observation and segment.form is Form.stub:
                turn = history.turn(segment.first_turn)
                shown = "\n".join(observation.shown for observation in turn.observations)
                text = "\n".join(message.content for message in segment.messages)
                stubbed[_kind(history, turn, text)] += len(shown) * (1 - kept_share(shown, text))
    return {kind: round(100 * chars / num_chars, 2) for kind, chars in stubbed.items()}


def _kind(history: History, turn: Turn, text: str) -> str:
    if "output omitted: identical to step" not in text:
        return "line_run"
    earlier = {seen.body for index in range(1, turn.index) for seen in history.turn(index).observations}
    return "whole_output" if all(observation.body in earlier for observation in turn.observations) else "whole_read"


async def _last_prompt(run: RecordedRun) -> tuple[History, Rendered]:
    renderer = Refold(fold=False)
    renderer.start(counter=None, budget_tokens=0, path="renderer")  # type: ignore[arg-type]
    history = History(run.opening)
    for index, step in enumerate(run.steps, start=1):
        seen = renderer.render(history)
        history.append(
            Turn(index, step.assistant, step.actions, step.observations, signals=NO_SIGNALS, may_remind=False)
        )
        await renderer.observe(history, seen, _no_aux)
    return history, renderer.render(history)


async def _no_aux(**_: Any) -> Any:
    raise AssertionError("deduplication makes no auxiliary calls")


def main() -> int:
    """Write the file."""
    if not RECORDED_RUNS.is_file():
        print(f"no recorded runs at {RECORDED_RUNS}", file=sys.stderr)
        return 2
    totals = {name: totals_of(name) for name in RENDERERS}
    content = {"num_tasks": NUM_TASKS, "stub_shares_percent": stub_shares(recorded_runs()), "renderers": totals}
    GOLDEN.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    print(f"wrote {GOLDEN}: {len(totals)} renderers")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

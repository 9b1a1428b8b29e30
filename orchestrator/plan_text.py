"""The plan as people read it: what the dry run prints, and the head of every run. Pure text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from orchestrator.plan import PlannedCell, SweepPlan
from orchestrator.rerun import Action, Decision

_KEY_LENGTH = 11


def plan_lines(
    plan: SweepPlan, decisions: Sequence[Decision], *, verbose: bool, with_reused: bool = False
) -> Iterator[str]:
    """The sweep, what the command line changed, and every cell with what happens to it.

    Args:
        verbose: also the cells that are only reused, and the derived figures (dry run).
        with_reused: also the cells that are only reused (`rerun=...`, where it is asked which ones are).
    """
    counts = {action: sum(d.action is action for d in decisions) for action in Action}
    listed = ", ".join(f"{count} {action.value}" for action, count in counts.items() if count)
    yield f"sweep {plan.name}: {plan.description}; {_cells(len(plan.cells))}: {listed}"
    yield from (f"note: {note}" for note in plan.notes)
    width = max(len(cell.title) for cell in plan.cells)
    for cell, decision in zip(plan.cells, decisions, strict=True):
        if verbose or with_reused or decision.action is not Action.reuse:
            yield (
                f"{decision.action.value:<6} {cell.title:<{width}}  {cell.key[:_KEY_LENGTH]}"
                f"  {cell.num_tasks} tasks, {cell.num_steps} steps; {decision.reason}"
            )
    if verbose:
        yield from derived_lines(plan.cells)


def derived_lines(cells: Sequence[PlannedCell]) -> Iterator[str]:
    """KV pool, engine limits and modelled step times, once for all cells that share them."""
    groups: dict[tuple[tuple[str, Any], ...], tuple[str, Mapping[str, Any], list[str]]] = {}
    for cell in cells:
        for model, figures in cell.derived.items():
            shown = {name: value for name, value in figures.items() if not name.startswith("step_ms_w_")}
            group = groups.setdefault((("model", model), *sorted(shown.items())), (model, shown, []))
            step_ms = figures.get("step_ms_w_decodes_16k")
            if step_ms is not None:
                group[2].append(f"w={cell.num_workers}: {step_ms:g}")
    for model, figures, steps in groups.values():
        yield f"derived for {model}: " + ", ".join(f"{name}={value}" for name, value in figures.items())
        if steps:
            yield "  modelled ms per step of w decodes at 16k tokens each: " + ", ".join(dict.fromkeys(steps))


def _cells(count: int) -> str:
    return f"{count} cell{'' if count == 1 else 's'}"


def nothing_to_run(decisions: Sequence[Decision], modes: frozenset[str]) -> str:
    """One line when no cell is pending."""
    if modes:
        return f"rerun={','.join(sorted(modes))}: no cell of this sweep matches; nothing to run"
    num_left = sum(decision.action is Action.leave for decision in decisions)
    return "nothing to run" + (f"; left as they are: {_cells(num_left)}" if num_left else ": every cell is complete")


def summary_lines(plan: SweepPlan, states: Mapping[str, str]) -> Iterator[str]:
    """The end of a run.

    Args:
        states: cell key -> state now.
    """
    counts: dict[str, int] = {}
    for cell in plan.cells:
        counts[states[cell.key]] = counts.get(states[cell.key], 0) + 1
    yield f"sweep {plan.name}: " + ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))
    if counts.get("planned") or counts.get("running"):
        yield "resume: run the same command again"
    for state in ("failed", "lost", "tainted"):
        if counts.get(state):
            yield f"run the {state} cells again: the same command with rerun={state}"
    yield f"see the results: python -m db table {plan.name}"

"""The lines below a table: under which conditions its figures hold, and what is missing from it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence

from db.queries import CellResult
from db.records import Attempt

__all__ = ["HINDSIGHT_LINE", "footer_lines"]

HINDSIGHT_LINE = (
    "Signals: hindsight. Savings are conditional on the stale labels, which were derived from the recorded future;"
    " a model that labels fewer or other turns saves less."
)
_ENGINES = {
    "simulated": "simulated replicas (vLLM's scheduling rules, modelled step times)",
    "re-rendered": "none: recorded runs rendered again, prefix cache only (no times)",
    "vllm_modelled": "a real vLLM server with modelled step times",
    "vllm_scheduler": "vLLM's own scheduler with modelled step times",
    "vllm_server": "live: a real vLLM server",
    "openai_endpoint": "live: a remote endpoint",
    "live": "live: a real server",
}
_POLICIES = {
    "replay": "replayed, pinned to each task's run",
    "chat": "live, written by the model",
    "scripted": "scripted, written by no model",
}
_SOURCES = {
    "synthetic": "synthetic, made by a generator",
    "recorded": "recorded runs",
    "live": "live benchmark environments",
}


def footer_lines(results: Sequence[CellResult], *, allow_tainted: bool) -> tuple[str, ...]:
    """The conditions of the shown cells, then what is tainted, then what is missing."""
    shown = [result.attempt for result in results if result.attempt is not None]
    lines: list[str] = []
    if shown:
        lines += [
            _line("Engine", [_ENGINES.get(a.engine_kind, a.engine_kind) for a in shown]),
            _line("Replies", [_policy(a) for a in shown]),
            _line("Tasks", [_SOURCES.get(a.benchmark_source, a.benchmark_source) for a in shown]),
            _stale_line(shown),
        ]
        if any(attempt.signals_source == "hindsight" for attempt in shown):
            lines.append(HINDSIGHT_LINE)
        lines += _mixed_versions(shown)
        lines += _shortened(results)
    lines += _tainted(results, allow_tainted)
    lines += _missing(results)
    return tuple(lines)


def _line(name: str, values: Sequence[str]) -> str:
    counted = Counter(values)
    if len(counted) == 1:
        return f"{name}: {values[0]}."
    return f"{name}: MIXED, " + "; ".join(f"{value} ({_cells(count)})" for value, count in counted.items()) + "."


def _cells(count: int) -> str:
    return f"{count} cell" if count == 1 else f"{count} cells"


def _policy(attempt: Attempt) -> str:
    text = _POLICIES.get(attempt.policy_kind, attempt.policy_kind)
    return text if attempt.generated is None else f"{text}; generated text in the cache: {attempt.generated}"


def _signals(attempt: Attempt) -> str:
    if attempt.signals_source is None:
        return "source not reported"
    if attempt.stale_coverage is None:
        return attempt.signals_source
    return f"{attempt.signals_source}, coverage {attempt.stale_coverage:g}"


def _stale_line(shown: Sequence[Attempt]) -> str:
    """Sources of stale labels; an arm that asks for none beside one that does is the comparison, no mixture."""
    asked = [_signals(attempt) for attempt in shown if attempt.signals_source != "none"]
    num_unasked = len(shown) - len(asked)
    if not asked:
        return "Stale labels: none."
    line = _line("Stale labels", asked)
    return f"{line[:-1]}; none in {_cells(num_unasked)}." if num_unasked else line


def _mixed_versions(shown: Sequence[Attempt]) -> list[str]:
    versions: dict[str, Counter[str]] = {}
    for attempt in shown:
        for package, version in json.loads(attempt.versions_json).items():
            versions.setdefault(package, Counter())[str(version)] += 1
    return [
        _line(f"Versions of {package}", list(counter.elements()))
        for package, counter in versions.items()
        if len(counter) > 1
    ]


def _shortened(results: Sequence[CellResult]) -> list[str]:
    """What would make a cell look better than it was: sessions that are not there, or that ended early."""
    measured = [(r, r.attempt, r.metrics) for r in results if r.attempt is not None and r.metrics is not None]
    absent = [
        f"{_name(result)} has {metrics.num_sessions} of {attempt.num_tasks}"
        for result, attempt, metrics in measured
        if metrics.num_sessions != attempt.num_tasks
    ]
    silent = [f"{_name(r)} {m.timeouts} of {m.num_sessions}" for r, _, m in measured if m.timeouts]
    lines = []
    if all(metrics.resolved is None for _, _, metrics in measured):
        lines.append("Resolve: not graded.")
    if absent:
        lines.append(f"Sessions missing: {'; '.join(absent)}.")
    if silent:
        lines.append(
            f"Sessions cut short by a silent stream: {'; '.join(silent)}; their tokens and duration are too low."
        )
    return lines


def _tainted(results: Sequence[CellResult], allow_tainted: bool) -> list[str]:
    tainted = [result for result in results if result.is_tainted]
    if not tainted:
        return []
    if not allow_tainted:
        return [f"Tainted: {_cells(len(tainted))} left out; --allow-tainted shows them, marked."]
    lines = [f"Tainted: {_cells(len(tainted))} marked *; do not average them with the others."]
    for result in tainted:
        reasons = json.loads((result.attempt and result.attempt.taint_reasons_json) or "[]")
        lines.append(f"  * {_name(result)}: {'; '.join(map(str, reasons)) or 'no reason stored'}")
    return lines


def _missing(results: Sequence[CellResult]) -> list[str]:
    missing = [result for result in results if result.attempt is None and not result.is_tainted]
    if not missing:
        return []
    states = ", ".join(f"{state} {count}" for state, count in sorted(Counter(r.cell.state for r in missing).items()))
    named = ", ".join(_name(result) for result in missing[:5]) + (", ..." if len(missing) > 5 else "")
    return [f"Missing: {len(missing)} of {_cells(len(results))} ({states}): {named}."]


def _name(result: CellResult) -> str:
    return f"{result.arm} w={result.cell.num_workers}"

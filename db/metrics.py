"""The papers' metrics, by symbol: pure functions over per-session totals.

For task i of the N in a cell, call j sends p_ij prompt tokens, of which c_ij come from the prefix cache, and receives
g_ij completion tokens. Calls an arm makes for itself (summaries, rewrites) count like any other in the paper's
columns; `main_*` figures leave them out. A prompt over the budget is not sent and counts for Exhausted alone; a
judge's calls and a local scorer's (no replica) count nowhere.

A metric is None when a call or session that should have reported did not: unknown is never 0.

Source: ReFold (arXiv 2610.07863) Table 5 and appendix A.3.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

__all__ = [
    "InFlight",
    "KvSize",
    "ModelTotals",
    "Prices",
    "SessionTotals",
    "cache_hit",
    "compactions",
    "cost_cents",
    "duration_s",
    "flips",
    "in_flight",
    "kv_bytes",
    "main_peak_prompt_tokens",
    "main_steps",
    "median_halves_up",
    "queue_s",
    "steps",
    "tokens",
]


class Prices(NamedTuple):
    """USD per million tokens."""

    uncached: float  # pi_u
    cached: float  # pi_c
    completion: float  # pi_g


class KvSize(NamedTuple):
    """What one session holds in the cache of a model."""

    bytes_per_token: float  # kappa
    state_bytes: float  # s


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelTotals:
    """One session's served calls to one model. Sums are None when a successful call did not report the figure."""

    model: str
    num_calls: int  # without retries
    num_main_calls: int
    prompt_tokens: int | None
    cached_tokens: int | None
    completion_tokens: int | None
    discounted_tokens: (
        int | None
    )  # cached tokens that are billed at the cached rate (not those of AgentDiet's rewrites)
    peak_prompt_tokens: int | None  # max_j p_ij
    main_peak_prompt_tokens: int | None
    queue_s: float | None  # summed over the calls that were scheduled
    num_queued: int  # how many those are
    num_preemptions: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionTotals:
    """What the metrics need of one session."""

    task_id: str
    started_s: float
    finished_s: float
    first_request_s: float | None
    last_response_s: float | None
    is_exhausted: bool
    is_timed_out: bool
    num_compactions: int | None
    models: tuple[ModelTotals, ...]  # one per model called, by name


def median_halves_up(values: Iterable[float]) -> int | None:
    """The median rounded to an integer, halves up (Python's `round` goes to the even one)."""
    listed = list(values)
    return math.floor(statistics.median(listed) + 0.5) if listed else None


def steps(sessions: Sequence[SessionTotals]) -> int | None:
    """Steps: med_i n_i, all served calls."""
    return median_halves_up(sum(m.num_calls for m in session.models) for session in sessions)


def main_steps(sessions: Sequence[SessionTotals]) -> int | None:
    """Steps of the main loop alone, to which the step limit applies."""
    return median_halves_up(sum(m.num_main_calls for m in session.models) for session in sessions)


def tokens(sessions: Sequence[SessionTotals]) -> float | None:
    """Tokens: mean_i sum_j (p_ij + g_ij)."""
    per_session = [_sum(m.prompt_tokens, m.completion_tokens) for s in sessions for m in s.models]
    total = _sum(*per_session)
    return None if total is None or not sessions else total / len(sessions)


def cost_cents(sessions: Sequence[SessionTotals], prices: Mapping[str, Prices]) -> float | None:
    """Cost in US cents: mean_i sum_j (pi_u (p - c) + pi_c c + pi_g g), each call at its model's prices.

    None when a called model has no price or a figure is missing.
    """
    usd_per_million = 0.0
    for totals in (m for session in sessions for m in session.models):
        price = prices.get(totals.model)
        prompt, cached, completion = totals.prompt_tokens, totals.discounted_tokens, totals.completion_tokens
        if price is None or prompt is None or cached is None or completion is None:
            return None
        usd_per_million += price.uncached * (prompt - cached) + price.cached * cached + price.completion * completion
    return usd_per_million / 1e6 * 100 / len(sessions) if sessions else None


def cache_hit(sessions: Sequence[SessionTotals]) -> float | None:
    """Cache hit: sum c / sum p, pooled over all calls; 0..1."""
    cached = _sum(*(m.cached_tokens for s in sessions for m in s.models))
    prompt = _sum(*(m.prompt_tokens for s in sessions for m in s.models))
    return cached / prompt if cached is not None and prompt else None


def duration_s(sessions: Sequence[SessionTotals]) -> float | None:
    """Duration: med_i (last response - first request) over the sessions that got a response."""
    spans = [
        session.last_response_s - session.first_request_s
        for session in sessions
        if session.first_request_s is not None and session.last_response_s is not None
    ]
    return statistics.median(spans) if spans else None


def kv_bytes(sessions: Sequence[SessionTotals], sizes: Mapping[str, KvSize]) -> dict[str, float]:
    """KV cache per session and model: med_i (kappa max_j p_ij + s) over the sessions that called the model.

    A model whose size is unknown is left out.
    """
    peaks: dict[str, list[int]] = {}
    for totals in (m for session in sessions for m in session.models):
        if totals.peak_prompt_tokens is not None:
            peaks.setdefault(totals.model, []).append(totals.peak_prompt_tokens)
    return {
        model: sizes[model].bytes_per_token * statistics.median(found) + sizes[model].state_bytes
        for model, found in sorted(peaks.items())
        if model in sizes
    }


def main_peak_prompt_tokens(sessions: Sequence[SessionTotals]) -> float | None:
    """Median over sessions of the largest main-loop prompt."""
    peaks = []
    for session in sessions:
        known = [m.main_peak_prompt_tokens for m in session.models if m.main_peak_prompt_tokens is not None]
        if known:
            peaks.append(max(known))
    return statistics.median(peaks) if peaks else None


def compactions(sessions: Sequence[SessionTotals]) -> float | None:
    """Compactions: mean_i m_i."""
    total = _sum(*(session.num_compactions for session in sessions))
    return None if total is None or not sessions else total / len(sessions)


def queue_s(sessions: Sequence[SessionTotals]) -> float | None:
    """Queue: mean over the run's requests of (scheduled - arrived)."""
    waited = _sum(*(m.queue_s for s in sessions for m in s.models))
    num_requests = sum(m.num_queued for s in sessions for m in s.models)
    return waited / num_requests if waited is not None and num_requests else None


class InFlight(NamedTuple):
    """How many sessions were really open, while tasks were waiting to be started."""

    time_weighted: float  # mean number open
    share_full_w: float  # share of that time with at least w open, 0..1
    span_s: float  # first start to last start


def in_flight(intervals: Iterable[tuple[float, float]], *, num_workers: int) -> InFlight | None:
    """Concurrency that a cell reached, judged from the first to the last session start.

    After the last start nothing is left to hand out and the number must fall, which is no fault. When all sessions
    start at once (no more tasks than workers) the span is 0 and the number open at that moment counts.

    Args:
        intervals: (started_s, finished_s) of each session, on one clock.
        num_workers: w.
    """
    listed = sorted(intervals)
    if not listed:
        return None
    first, last = listed[0][0], listed[-1][0]
    if last == first:
        num_open = len(listed)
        return InFlight(float(num_open), 1.0 if num_open >= num_workers else 0.0, 0.0)
    changes = sorted([(start, 1) for start, _ in listed] + [(finish, -1) for _, finish in listed])
    open_s = full_s = 0.0
    num_open, before = 0, first
    for at, change in changes:
        until = min(at, last)
        open_s += num_open * (until - before)
        full_s += (until - before) if num_open >= num_workers else 0.0
        num_open, before = num_open + change, until
    return InFlight(open_s / (last - first), full_s / (last - first), last - first)


class Flips(NamedTuple):
    """Two runs of one configuration compared task by task."""

    num_first: int
    num_second: int
    lost: tuple[str, ...]  # solved only in the first run
    gained: tuple[str, ...]  # solved only in the second run


def flips(first: Mapping[str, bool], second: Mapping[str, bool]) -> Flips:
    """Compare {task: solved} of two runs over the same tasks.

    Raises:
        ValueError: the runs cover different tasks.
    Source: ReFold appendix A.4, Table 6.
    """
    if first.keys() != second.keys():
        raise ValueError(f"the runs cover different tasks: {sorted(first.keys() ^ second.keys())}")
    lost = tuple(task for task in sorted(first) if first[task] and not second[task])
    gained = tuple(task for task in sorted(first) if second[task] and not first[task])
    return Flips(sum(first.values()), sum(second.values()), lost, gained)


def _sum(*values: float | None) -> float | None:
    """The sum, or None when a part is not known."""
    total = 0.0
    for value in values:
        if value is None:
            return None
        total += value
    return total

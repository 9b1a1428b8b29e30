"""The papers' metrics against hand calculations and the figures the paper prints."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from db import metrics
from db.metrics import KvSize, ModelTotals, Prices, SessionTotals

GIB = 2**30
PRICES_27B = Prices(uncached=0.30, cached=0.15, completion=2.70)  # appendix A.3
PRICES_A3B = Prices(uncached=0.10, cached=0.05, completion=0.90)
KV_27B = KvSize(bytes_per_token=64 * 1024, state_bytes=0.14 * GIB)
KV_A3B = KvSize(bytes_per_token=20 * 1024, state_bytes=0.06 * GIB)


def model(name: str = "27b", **changes: Any) -> ModelTotals:
    """A session's totals on one model: 2 calls, 1,000 prompt tokens, 600 cached, 100 completion."""
    values: dict[str, Any] = {
        "model": name,
        "num_calls": 2,
        "num_main_calls": 2,
        "prompt_tokens": 1000,
        "cached_tokens": 600,
        "completion_tokens": 100,
        "discounted_tokens": 600,
        "peak_prompt_tokens": 700,
        "main_peak_prompt_tokens": 700,
        "queue_s": 1.0,
        "num_queued": 2,
        "num_preemptions": 0,
    }
    return ModelTotals(**{**values, **changes})


def session(*models: ModelTotals, **changes: Any) -> SessionTotals:
    """A session of 60 s between first request and last response."""
    values: dict[str, Any] = {
        "task_id": "t",
        "started_s": 0.0,
        "finished_s": 70.0,
        "first_request_s": 5.0,
        "last_response_s": 65.0,
        "is_exhausted": False,
        "is_timed_out": False,
        "num_compactions": 0,
        "models": models,
    }
    return SessionTotals(**{**values, **changes})


@pytest.mark.parametrize(
    ("counts", "median"),
    [([3], 3), ([1, 2], 2), ([2, 3], 3), ([4, 5, 6, 7], 6), ([1, 2, 3], 2), ([0, 1], 1), ([], None)],
)
def test_steps_median_rounds_halves_up(counts: list[int], median: int | None) -> None:
    """1.5 -> 2 and 2.5 -> 3 (Python's round gives 2 for both); Table 5's Steps."""
    assert metrics.steps([session(model(num_calls=count)) for count in counts]) == median


def test_steps_count_auxiliary_calls_and_main_steps_do_not() -> None:
    """A.3: a call an arm makes for itself counts like any other; the step limit sees the main loop alone."""
    sessions = [session(model(num_calls=12, num_main_calls=10))]
    assert (metrics.steps(sessions), metrics.main_steps(sessions)) == (12, 10)


def test_tokens_are_a_mean_over_tasks() -> None:
    """(1,100 + 3,300) / 2; a session without calls counts as a task of 0."""
    sessions = [session(model()), session(model(prompt_tokens=3000, completion_tokens=300))]
    assert metrics.tokens(sessions) == 2200
    assert metrics.tokens([*sessions, session(), session()]) == 1100


def test_cost_in_cents_at_the_papers_prices() -> None:
    """1 M prompt (0.4 M cached) + 0.1 M completion on the 27B: 0.18 + 0.06 + 0.27 USD = 51 cents."""
    totals = model(prompt_tokens=1_000_000, discounted_tokens=400_000, completion_tokens=100_000)
    assert metrics.cost_cents([session(totals)], {"27b": PRICES_27B}) == pytest.approx(51.0)


def test_cost_prices_each_call_at_its_model() -> None:
    """Alternation: the same tokens on the A3B cost a third (0.10, 0.05, 0.90); 51 + 17 cents."""
    totals = {"prompt_tokens": 1_000_000, "discounted_tokens": 400_000, "completion_tokens": 100_000}
    sessions = [session(model("27b", **totals), model("a3b", **totals))]
    assert metrics.cost_cents(sessions, {"27b": PRICES_27B, "a3b": PRICES_A3B}) == pytest.approx(68.0)


def test_cost_without_a_price_is_unknown() -> None:
    """A model without prices gives None, never 0."""
    assert metrics.cost_cents([session(model("other"))], {"27b": PRICES_27B}) is None


def test_rewrites_are_billed_uncached() -> None:
    """D.4: AgentDiet's prompt tokens are priced as uncached although 600 were served from the cache: 0.30 x 1000."""
    totals = model(completion_tokens=0, discounted_tokens=0)
    assert metrics.cost_cents([session(totals)], {"27b": PRICES_27B}) == pytest.approx(0.03)


def test_cache_hit_is_pooled_over_calls() -> None:
    """(600 + 0) / (1,000 + 3,000) = 15 %, not the mean of 60 % and 0 %."""
    sessions = [session(model()), session(model(prompt_tokens=3000, cached_tokens=0))]
    assert metrics.cache_hit(sessions) == 0.15


def test_duration_is_first_request_to_last_response() -> None:
    """Median of 60, 10 and 30 s; waiting before the first request does not count, nor does a session without a call."""
    sessions = [
        session(model()),
        session(model(), last_response_s=15.0),
        session(model(), last_response_s=35.0),
        session(first_request_s=None, last_response_s=None),
    ]
    assert metrics.duration_s(sessions) == 30.0


@pytest.mark.parametrize(
    ("size", "peak", "gib"),
    [
        (KvSize(64 * 1024, 0), 16_384, 1.0),  # section 2: the 16 k budget is 1.0 GiB
        (KV_27B, 25_723, 1.71),  # the 1.71 GiB of base is a peak of 25.7 k tokens
        (KvSize(64 * 1024, 0), 11_305, 0.69),  # 0.69 GiB of compact without s
        (KV_A3B, 52_429, 1.06),  # 52,429 x 20 KiB = 1.00 GiB, + 0.06
    ],
)
def test_kv_is_kappa_times_peak_plus_state(size: KvSize, peak: int, gib: float) -> None:
    """KV = kappa max p + s in GiB, at the paper's kappa and s."""
    found = metrics.kv_bytes([session(model("m", peak_prompt_tokens=peak))], {"m": size})
    assert found["m"] / GIB == pytest.approx(gib, abs=0.005)


def test_kv_is_reported_per_model() -> None:
    """Alternating sessions hold a cache on each server; a model without a known size is left out."""
    sessions = [session(model("27b"), model("a3b"), model("other"))]
    assert set(metrics.kv_bytes(sessions, {"27b": KV_27B, "a3b": KV_A3B})) == {"27b", "a3b"}


def test_compactions_are_a_mean_and_unknown_when_one_is() -> None:
    """(3 + 0) / 2 = 1.5; one session that did not report makes it None."""
    sessions = [session(num_compactions=3), session(num_compactions=0)]
    assert metrics.compactions(sessions) == 1.5
    assert metrics.compactions([*sessions, session(num_compactions=None)]) is None


def test_queue_is_a_mean_over_requests() -> None:
    """(1 s over 2 requests + 8 s over 1 request) / 3 requests = 3 s, not a mean of session means."""
    assert metrics.queue_s([session(model()), session(model(queue_s=8.0, num_queued=1))]) == 3.0


@pytest.mark.parametrize("field", ["prompt_tokens", "cached_tokens", "completion_tokens", "queue_s"])
def test_an_unreported_figure_makes_its_metrics_unknown(field: str) -> None:
    """NULL is not 0: `prompt_tokens_details: null` must not read as a cache hit of 0 %."""
    sessions = [session(model()), session(model(**{field: None}))]
    found = {
        "prompt_tokens": metrics.cache_hit(sessions),
        "cached_tokens": metrics.cache_hit(sessions),
        "completion_tokens": metrics.tokens(sessions),
        "queue_s": metrics.queue_s(sessions),
    }
    assert found[field] is None


def test_main_peak_prompt_leaves_auxiliary_calls_out() -> None:
    """The summary call's prompt is larger than any main prompt; both peaks are offered."""
    sessions = [session(model(peak_prompt_tokens=9000, main_peak_prompt_tokens=7000))]
    assert metrics.main_peak_prompt_tokens(sessions) == 7000


def test_nothing_at_all_is_unknown() -> None:
    """A cell without sessions has no metric."""
    assert metrics.tokens([]) is None
    assert metrics.cost_cents([], {}) is None
    assert metrics.duration_s([]) is None
    assert metrics.cache_hit([]) is None
    assert metrics.in_flight([], num_workers=2) is None


def test_in_flight_by_hand() -> None:
    """w=2: A 0-10, B 0-4, C 4-8, D 9-20. Judged over 0..9: two open during 0-8, one during 8-9: 17/9; full 8/9."""
    found = metrics.in_flight([(0, 10), (0, 4), (4, 8), (9, 20)], num_workers=2)
    assert found is not None
    assert found.time_weighted == pytest.approx(17 / 9)
    assert found.share_full_w == pytest.approx(8 / 9)
    assert found.span_s == 9


def test_in_flight_ignores_the_tail() -> None:
    """One session that outlives the others by 1,000 s is no lack of concurrency: nothing was left to start."""
    found = metrics.in_flight([(0, 5), (0, 5), (5, 6), (5, 1000)], num_workers=2)
    assert found == (2.0, 1.0, 5)


def test_in_flight_when_all_start_at_once() -> None:
    """With no more tasks than workers the number open at the start counts."""
    assert metrics.in_flight([(0, 5), (0, 9)], num_workers=2) == (2.0, 1.0, 0.0)
    assert metrics.in_flight([(0, 5), (0, 9)], num_workers=4) == (2.0, 0.0, 0.0)


@given(
    st.lists(st.tuples(st.integers(0, 100), st.integers(1, 50)), min_size=1, max_size=30),
    st.integers(1, 8),
)
def test_in_flight_equals_counting_every_second(starts: list[tuple[int, int]], num_workers: int) -> None:
    """On whole seconds the integral equals the mean of the counts in each second before the last start."""
    intervals = [(float(start), float(start + length)) for start, length in starts]
    found = metrics.in_flight(intervals, num_workers=num_workers)
    assert found is not None
    first, last = min(start for start, _ in starts), max(start for start, _ in starts)
    if first == last:
        return
    counts = [sum(a <= second < b for a, b in intervals) for second in range(first, last)]
    assert found.time_weighted == pytest.approx(sum(counts) / len(counts))
    assert found.share_full_w == pytest.approx(sum(count >= num_workers for count in counts) / len(counts))


def test_flips_between_two_runs() -> None:
    """Table 6: both counts, tasks solved only in the first run and only in the second."""
    first = {"a": True, "b": True, "c": False, "d": False}
    second = {"a": True, "b": False, "c": True, "d": False}
    assert metrics.flips(first, second) == (2, 2, ("b",), ("c",))
    with pytest.raises(ValueError, match="different tasks"):
        metrics.flips(first, {"a": True})

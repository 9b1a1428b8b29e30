"""Trust checks, each on rows that break exactly one rule; hand-calculated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from orchestrator.trust import AttemptRows, Verdict, judge

TRUST = {"min_concurrency_share": 0.95, "max_loop_lag_ms": 250.0, "max_lost_calls": 0, "max_negative_s": 1e-6}
Make = Callable[..., Any]


@pytest.fixture
def verdict(session_row: Make, call_row: Make) -> Make:
    """Judge two sessions of one call each at w = 1, with changed calls, sessions or facts."""

    def make(
        calls: Sequence[dict[str, Any]] = ({}, {}),
        sessions: Sequence[dict[str, Any]] = ({}, {}),
        *,
        num_workers: int = 1,
        num_tasks: int = 2,
        is_wall_clock: bool = False,
        **facts: Any,
    ) -> Verdict:
        rows = AttemptRows(
            sessions=[session_row("a", index, **values) for index, values in enumerate(sessions)],
            calls=[call_row("a", values.pop("session", index), **values) for index, values in enumerate(calls)],
            num_workers=num_workers,
            num_tasks=num_tasks,
            is_wall_clock=is_wall_clock,
            facts=facts,
        )
        return judge(rows, TRUST)

    return make


def test_good_rows_have_no_reason(verdict: Make) -> None:
    """Two sessions one after another at w = 1: nothing to say, and one session was open all the time."""
    made = verdict()
    assert made.reasons == ()
    assert made.in_flight.time_weighted == 1.0


def test_missing_sessions(verdict: Make) -> None:
    """2 of 3 sessions are recorded."""
    assert verdict(num_tasks=3).reasons == ("2 sessions of 2 tasks are recorded, 3 were to run",)


def test_concurrency_while_tasks_wait(verdict: Make) -> None:
    """w = 2, sessions [0, 1], [0, 2] and [3, 4]: until the last start at 3 s, (2 + 1 + 0) / 3 = 1.00 are open, 50 %."""
    times = [(0.0, 1.0), (0.0, 2.0), (3.0, 4.0)]
    sessions = [{"started_s": start, "finished_s": end} for start, end in times]
    made = verdict([{}, {}, {}], sessions, num_workers=2, num_tasks=3)
    assert made.reasons == ("1.00 sessions in flight on average, 50.0% of w = 2; at least 95%",)


def test_the_tail_is_no_fault(verdict: Make) -> None:
    """w = 2 and one session runs ten times as long as the other: after the last start concurrency must fall."""
    sessions = [{"started_s": 0.0, "finished_s": 1.0}, {"started_s": 0.0, "finished_s": 10.0}]
    assert verdict(sessions=sessions, num_workers=2).reasons == ()


def test_lost_calls(verdict: Make) -> None:
    """A session that counted 3 calls but has 1 row lost 2; an exhausted prompt has a row and is not counted."""
    lost = verdict(sessions=[{"num_main_calls": 2, "num_auxiliary_calls": 1}, {}])
    assert lost.reasons == ("2 calls have no row (t0: 2)",)
    over = {"session": 0, "call_index": 2, "state": "exhausted", "replica": None, "sent_s": None}
    assert verdict([{}, {}, over]).reasons == ()


def test_surplus_and_strange_calls(verdict: Make) -> None:
    """A row nobody counted, and a session that has calls but no row of its own."""
    assert verdict([{}, {}, {"session": 0, "call_index": 2}]).reasons == (
        "1 calls have a row that their session does not count (t0: 1)",
    )
    assert verdict([{}, {}, {"session": 7}]).reasons == ("calls of 1 sessions without a row (t7)",)


def test_client_retries_are_one_call(verdict: Make) -> None:
    """A second try of the same call is a row, not another call."""
    assert verdict([{"state": "error"}, {}, {"session": 0, "try_index": 2}]).reasons == ()


def test_loop_lag_matters_on_the_wall_clock_only(verdict: Make) -> None:
    """300 ms taints a real run, from a row or from the executor; virtual time cannot be late; unmeasured is said."""
    assert verdict([{"loop_lag_ms": 300.0}, {}], is_wall_clock=True).reasons == (
        "event loop up to 300 ms late; at most 250 ms",
    )
    assert verdict([{"loop_lag_ms": 1.0}, {}], is_wall_clock=True, max_loop_lag_ms=400.0).reasons == (
        "event loop up to 400 ms late; at most 250 ms",
    )
    assert verdict([{"loop_lag_ms": 300.0}, {}]).reasons == ()
    assert verdict(is_wall_clock=True).reasons == ("the event loop's lag was not measured",)


def test_missing_metrics(verdict: Make) -> None:
    """A served call without cached tokens or queue delay; a local scorer and a failed call need none."""
    assert verdict([{"num_cached_tokens": None, "queue_delay_s": None}, {}]).reasons == (
        "num_cached_tokens is missing in 1 of 2 served calls",
        "queue_delay_s is missing in 1 of 2 served calls",
    )
    nothing = {"num_cached_tokens": None, "queue_delay_s": None, "num_preemptions": None, "num_prompt_tokens": None}
    scorer = {"session": 0, "call_index": 2, "kind": "scorer", "replica": None, **nothing}
    failed = {"session": 1, "call_index": 2, "state": "timeout", **nothing}
    counts = [{"num_auxiliary_calls": 1}, {"num_main_calls": 2}]
    assert verdict([{}, {}, scorer, failed], counts).reasons == ()


def test_first_call_cannot_hit_more_than_it_shares(verdict: Make) -> None:
    """8 cached tokens where at most 5 were ever sent before; 5 of 5 and unknown bounds are fine, later calls too."""
    bad = {"num_cached_tokens": 8, "shared_prefix_tokens": 5}
    assert verdict([{}, bad]).reasons == (
        "1 first calls hit more than any earlier prompt could give (t1: 8 cached, 5 shared)",
    )
    assert verdict([{}, {"num_cached_tokens": 5, "shared_prefix_tokens": 5}]).reasons == ()
    assert verdict([{}, {"num_cached_tokens": 5, "shared_prefix_tokens": None}]).reasons == ()
    later = {"session": 1, "call_index": 2, **bad}
    assert verdict([{}, {}, later], [{}, {"num_main_calls": 2}]).reasons == ()


def test_negative_intervals(verdict: Make) -> None:
    """First token before sending, a negative prefill, a session that ends before it starts; rounding is allowed."""
    made = verdict([{"first_token_s": -1.0, "prefill_s": -0.5}, {}], [{}, {"finished_s": 0.5}])
    assert [reason for reason in made.reasons if "interval" in reason] == [
        "negative interval, prefill_s < 0, 1 times",
        "negative interval, sent > first, 1 times",
        "negative interval, session ends before it starts, 1 times",
    ]
    assert verdict([{"first_token_s": -1e-9}, {}]).reasons == ()


def test_warm_start(verdict: Make) -> None:
    """The executor saw a warm cache; or the very first call on a replica hits, which only old content can explain."""
    assert verdict(was_cache_warm=True).reasons == ("the prefix cache was not empty at the start",)
    assert verdict([{"num_cached_tokens": 4}, {}]).reasons == ("the first call on m/0 already hit 4 cached tokens",)
    together = [{"num_cached_tokens": 4, "sent_s": 0.0}, {"sent_s": 0.0}]
    assert verdict(together).reasons == ()
    # On wall-clock time the second sender may have arrived first.
    lag = {"is_wall_clock": True, "max_loop_lag_ms": 1.0}
    assert verdict([{"num_cached_tokens": 4}, {}], **lag).reasons == ()
    assert verdict(was_cache_warm=True, **lag).reasons == ("the prefix cache was not empty at the start",)

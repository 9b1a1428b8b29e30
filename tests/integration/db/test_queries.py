"""Stored rows to metrics, and which attempt of a cell is shown."""

from __future__ import annotations

from typing import Any

import pytest

import db
from db.errors import UnknownName
from db.queries import CellResult
from db.records import AttemptEnd, Grade, SessionGrade, to_json
from db.store import Store


def record(store: Store, study: Any, rows: list[Any], **attempt_changes: Any) -> str:
    """Run the cell base/2 with these rows (made from the attempt id); returns the attempt id."""
    cell = study.cell()
    study.register(store, cell)
    attempt = study.attempt(study.claim(store, cell), **attempt_changes)
    recorder = store.recorder()
    recorder.start_attempt(attempt)
    for row in rows:
        made = row(attempt.attempt_id)
        {"call": recorder.record_call, "session": recorder.record_session}.get(
            made.TABLE, lambda sample: recorder.record_samples([sample])
        )(made)
    recorder.finish_attempt(AttemptEnd(attempt_id=attempt.attempt_id, state="complete", finished_utc_s=1.0))
    return str(attempt.attempt_id)


def only_cell(location: str, **options: Any) -> CellResult:
    """The single cell of the database."""
    with db.open(location) as reader:
        (result,) = reader.cells(**options)
    return result


def test_metrics_of_a_small_run_by_hand(store: Store, location: str, study: Any) -> None:
    """Two sessions; every figure worked out by hand."""
    record(
        store,
        study,
        [
            # t0: main 1,000 (800 cached) + 100, retried once; summary 2,000 (0 cached) + 300; main 500 (400) + 100
            lambda a: study.call(a, "t0", 1, state="error", num_prompt_tokens=None, num_cached_tokens=None,
                                 num_completion_tokens=None, queue_delay_s=None, num_preemptions=None),
            lambda a: study.call(a, "t0", 1, try_index=2),
            lambda a: study.call(a, "t0", 2, kind="summary", num_prompt_tokens=2000, num_cached_tokens=0,
                                 num_completion_tokens=300, queue_delay_s=2.0),
            lambda a: study.call(a, "t0", 3, num_prompt_tokens=500, num_cached_tokens=400, queue_delay_s=0.0),
            lambda a: study.session(a, 0, num_compactions=1),
            # t1: main 1,000 (800) + 100, then a prompt that was too long to send, which counts for Exhausted alone
            lambda a: study.call(a, "t1", 1, num_preemptions=1),
            lambda a: study.call(a, "t1", 2, state="exhausted", num_prompt_tokens=None, num_cached_tokens=None,
                                 num_completion_tokens=None, queue_delay_s=None, num_preemptions=None, replica=None,
                                 num_estimated_prompt_tokens=300_000),
            lambda a: study.session(a, 1, exit_status="ContextExhausted", is_exhausted=True, last_response_s=31.0),
            lambda a: study.sample(a, 1.0),
            lambda a: study.sample(a, 2.0, kv_usage_peak=None, kv_usage=0.95, num_preemptions_total=5),
            lambda a: study.sample(a, 2.0, replica="r1", kv_usage_peak=0.5, num_preemptions_total=1),
        ],
    )  # fmt: skip
    found = only_cell(location).metrics
    assert found is not None
    assert (found.steps, found.main_steps) == (2, 2)  # medians of (3, 1) and (2, 1): 2 and 1.5 -> 2
    assert found.tokens == (1100 + 2300 + 600 + 1100) / 2
    assert found.cache_hit == (800 + 0 + 400 + 800) / 4500
    # t0: 0.30 x 2,300 + 0.15 x 1,200 + 2.70 x 500 = 2,220; t1: 0.30 x 200 + 0.15 x 800 + 2.70 x 100 = 450 (USD/M)
    assert found.cost_cents == pytest.approx((2220 + 450) / 1e6 * 100 / 2)
    assert found.duration_s == (60.0 + 30.0) / 2
    assert found.kv_bytes == {"qwen3.6-27b": 65536 * (2000 + 1000) / 2}
    assert found.main_peak_prompt_tokens == 1000
    assert found.compactions == 0.5
    assert found.queue_s == (0.5 + 2.0 + 0.0 + 0.5) / 4
    assert found.kv_peak == 0.95
    assert found.kv_peak_by_replica == {"r0": 0.95, "r1": 0.5}
    assert (found.preemptions, found.preemptions_by_replica) == (6, {"r0": 5, "r1": 1})
    assert (found.exhausted, found.timeouts, found.resolved) == (1, 0, None)
    assert (found.time_weighted_in_flight, found.share_full_w) == (2.0, 1.0)


def test_what_a_server_did_not_report_is_unknown(store: Store, location: str, study: Any) -> None:
    """`prompt_tokens_details: null` in one successful call: cache hit and cost are None, tokens are known."""
    record(
        store,
        study,
        [
            lambda a: study.call(a, "t0", 1),
            lambda a: study.call(a, "t0", 2, num_cached_tokens=None, queue_delay_s=None, num_preemptions=None),
            lambda a: study.session(a, 0, num_compactions=None),
        ],
    )
    found = only_cell(location).metrics
    assert found is not None
    assert (found.cache_hit, found.cost_cents, found.queue_s, found.preemptions) == (None, None, None, None)
    assert (found.kv_peak, found.compactions) == (None, None)
    assert found.tokens == 2200


def test_a_judge_and_a_local_scorer_are_not_the_arms_calls(store: Store, location: str, study: Any) -> None:
    """Judging happens outside the run; a scorer without a replica is local work (Table 10: zero tokens)."""
    nothing = {"num_prompt_tokens": None, "num_cached_tokens": None, "num_completion_tokens": None}
    record(
        store,
        study,
        [
            lambda a: study.call(a, "t0", 1),
            lambda a: study.call(a, "t0", 2, kind="judge"),
            lambda a: study.call(a, "t0", 3, kind="scorer", replica=None, queue_delay_s=None, **nothing),
            lambda a: study.session(a, 0),
        ],
    )
    found = only_cell(location).metrics
    assert found is not None
    assert (found.steps, found.tokens) == (1, 1100)


def test_calls_are_priced_by_their_own_model(store: Store, location: str, study: Any) -> None:
    """Alternation and uncached rewrites: 0.30 x 200 + 0.15 x 800 + 2.70 x 100, then 0.10 x 1000 + 0.90 x 100."""
    config = {
        "prices": {
            "qwen3.6-27b": {"uncached": 0.30, "cached": 0.15, "completion": 2.70},
            "a3b": {"uncached": 0.10, "cached": 0.05, "completion": 0.90},
        }
    }
    record(
        store,
        study,
        [
            lambda a: study.call(a, "t0", 1),
            lambda a: study.call(a, "t0", 2, model="a3b", kind="rewrite", is_priced_uncached=True),
            lambda a: study.session(a, 0),
        ],
        config_json=to_json(config),
    )
    found = only_cell(location).metrics
    assert found is not None
    assert found.cost_cents == pytest.approx((450 + 190) / 1e6 * 100)
    assert found.kv_bytes == {}


def test_resolve_needs_every_verdict(store: Store, location: str, study: Any) -> None:
    """None until each session has a grade; a timed-out session is unresolved without one; grade_error is no verdict."""

    def grade(attempt_id: str, task: str, status: str) -> list[Any]:
        shared = {"task_id": task, "patch_hash": f"{task}{status}", "image_digest": "i", "harness_version": "5"}
        return [
            Grade(status=status, graded_utc_s=1.0, **shared),
            SessionGrade(attempt_id=attempt_id, session_id=task, **shared),
        ]

    attempt_id = record(
        store,
        study,
        [lambda a, n=n: study.session(a, n) for n in range(2)]
        + [lambda a: study.session(a, 2, exit_status="StreamTimeout", is_timed_out=True)],
    )
    store.add(grade(attempt_id, "t0", "resolved"))
    found = only_cell(location).metrics
    assert found is not None
    assert (found.resolved, found.timeouts) == (None, 1)
    store.add(grade(attempt_id, "t1", "unresolved"))
    found = only_cell(location).metrics
    assert found is not None
    assert found.resolved == 1


def test_readers_use_the_latest_complete_attempt(store: Store, location: str, study: Any) -> None:
    """Complete 1, complete 2, failed 3: attempt 2 is shown, and the views agree."""
    cell = study.cell()
    study.register(store, cell)
    for state in ("complete", "complete", "failed"):
        study.run(store, cell, state=state)
    result = only_cell(location)
    assert result.attempt is not None
    assert (result.attempt.number, result.status, result.cell.state) == (2, "complete", "failed")
    with db.open(location) as reader:
        calls = reader.select("v_calls")
        numbers = {row[calls.columns.index("attempt_number")] for row in calls.rows}
    assert numbers == {2}
    assert len(calls.rows) == 2


def test_tainted_attempts_are_left_out_unless_allowed(store: Store, location: str, study: Any) -> None:
    """Neither cells nor views show them by default; allowed ones are marked; a complete one is always preferred."""
    cell = study.cell()
    study.register(store, cell)
    study.run(store, cell, state="tainted")
    result = only_cell(location)
    assert (result.attempt, result.metrics, result.status, result.is_tainted) == (None, None, "tainted", True)
    allowed = only_cell(location, allow_tainted=True)
    assert allowed.attempt is not None
    assert (allowed.status, allowed.is_tainted) == ("tainted", True)
    with db.open(location) as reader:
        assert reader.select("v_calls").rows == []
        marked = reader.select("v_calls", allow_tainted=True)
        assert {row[marked.columns.index("attempt_state")] for row in marked.rows} == {"tainted"}
    study.run(store, cell, state="complete")
    study.run(store, cell, state="tainted")
    chosen = only_cell(location, allow_tainted=True)
    assert chosen.attempt is not None
    assert (chosen.attempt.number, chosen.is_tainted) == (2, False)


def test_frames_and_their_absence(store: Store, location: str, study: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """`db.open(url).frame("v_calls")` is a pandas frame; without pandas the error names the package."""
    import sys

    from db.errors import DbError

    cell = study.cell()
    study.register(store, cell)
    study.run(store, cell)
    with db.open(location) as reader:
        pandas = pytest.importorskip("pandas", reason="pandas is optional")
        frame = reader.frame("v_calls")
        assert isinstance(frame, pandas.DataFrame)
        assert frame["num_prompt_tokens"].tolist() == [1000, 1000]
        assert frame["is_priced_uncached"].tolist() == [False, False]
        monkeypatch.setitem(sys.modules, "pandas", None)
        with pytest.raises(DbError, match="pip install pandas"):
            reader.frame("v_calls")


def test_unknown_views_and_sweeps_list_what_exists(store: Store, location: str, study: Any) -> None:
    """The error names the alternatives."""
    study.register(store, study.cell())
    with db.open(location) as reader:
        with pytest.raises(UnknownName, match="there are: v_cells, v_sessions, v_calls"):
            reader.select("v_runs")
        with pytest.raises(UnknownName, match="it holds: concurrency"):
            reader.table("coverage")


def test_concurrency_shows_the_only_sweep(store: Store, location: str, study: Any) -> None:
    """Without a sweep of that name the table `concurrency` shows the one there is, and asks when there are two."""
    cell = study.cell()
    study.register(store, cell, sweep="demo")
    with db.open(location) as reader:
        assert [row.arm for row in reader.table("concurrency").rows] == ["base"]
    study.register(store, cell, sweep="other")
    with db.open(location) as reader:
        with pytest.raises(UnknownName, match="no sweep 'concurrency'.*it holds: demo, other"):
            reader.table("concurrency")
        assert [row.arm for row in reader.table("concurrency", sweep="other").rows] == ["base"]

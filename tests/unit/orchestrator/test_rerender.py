"""Re-rendering without a database: the plan, the rows without times, and hits against the simulated engine's."""

from __future__ import annotations

import re

import pytest

from db import records
from db.recorder import InMemoryRecorder
from orchestrator.compose import Composer
from orchestrator.errors import UserError
from orchestrator.inline_executor import InlineExecutor
from orchestrator.interfaces import AttemptPlan, Lease
from orchestrator.plan import make_plan
from orchestrator.rerender import rerender_plan
from orchestrator.trust import AttemptRows, judge
from orchestrator.virtual_attempt import run_virtual_attempt

TRUST = {"min_concurrency_share": 0.95, "max_loop_lag_ms": 250.0, "max_lost_calls": 0, "max_negative_s": 1e-6}


@pytest.fixture(scope="module")
def composer() -> Composer:
    """Composing costs time; one composer serves all tests."""
    return Composer()


def rows_of(composer: Composer, *overrides: str) -> InMemoryRecorder:
    """Run one cell into memory."""
    recorder = InMemoryRecorder()
    recorder.start_attempt(
        records.Attempt(
            attempt_id="a.1",
            cell_key="a",
            number=1,
            lease_epoch=1,
            owner="me",
            started_utc_s=0.0,
            num_tasks=2,
            engine_kind="re-rendered",
            policy_kind="replay",
            benchmark_source="synthetic",
        )
    )
    texts = ("benchmark.num_tasks=2", "num_workers=1", "model=qwen3_8b", *overrides)
    config = composer.compose([composer.vocabulary.parse(text) for text in texts])
    outcome = run_virtual_attempt(AttemptPlan("a.1", "a", "a", config, Lease("a", "me", 1), ""), recorder)
    assert outcome.exit_class == "ok", outcome.detail
    return recorder


def test_a_list_of_renderers_is_a_sweep_of_arms(composer: Composer) -> None:
    """Base comes first unless named, `compact+refold` puts refold inside compact, w is 1 and there is no engine."""
    plan = rerender_plan(composer, ["renderer=refold,compact+refold", "benchmark.num_tasks=2"])
    assert (plan.name, [cell.arm for cell in plan.cells]) == ("rerender", ["base", "refold", "compact+refold"])
    assert [cell.kinds["renderer"] for cell in plan.cells] == ["base", "refold", "compact+refold"]
    assert {(cell.kinds["engine"], cell.kinds["benchmark"], cell.num_workers) for cell in plan.cells} == {
        ("prefix_cache", "synthetic", 1)
    }
    named = rerender_plan(composer, ["renderer=[mask,base]", "benchmark.num_tasks=2", "num_workers=2"])
    assert [(cell.arm, cell.num_workers) for cell in named.cells] == [("mask", 2), ("base", 2)]


def test_a_re_rendered_cell_is_another_cell_than_the_simulated_one(composer: Composer) -> None:
    """The engine is part of a cell's identity, and the sweep gets a name of its own."""
    plan = rerender_plan(composer, ["+sweep=smoke", "num_workers=2"])
    study = make_plan(composer, ["+sweep=smoke"])
    assert (plan.name, study.name) == ("rerender_smoke", "smoke")
    assert [cell.arm for cell in plan.cells] == [cell.arm for cell in study.cells]
    assert not {cell.key for cell in plan.cells} & {cell.key for cell in study.cells}


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["renderer=refold,msk"], "unknown renderer 'msk'; did you mean 'mask'?"),
        (["benchmark.num_tasks=2"], "rerender needs renderer=<one or more of conf/renderer, by commas>, or +sweep="),
        (["renderer=mask", "renderer=clip"], "renderer is given twice: renderer=mask and renderer=clip"),
        (["renderer=mask,"], "renderer=mask,: an empty name; write renderer=a,b,c"),
        (["renderer=mask", "engine=simulated"], "engine=simulated: re-rendering has no engine"),
        (["+sweep=rerender_ablations", "renderer=mask"], "renderer=mask: the sweep names the arms"),
        (["renderer=mask", "engine.num_blocks=0"], "engine.num_blocks=0: give at least 1, or null"),
        (["renderer=mask", "benchmark.path=nowhere"], "nowhere"),
        (
            ["renderer=mask", "executor=ray_actors"],
            "engine=prefix_cache has no time to run on: choose executor=virtual",
        ),
        (["renderer=mask+refold"], "nothing at 'renderer.inner' takes a renderer"),
    ],
)
def test_mistakes_are_one_line(composer: Composer, command: list[str], message: str) -> None:
    """Each names the value and the remedy; nothing is planned."""
    with pytest.raises(UserError, match=re.escape(message)):
        rerender_plan(composer, command)


def test_hits_are_those_of_the_simulated_engine(composer: Composer) -> None:
    """A dense model, one session at a time, a pool that evicts nothing: every call hits what vLLM's rules give it.

    The simulated engine's decisions equal vLLM's own scheduler's (tests/integration/test_vllm_scheduler).
    """
    found = {}
    for engine in ("simulated", "prefix_cache"):
        recorder = rows_of(composer, f"engine={engine}", "renderer=refold", "hardware=h200")
        found[engine] = {
            (call.session_id, call.call_index): (
                call.num_prompt_tokens,
                call.num_cached_tokens,
                call.num_completion_tokens,
                call.shared_prefix_tokens,
            )
            for call in recorder.rows[records.Call]
        }
    assert found["prefix_cache"] == found["simulated"]
    assert sum(cached or 0 for _, cached, _, _ in found["prefix_cache"].values()) > 0


def test_the_pool_s_limit_takes_hits_away(composer: Composer) -> None:
    """With 64 blocks of 16 tokens no call can hit more than 1,024 tokens; without a limit most hit more."""
    limited = rows_of(composer, "engine=prefix_cache", "engine.num_blocks=64").rows[records.Call]
    free = rows_of(composer, "engine=prefix_cache").rows[records.Call]
    assert max(call.num_cached_tokens or 0 for call in limited) <= 1024
    assert max(call.num_cached_tokens or 0 for call in free) > 1024


def test_rows_have_no_times_and_are_trusted(composer: Composer) -> None:
    """Stamps and waits are None; checks over time are not applied, the others are."""
    recorder = rows_of(composer, "engine=prefix_cache")
    calls, sessions = recorder.rows[records.Call], recorder.rows[records.Session]
    stamps = "due_s sent_s first_token_s last_token_s tool_result_s queue_delay_s prefill_s decode_s".split()
    assert {getattr(call, name) for call in calls for name in stamps} == {None}
    assert {(session.first_request_s, session.last_response_s) for session in sessions} == {(None, None)}
    rows = AttemptRows(
        sessions=sessions, calls=calls, num_workers=1, num_tasks=2, is_wall_clock=False, facts={"has_times": False}
    )
    assert judge(rows, TRUST) == ((), None)
    lost = AttemptRows(
        sessions=sessions, calls=calls[1:], num_workers=1, num_tasks=3, is_wall_clock=False, facts={"has_times": False}
    )
    reasons = judge(lost, TRUST).reasons
    assert [reason.split(" (")[0] for reason in reasons] == [
        "2 sessions of 2 tasks are recorded, 3 were to run",
        "1 calls have no row",
    ]
    timed = judge(AttemptRows(sessions=sessions, calls=calls, num_workers=1, num_tasks=2, is_wall_clock=False), TRUST)
    num_served = sum(call.state == "ok" for call in calls)
    assert f"queue_delay_s is missing in {num_served} of {num_served} served calls" in timed.reasons


def test_an_attempt_that_has_not_begun_can_be_cancelled() -> None:
    """Its outcome is Cancelled with the reason, and it never runs."""
    executor = InlineExecutor()
    executor.open(largest_num_workers=1)
    executor.submit(AttemptPlan("a.1", "a", "a", {}, Lease("a", "me", 1), "sqlite:///nowhere"))
    executor.cancel("a.1", "interrupted")
    (outcome,) = executor.wait(0.1)
    assert (outcome.exit_class, outcome.message) == ("Cancelled", "interrupted")
    assert (executor.wait(0.1), executor.progress()) == ([], [])

"""Jumping over stretches without a decision gives what stepping gives, in every field."""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass

import numpy as np
import pytest

from serving.calls import ReplicaSample
from serving.sim.engine import Finished, SimulatedCore
from serving.sim.kv_cache import CacheLayout, GroupKind
from serving.sim.scheduler import SchedulerLimits
from serving.sim.step_time import StepBatch

HYBRID = (GroupKind.state, GroupKind.state, GroupKind.state, GroupKind.attention)


class UnevenTime:
    """A step time with no round numbers, so that any other order of additions would show."""

    def step_time_s(self, batch: StepBatch) -> float:
        """Seconds."""
        return 0.0071 + 1.37e-4 * batch.num_prefill_tokens + 3.1e-9 * batch.prefill_pairs + 1.3e-7 * (
            batch.decode_context_tokens
        ) + 2.9e-5 * batch.num_decodes  # fmt: skip


@dataclass(frozen=True)
class Setting:
    """One random case."""

    limits: SchedulerLimits
    layout: CacheLayout
    num_sessions: int
    num_rounds: int
    max_out: int
    max_new: int
    think_s: float


def random_setting(rng: random.Random, *, is_hybrid: bool) -> Setting:
    """Small pools, so that stretches end for every possible reason."""
    size = rng.choice([4, 16, 32])
    num_blocks = rng.choice([60, 120, 400])
    groups = HYBRID if is_hybrid else (GroupKind.attention,)
    limits = SchedulerLimits(
        max_num_batched_tokens=rng.choice([max(32, size), 100, 700]),
        max_num_seqs=rng.choice([2, 6, 20]),
        max_model_len=(num_blocks - 10) * size,
        reserve_full_sequence=rng.random() < 0.8,
        long_prefill_token_threshold=rng.choice([0, 0, 0, 50]),
        watermark=rng.choice([0.0, 0.0, 0.05]),
    )
    layout = CacheLayout(num_blocks, size, groups, rng.random() < 0.9, rng.choice([0, None]) if is_hybrid else 0)
    return Setting(
        limits,
        layout,
        rng.choice([1, 4, 12]),
        6,
        rng.choice([10, 80, 300]),
        rng.choice([30, 200]),
        rng.choice([0.01, 1.0]),
    )


def run(setting: Setting, seed: int, max_jump_steps: int) -> tuple[list[Finished], list[ReplicaSample], list[object]]:
    """Closed-loop sessions on one engine; think times and lengths depend on the call only, not on the order."""
    core = SimulatedCore(
        setting.limits, setting.layout, UnevenTime(), sample_interval_s=0.31, max_jump_steps=max_jump_steps
    )
    shared = np.arange(40)
    prompts = {
        session: np.concatenate((shared, 1000 * (session + 1) + np.arange(20)))
        for session in range(setting.num_sessions)
    }
    queue = [(0.05 * session, session, 0) for session in range(setting.num_sessions)]
    heapq.heapify(queue)
    finished: list[Finished] = []
    timed_out: list[object] = []
    completions: dict[str, np.ndarray] = {}
    now_s = 0.0
    while queue or core.has_work:
        if not core.has_work:
            now_s = max(now_s, queue[0][0])
        while queue and queue[0][0] <= now_s:
            submit(core, setting, seed, heapq.heappop(queue), prompts, completions)
        timed_out += [(now_s, one) for one in core.expire(now_s)]
        end_s = core.begin(now_s)
        if end_s is None:
            continue
        if queue and queue[0][0] < end_s:
            end_s = core.cut(queue[0][0])
        deadline_s = core.next_deadline_s(end_s)
        if deadline_s is not None:
            end_s = core.cut(deadline_s)
        now_s = end_s
        for result in core.complete():
            finished.append(result)
            session, round_ = map(int, result.request_id.split(":"))
            prompts[session] = np.concatenate((prompts[session], completions[result.request_id]))
            if round_ + 1 < setting.num_rounds:
                think_s = random.Random(f"{seed}:{result.request_id}").random() * setting.think_s
                heapq.heappush(queue, (now_s + think_s, session, round_ + 1))
    return finished, core.drain_samples(now_s), [core.num_steps, core.kv_usage_peak, core.now_s, timed_out,
                                                  core.scheduler.cache.pool.free_order()]  # fmt: skip


def submit(
    core: SimulatedCore,
    setting: Setting,
    seed: int,
    due: tuple[float, int, int],
    prompts: dict[int, np.ndarray],
    completions: dict[str, np.ndarray],
) -> None:
    """One call of one session."""
    due_s, session, round_ = due
    request_id = f"{session}:{round_}"
    rng = random.Random(f"{seed}/{request_id}")
    start = 1_000_000 * (session + 1) + 10_000 * round_
    prompt = np.concatenate((prompts[session], start + np.arange(1 + rng.randrange(setting.max_new))))
    if rng.random() < 0.2 or len(prompt) > setting.limits.max_model_len * 0.8:
        prompt = prompt[: 1 + rng.randrange(min(len(prompt), setting.limits.max_model_len) // 2)]
    prompts[session] = prompt
    num_out = 1 + rng.randrange(setting.max_out)
    # Some sessions repeat others' replies: the same blocks are then filled twice at the same time.
    completions[request_id] = (7_000_000 if rng.random() < 0.3 else start + 5000) + np.arange(num_out)
    known = completions[request_id] if rng.random() < 0.8 else None
    core.submit(request_id, str(session), prompt, known, num_out, now_s=due_s, idle_timeout_s=rng.choice([3.0, 600.0]))


@pytest.mark.parametrize("is_hybrid", [False, True], ids=["dense", "hybrid"])
@pytest.mark.parametrize("seed", range(30))
def test_jumping_equals_stepping(seed: int, is_hybrid: bool) -> None:
    """Calls, samples, peak usage, timeouts, step count, time and the free list are equal, to the last bit."""
    setting = random_setting(random.Random(seed), is_hybrid=is_hybrid)
    stepped = run(setting, seed, 1)
    assert run(setting, seed, 256) == stepped
    assert run(setting, seed, 7) == stepped


@pytest.mark.parametrize("is_hybrid", [False, True], ids=["dense", "hybrid"])
@pytest.mark.parametrize("seed", range(100, 110))
def test_every_call_is_accounted_for(seed: int, is_hybrid: bool) -> None:
    """Each call ends once; cached <= shared <= prompt, at least one token computed; its moments are in order."""
    setting = random_setting(random.Random(seed), is_hybrid=is_hybrid)
    finished, samples, _ = run(setting, seed, 256)
    assert len({one.request_id for one in finished}) == len(finished)
    for one in finished:
        assert 0 <= one.num_cached_tokens <= one.max_shared_tokens <= one.num_prompt_tokens
        assert one.num_cached_tokens < one.num_prompt_tokens
        assert one.num_completion_tokens >= 1
        assert one.arrival_s <= one.first_scheduled_s < one.first_token_s <= one.last_token_s
        assert 0.0 <= one.requeue_s < one.last_token_s - one.first_scheduled_s
        assert (one.num_preemptions > 0) or (one.requeue_s == 0.0 and one.recomputed_tokens == 0)
    assert all(0.0 <= sample.kv_usage <= sample.kv_usage_peak <= 1.0 for sample in samples)

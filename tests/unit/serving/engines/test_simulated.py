"""The simulated replica on the virtual clock: results, timeouts, aborts, order, typed errors."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import numpy as np
import pytest

from serving.calls import CallKind, CallRequest, CallResult, FinishReason, Message, PinnedReply, Prompt
from serving.clock import VirtualClock, run_virtual
from serving.engines.simulated import SimulatedReplica
from serving.errors import ContextOverflow, ReplicaLost, ReplicaRejected, StreamTimeout
from serving.sim.engine import SimulatedCore
from serving.sim.kv_cache import CacheLayout
from serving.sim.scheduler import SchedulerLimits
from serving.sim.step_time import StepBatch


class FlatTime:
    """Every step takes one second, so that times can be counted by hand."""

    def step_time_s(self, batch: StepBatch) -> float:
        """One second."""
        return 1.0


def make_call(name: str, num_prompt: int, num_out: int, **changes: Any) -> CallRequest:
    """One call with its own token ids."""
    fields: dict[str, Any] = {
        "call_id": name,
        "session_id": name,
        "kind": CallKind.main,
        "call_index": 1,
        "main_index": 1,
        "model": "m",
        "messages": (),
        "prompt": Prompt((np.arange(num_prompt) + 10_000 * sum(map(ord, name)),), num_prompt, ""),
        "max_completion_tokens": 1000,
        "pinned": PinnedReply(Message("assistant", name), num_out, None),
        **changes,
    }
    return CallRequest(**fields)


def make_replica(
    clock: VirtualClock, *, num_blocks: int = 51, max_num_seqs: int = 8, budget: int = 64, **options: Any
) -> SimulatedReplica:
    """A replica with a budget of 64 tokens a step and a pool of (num_blocks - 1) x 16 tokens."""
    limits = SchedulerLimits(max_num_batched_tokens=budget, max_num_seqs=max_num_seqs, max_model_len=600)
    return SimulatedReplica("r0", "m", SimulatedCore(limits, CacheLayout(num_blocks, 16), FlatTime(), **options), clock)


async def later(clock: VirtualClock, seconds: float, coroutine: Coroutine[Any, Any, CallResult]) -> CallResult:
    """Await something some time later."""
    await clock.sleep(seconds)
    return await coroutine


def test_timings_of_a_lone_call() -> None:
    """100 prompt tokens at 64 a step = 2 steps to the first token, 5 tokens = 4 more: 6 s, arrival at 2.5 s."""

    async def main(clock: VirtualClock) -> CallResult:
        return await later(clock, 2.5, make_replica(clock).generate(make_call("a", 100, 5)))

    result = run_virtual(main)
    assert (result.sent_s, result.first_token_s, result.last_token_s) == (2.5, 4.5, 8.5)
    timings = result.timings
    assert (timings.queue_delay_s, timings.prefill_s, timings.decode_s, timings.requeue_s) == (0.0, 2.0, 4.0, 0.0)
    assert (result.usage.num_prompt_tokens, result.usage.num_cached_tokens, result.usage.num_completion_tokens) == (
        100,
        0,
        5,
    )
    assert (result.finish_reason, result.message.content) == (FinishReason.stop, "a")


@pytest.mark.parametrize("max_jump_steps", [1, 256])
def test_an_arrival_waits_for_the_next_step_boundary(max_jump_steps: int) -> None:
    """A call that comes at 10.3 s, inside a step (and inside a jumped stretch), is scheduled at 11 s."""

    async def main(clock: VirtualClock) -> list[CallResult]:
        replica = make_replica(clock, max_jump_steps=max_jump_steps)
        return await asyncio.gather(
            replica.generate(make_call("a", 30, 50)), later(clock, 10.3, replica.generate(make_call("b", 30, 3)))
        )

    first, second = run_virtual(main)
    assert second.timings.queue_delay_s == pytest.approx(0.7)
    assert second.last_token_s == 14.0
    assert first.last_token_s == 50.0


def test_a_call_without_a_token_times_out_in_the_queue() -> None:
    """With one seat and a long call in it, the second client gives up mid-step, after its idle timeout."""

    async def main(clock: VirtualClock) -> tuple[float, float, int]:
        replica = make_replica(clock, max_num_seqs=1)
        long = asyncio.ensure_future(replica.generate(make_call("a", 30, 100)))
        await clock.sleep(0.5)
        with pytest.raises(StreamTimeout, match="call b"):
            await replica.generate(make_call("b", 30, 3, idle_timeout_s=20.0))
        gave_up_s = clock.now_s()
        result = await long
        third = await replica.generate(make_call("c", 30, 1))
        assert third.timings.queue_delay_s == 0.0
        return gave_up_s, result.last_token_s, replica.core.scheduler.cache.pool.num_free

    assert run_virtual(main) == (20.5, 100.0, 50)


def test_tokens_keep_a_call_alive() -> None:
    """A call that gets a token every second outlives an idle timeout of 20 s."""

    async def main(clock: VirtualClock) -> CallResult:
        return await make_replica(clock).generate(make_call("a", 30, 100, idle_timeout_s=20.0))

    assert run_virtual(main).last_token_s == 100.0


def test_a_cancelled_call_is_aborted_in_the_engine() -> None:
    """Cancelling the awaiting task frees the blocks at the next boundary; others go on undisturbed."""

    async def main(clock: VirtualClock) -> tuple[float, int, bool]:
        replica = make_replica(clock)
        doomed = asyncio.ensure_future(replica.generate(make_call("a", 100, 400)))
        other = asyncio.ensure_future(replica.generate(make_call("b", 30, 50)))
        await clock.sleep(10.5)
        doomed.cancel()
        result = await other
        await clock.sleep(1)
        return result.last_token_s, replica.core.scheduler.cache.pool.num_free, replica.core.has_work

    last_s, num_free, has_work = run_virtual(main)
    assert (last_s, num_free, has_work) == (52.0, 50, False)


def test_too_long_prompts_are_a_context_overflow() -> None:
    """A prompt that leaves no room for a token is refused with the limit in the message."""

    async def main(clock: VirtualClock) -> None:
        await make_replica(clock).generate(make_call("a", 600, 5))

    with pytest.raises(ContextOverflow, match="600"):
        run_virtual(main)


@pytest.mark.parametrize(("num_prompt", "changes", "expected"), [(590, {}, 10), (50, {"max_completion_tokens": 7}, 7)])
def test_cut_completions_end_with_length(num_prompt: int, changes: dict[str, Any], expected: int) -> None:
    """max_model_len and max_completion_tokens both cut a pinned reply of 30 tokens."""

    async def main(clock: VirtualClock) -> CallResult:
        return await make_replica(clock).generate(make_call("a", num_prompt, 30, **changes))

    result = run_virtual(main)
    assert (result.usage.num_completion_tokens, result.finish_reason) == (expected, FinishReason.length)


def test_unpinned_calls_and_closed_replicas_are_refused() -> None:
    """No pinned reply: rejected. Closing fails the open calls and all later ones as lost."""

    async def main(clock: VirtualClock) -> None:
        replica = make_replica(clock)
        with pytest.raises(ReplicaRejected, match="pinned"):
            await replica.generate(make_call("a", 10, 5, pinned=None))
        open_call = asyncio.ensure_future(replica.generate(make_call("b", 10, 50)))
        await clock.sleep(3)
        with pytest.raises(ReplicaRejected, match="while nothing runs"):
            await replica.reset_prefix_cache()
        await replica.close()
        with pytest.raises(ReplicaLost):
            await open_call
        with pytest.raises(ReplicaLost):
            await replica.generate(make_call("c", 10, 5))

    run_virtual(main)


def test_phases_of_preempted_calls_add_up() -> None:
    """queue + prefill + decode = last token - sent, the waits after preemptions inside; the preempted call says so.

    Two calls of 160 + 400 tokens in 50 blocks: vLLM preempts the second in step 242, with 400 tokens computed, and
    resumes it in step 401, where 240 of them are still cached: 159 steps of waiting, 160 tokens computed again.
    """

    async def main(clock: VirtualClock) -> list[CallResult]:
        replica = make_replica(clock, budget=2048)
        return await asyncio.gather(*(replica.generate(make_call(name, 160, 400)) for name in "ab"))

    results = run_virtual(main)
    for result in results:
        timings = result.timings
        total_s = (timings.queue_delay_s or 0.0) + (timings.prefill_s or 0.0) + (timings.decode_s or 0.0)
        assert total_s == pytest.approx(result.last_token_s - result.sent_s)
    assert [result.timings.num_preemptions for result in results] == [0, 1]
    assert results[1].timings.recomputed_tokens == 160
    assert results[1].timings.requeue_s == 159.0
    assert (results[1].timings.decode_s, results[1].last_token_s) == (558.0, 559.0)


def test_samples_show_load_and_counters() -> None:
    """One sample per second: two calls run, usage is blocks in use, the second prompt's hit is in the counters."""

    async def main(clock: VirtualClock) -> tuple[list[Any], Any]:
        replica = make_replica(clock, sample_interval_s=1.0)
        await replica.generate(make_call("a", 64, 4))
        await replica.generate(make_call("a2", 64, 4, prompt=make_call("a", 64, 4).prompt))
        return replica.drain_samples(), replica.sample()

    samples, last = run_virtual(main)
    assert [sample.t_s for sample in samples] == [float(second) for second in range(8)]
    assert samples[0].num_running == 1
    assert samples[0].kv_usage == pytest.approx(4 / 50)
    assert last.kv_usage == 0.0
    assert last.kv_usage_peak == pytest.approx(5 / 50)
    assert (last.prefix_queries_tokens, last.prefix_hits_tokens) == (128, 48)


def test_equal_runs_give_equal_results() -> None:
    """The same program twice, with arrivals at the same moments, gives the same results in the same order."""

    async def main(clock: VirtualClock) -> list[CallResult]:
        replica = make_replica(clock, num_blocks=80)
        return await asyncio.gather(
            *(later(clock, index % 3, replica.generate(make_call(f"c{index}", 40 + index, 20))) for index in range(12))
        )

    assert run_virtual(main) == run_virtual(main)


class BrokenTime:
    """A step-time model with a bug."""

    def step_time_s(self, batch: StepBatch) -> float:
        """Never answers."""
        raise ZeroDivisionError("no bandwidth")


def test_a_dying_engine_fails_its_calls() -> None:
    """An error inside the engine reaches every open call as ReplicaLost with its cause; nothing hangs."""

    async def main(clock: VirtualClock) -> None:
        limits = SchedulerLimits(max_num_batched_tokens=64, max_num_seqs=8, max_model_len=600)
        replica = SimulatedReplica("r0", "m", SimulatedCore(limits, CacheLayout(51, 16), BrokenTime()), clock)
        with pytest.raises(ReplicaLost, match="no bandwidth") as caught:
            await replica.generate(make_call("a", 10, 5))
        assert isinstance(caught.value.__cause__, ZeroDivisionError)

    run_virtual(main)

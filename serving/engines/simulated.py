"""A simulated vLLM replica: the decisions of vLLM's scheduler, time from a roofline model, on any clock.

For executors in virtual time (no GPU) and on a scaled wall clock. `SimulatedEngine` is the configuration
(`conf/engine/simulated.yaml`), `SimulatedReplica` the running engine behind `serving.interfaces.Replica`.

The engine keeps its own time: the next step starts when the last one ended, however late the loop woke up. Replies are
pinned in advance: the engine decides when tokens come, not which.
Source: vLLM 0.32.0 (see `serving.sim`); ReFold (arXiv 2610.07863) appendix F for the settings studied.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from serving.calls import CallRequest, CallResult, EngineTimings, FinishReason, ReplicaSample, TokenUsage
from serving.errors import ContextOverflow, ReplicaLost, ReplicaRejected, ServingError, StreamTimeout
from serving.interfaces import Clock
from serving.sim.engine import Finished, SimulatedCore
from serving.sim.kv_cache import CacheLayout
from serving.sim.scheduler import SchedulerLimits
from serving.sim.step_time import Hardware, ModelShape, Roofline, num_kv_blocks


class EngineSettingError(ServingError):
    """Settings that no engine could start with; a user mistake."""


class EnginePlan(NamedTuple):
    """What the settings come to on a given model and hardware."""

    limits: SchedulerLimits
    layout: CacheLayout
    block_bytes: int

    def describe(self) -> dict[str, int | float | bool | str]:
        """Derived numbers for a dry run and for the cell's stored snapshot."""
        limits, layout = self.limits, self.layout
        return {
            "max_num_batched_tokens": limits.max_num_batched_tokens,
            "max_num_seqs": limits.max_num_seqs,
            "max_model_len": limits.max_model_len,
            "block_size": layout.block_size,
            "num_kv_blocks": layout.num_blocks,
            "kv_pool_tokens": (layout.num_blocks - 1) * layout.block_size,
            "kv_pool_gb_per_gpu": round(layout.num_blocks * self.block_bytes / 1e9, 2),
            "cache_groups": " ".join(layout.groups),
            "enable_prefix_caching": layout.enable_prefix_caching,
        }


@dataclass(frozen=True, slots=True)
class SimulatedEngine:
    """Settings of a simulated engine; names and defaults are vLLM's. None = derived as vLLM does.

    Attributes:
        gpu_memory_utilization: share of GPU memory the engine may use.
        reserved_gpu_bytes: activations, CUDA graphs and runtime per GPU (an assumption, not measured).
        max_num_seqs, max_num_batched_tokens: None = vLLM's default for the GPU's memory.
        max_model_len: longest sequence; None = what the model allows, at most what the KV pool holds.
        num_kv_blocks: overrides the derived pool size.
        enable_prefix_caching: False: every prompt is computed in full.
        prefix_cache_retention_interval: which recurrent states stay cached (hybrid models); 0 = replay boundaries.
        long_prefill_token_threshold: largest chunk of one prefill beside others, 0 = no limit.
        reserve_full_sequence: admit a request only when all its tokens fit (scheduler_reserve_full_isl).
        watermark: share of the pool an admission leaves free.
        sample_interval_s: seconds between load samples (does not change results).
        max_jump_steps: longest stretch computed at once, 1 = step by step (does not change results).
    """

    REVISION: ClassVar[int] = 1
    has_times: ClassVar[bool] = True

    PROVENANCE: ClassVar[frozenset[str]] = frozenset({"sample_interval_s", "max_jump_steps"})

    gpu_memory_utilization: float = 0.92
    reserved_gpu_bytes: int = 2_500_000_000
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    max_model_len: int | None = None
    num_kv_blocks: int | None = None
    enable_prefix_caching: bool = True
    prefix_cache_retention_interval: int | None = 0
    long_prefill_token_threshold: int = 0
    reserve_full_sequence: bool = True
    watermark: float = 0.0
    sample_interval_s: float = 1.0
    max_jump_steps: int = 256

    def plan(self, model: ModelShape, hardware: Hardware) -> EnginePlan:
        """Derive block size, pool size and limits.

        Raises:
            EngineSettingError: the model or the longest sequence does not fit.
        """
        self._refuse_impossible()
        gpus = hardware.num_gpus
        blocks = self.num_kv_blocks
        if blocks is None:
            blocks = num_kv_blocks(
                model, hardware, utilization=self.gpu_memory_utilization, reserved_bytes=self.reserved_gpu_bytes
            )
        layout = CacheLayout(
            num_blocks=blocks,
            block_size=model.block_size(gpus),
            groups=model.groups(),
            enable_prefix_caching=self.enable_prefix_caching,
            retention_interval=self.prefix_cache_retention_interval,
        )
        # One block is the null block; a lone sequence holds up to two states per state group.
        capacity = (blocks - 1 - 2 * layout.num_state_groups) * layout.block_size
        if capacity < 2 * layout.block_size:
            raise EngineSettingError(
                f"{model.name} leaves {blocks} KV blocks on {hardware.name}: use more GPUs, raise "
                f"gpu_memory_utilization ({self.gpu_memory_utilization}) or set num_kv_blocks"
            )
        max_model_len = self.max_model_len or min(model.max_position_tokens, capacity)
        if max_model_len > capacity:
            raise EngineSettingError(
                f"max_model_len={max_model_len} needs more than the {blocks} KV blocks of the pool "
                f"({capacity} tokens): lower max_model_len or raise num_kv_blocks"
            )
        limits = SchedulerLimits(
            max_num_batched_tokens=self.max_num_batched_tokens or hardware.default_max_num_batched_tokens(),
            max_num_seqs=self.max_num_seqs or hardware.default_max_num_seqs(),
            max_model_len=max_model_len,
            long_prefill_token_threshold=self.long_prefill_token_threshold,
            reserve_full_sequence=self.reserve_full_sequence,
            watermark=self.watermark,
        )
        interval = self.prefix_cache_retention_interval
        if layout.num_state_groups and interval and interval % layout.block_size:
            raise EngineSettingError(
                f"prefix_cache_retention_interval={interval} is not a multiple of the block size {layout.block_size}: "
                f"use 0, null or a multiple"
            )
        if limits.max_num_batched_tokens < limits.max_num_seqs:
            raise EngineSettingError(
                f"max_num_batched_tokens={limits.max_num_batched_tokens} is smaller than "
                f"max_num_seqs={limits.max_num_seqs}: raise the one or lower the other"
            )
        return EnginePlan(limits, layout, model.block_bytes(gpus))

    def _refuse_impossible(self) -> None:
        """Values outside a setting's range; 0 would else pass for "not set"."""
        for name in ("max_num_seqs", "max_num_batched_tokens", "max_model_len", "num_kv_blocks", "max_jump_steps"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise EngineSettingError(f"{name}={value}: it must be at least 1")
        if not 0 < self.gpu_memory_utilization <= 1:
            raise EngineSettingError(
                f"gpu_memory_utilization={self.gpu_memory_utilization}: give a share above 0 and up to 1"
            )
        if not 0 <= self.watermark < 1:
            raise EngineSettingError(f"watermark={self.watermark}: give a share from 0 to below 1")
        if self.sample_interval_s <= 0:
            raise EngineSettingError(f"sample_interval_s={self.sample_interval_s}: it must be above 0")
        for name in ("reserved_gpu_bytes", "long_prefill_token_threshold", "prefix_cache_retention_interval"):
            value = getattr(self, name)
            if value is not None and value < 0:
                raise EngineSettingError(f"{name}={value}: it must be at least 0")

    def replica(self, replica_id: str, model: ModelShape, hardware: Hardware, clock: Clock) -> SimulatedReplica:
        """Start one engine on `clock`; inside a running event loop."""
        plan = self.plan(model, hardware)
        core = SimulatedCore(
            plan.limits,
            plan.layout,
            Roofline(model, hardware),
            sample_interval_s=self.sample_interval_s,
            max_jump_steps=self.max_jump_steps,
        )
        return SimulatedReplica(replica_id, model.name, core, clock)


class SimulatedReplica:
    """One running simulated engine.

    Invariants: every generate() ends with a result or a typed error; an aborted or timed-out call gives its blocks back
    at the next step boundary. Calls of the same moment are taken in the order they were made.
    """

    def __init__(self, replica_id: str, model: str, core: SimulatedCore, clock: Clock) -> None:
        self.replica_id = replica_id
        self.model = model
        self.core = core
        self._clock = clock
        self._futures: dict[str, asyncio.Future[Finished]] = {}
        self._arrived = asyncio.Event()
        self._sleep: asyncio.Task[None] | None = None
        self._is_closed = False
        self._loop_task = asyncio.ensure_future(self._run())
        self._loop_task.add_done_callback(self._ended)

    async def generate(self, call: CallRequest) -> CallResult:
        """Serve one call; see `serving.interfaces.Replica`."""
        if self._is_closed:
            raise ReplicaLost(f"replica {self.replica_id} is closed")
        if call.pinned is None:
            raise ReplicaRejected(
                f"call {call.call_id}: a simulated engine needs a pinned reply (policy replay or scripted)"
            )
        limit = self.core.scheduler.limits.max_model_len
        if call.prompt.num_tokens >= limit:
            raise ContextOverflow(f"prompt of {call.prompt.num_tokens} tokens, max_model_len is {limit}")
        pinned = call.pinned
        num_tokens = max(1, min(pinned.num_tokens, call.max_completion_tokens))
        sent_s = self._clock.now_s()
        future: asyncio.Future[Finished] = asyncio.get_running_loop().create_future()
        self._futures[call.call_id] = future
        prompt = np.asarray(call.prompt.ids(), dtype=np.int64)
        self.core.submit(
            call.call_id,
            call.session_id,
            prompt,
            pinned.ids,
            num_tokens,
            now_s=sent_s,
            idle_timeout_s=call.idle_timeout_s,
        )
        self._wake()
        try:
            done = await future
        except asyncio.CancelledError:
            self._futures.pop(call.call_id, None)
            self.core.abort(call.call_id)
            self._wake()
            raise
        is_cut = done.is_truncated or num_tokens < pinned.num_tokens
        return _result(call, done, sent_s, FinishReason.length if is_cut else FinishReason.stop)

    def _wake(self) -> None:
        self._arrived.set()
        if self._sleep is not None:
            self._sleep.cancel()

    async def _run(self) -> None:
        while True:
            if not self.core.has_work:
                self._arrived.clear()
                await self._arrived.wait()
            await self._turn()

    def _ended(self, task: asyncio.Task[None]) -> None:
        """The engine loop died: every open call fails, none hangs."""
        self._is_closed = True
        error = None if task.cancelled() else task.exception()
        reason = "was closed" if error is None else f"died: {type(error).__name__}: {error}"
        for call_id in list(self._futures):
            lost = ReplicaLost(f"replica {self.replica_id} {reason}")
            lost.__cause__ = error
            self._fail(call_id, lost)

    async def _turn(self) -> None:
        """One step or stretch, from decision to results."""
        core, clock = self.core, self._clock
        end_s = core.begin(core.next_start_s())
        if end_s is None:
            return
        while True:
            deadline_s = core.next_deadline_s(end_s)
            until_s = end_s if deadline_s is None else deadline_s
            now_s = clock.now_s()
            if now_s < until_s:
                await self._sleep_until(until_s, now_s)
                now_s = clock.now_s()
            if now_s >= end_s:
                break
            for call_id in core.expire(now_s):
                self._fail(call_id, StreamTimeout(f"call {call_id}: no token for its idle timeout (t = {now_s:.3f} s)"))
            end_s = core.cut(now_s)
        for done in core.complete():
            future = self._futures.pop(done.request_id, None)
            if future is not None and not future.done():
                future.set_result(done)
        # Calls made at this very moment by those who just got their answer belong into the next decision.
        await clock.sleep(0)

    async def _sleep_until(self, until_s: float, now_s: float) -> None:
        if not self.core.is_stretch:
            await self._clock.sleep(until_s - now_s)
            return
        self._sleep = asyncio.ensure_future(self._clock.sleep(until_s - now_s))
        try:
            await self._sleep
        except asyncio.CancelledError:
            # Woken by a call, or really cancelled?
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
        finally:
            self._sleep = None

    def _fail(self, call_id: str, error: ServingError) -> None:
        future = self._futures.pop(call_id, None)
        if future is not None and not future.done():
            future.set_exception(error)

    def sample(self) -> ReplicaSample:
        """State now."""
        return self.core.sample(self._clock.now_s())

    def drain_samples(self) -> list[ReplicaSample]:
        """The samples taken at the configured interval since the last drain."""
        return self.core.drain_samples(self._clock.now_s())

    async def reset_prefix_cache(self) -> None:
        """Empty the prefix cache.

        Raises:
            ReplicaRejected: calls are running.
        """
        if self.core.has_work or not self.core.reset_prefix_cache():
            raise ReplicaRejected(f"replica {self.replica_id}: the prefix cache can only be reset while nothing runs")

    async def close(self) -> None:
        """Stop the engine; calls still open fail with ReplicaLost."""
        self._is_closed = True
        self._loop_task.cancel()
        await asyncio.wait([self._loop_task])


def _result(call: CallRequest, done: Finished, sent_s: float, finish_reason: FinishReason) -> CallResult:
    assert call.pinned is not None
    usage = TokenUsage(done.num_prompt_tokens, done.num_cached_tokens, done.num_completion_tokens, "engine")
    timings = EngineTimings(
        queue_delay_s=done.first_scheduled_s - done.arrival_s,
        requeue_s=done.requeue_s,
        prefill_s=done.first_token_s - done.first_scheduled_s,
        decode_s=done.last_token_s - done.first_token_s,
        num_preemptions=done.num_preemptions,
        recomputed_tokens=done.recomputed_tokens,
        max_shared_tokens=done.max_shared_tokens,
    )
    return CallResult(
        message=call.pinned.message,
        usage=usage,
        timings=timings,
        sent_s=sent_s,
        first_token_s=done.first_token_s,
        last_token_s=done.last_token_s,
        finish_reason=finish_reason,
    )

"""One simulated engine in its own time: requests in, finished calls and samples out. No asyncio, no clock.

For `serving.engines.simulated` and the benchmarks. Time is passed in: `begin(t)` decides what happens from `t` on and
says when it ends, `complete()` makes it happen. What is decided at `t` sees every request submitted before that call,
so an arrival waits for the next step boundary, as in vLLM's engine loop.

With `max_jump_steps` > 1 stretches without a decision are planned as a whole (see `stretch`); results are equal to
stepping in every field.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass, field

from serving.calls import ReplicaSample
from serving.sim.block_hash import ChainInterner, TokenIds
from serving.sim.kv_cache import CacheLayout
from serving.sim.scheduler import Scheduler, SchedulerLimits, Step
from serving.sim.sequence import Sequence
from serving.sim.step_time import StepTimeModel
from serving.sim.stretch import Stretch, plan_stretch

# Two moments closer than this are one: a clock that is moved by differences may miss a boundary by a rounding error.
_SAME_MOMENT_S = 1e-9


@dataclass(frozen=True, slots=True)
class Finished:
    """One finished call.

    arrival_s <= first_scheduled_s <= first_token_s <= last_token_s on the engine's clock.
    requeue_s: waits after preemptions, inside the prefill or decode phase they fall into (as vLLM reports it).
    num_cached_tokens: prefix-cache hit at the first admission. max_shared_tokens: upper bound of any honest hit.
    recomputed_tokens: computed tokens that preemptions lost and the cache did not give back.
    is_truncated: ended by max_model_len before the pinned length.
    """

    request_id: str
    num_prompt_tokens: int
    num_cached_tokens: int
    max_shared_tokens: int
    num_completion_tokens: int
    arrival_s: float
    first_scheduled_s: float
    first_token_s: float
    last_token_s: float
    requeue_s: float
    num_preemptions: int
    recomputed_tokens: int
    is_truncated: bool


@dataclass(slots=True)
class _Open:
    """A request that has not ended: its sequence and what only the result needs."""

    sequence: Sequence
    max_shared_tokens: int
    pinned_tokens: int
    idle_timeout_s: float


@dataclass(slots=True)
class _Gauges:
    """State right after a step was decided; samples inside that step show it."""

    kv_usage: float = 0.0
    num_running: int = 0
    num_waiting: int = 0


@dataclass(slots=True)
class _Samples:
    interval_s: float
    next_s: float = 0.0
    taken: list[ReplicaSample] = field(default_factory=list)


class EngineStalled(RuntimeError):
    """Requests wait, nothing runs and nothing can be admitted: a bug in the engine or an impossible setting."""


class SimulatedCore:
    """A scheduler with a clock of its own.

    Args:
        limits, layout: vLLM's settings.
        step_time: seconds per step.
        sample_interval_s: seconds between samples of load and cache usage.
        max_jump_steps: longest stretch planned at once; 1 = step by step.
    """

    def __init__(
        self,
        limits: SchedulerLimits,
        layout: CacheLayout,
        step_time: StepTimeModel,
        *,
        sample_interval_s: float = 1.0,
        max_jump_steps: int = 256,
    ) -> None:
        self.scheduler = Scheduler(limits, layout)
        self.now_s = 0.0
        self.kv_usage_peak = 0.0
        self.num_steps = 0
        self.num_plans = 0
        self._step_time = step_time
        self._max_jump_steps = max_jump_steps
        self._interner = ChainInterner(layout.block_size)
        self._open: dict[str, _Open] = {}
        self._inbox: list[Sequence] = []
        self._aborts: list[Sequence] = []
        self._step: Step | None = None
        self._stretch: Stretch | None = None
        self._end_s = 0.0
        self._gauges = _Gauges()
        self._samples = _Samples(sample_interval_s)
        self._deadlines: list[tuple[float, int, str]] = []
        self._num_submitted = 0

    # ---- requests

    @property
    def has_work(self) -> bool:
        """Whether any request is open or any abort is due."""
        return bool(self._open or self._aborts)

    def next_start_s(self) -> float:
        """When the next step can start: where the last one ended, or at the first arrival after an idle time."""
        if self.scheduler.running or self.scheduler.waiting or not self._inbox:
            return self.now_s
        return max(self.now_s, min(one.arrival_s for one in self._inbox))

    @property
    def is_stretch(self) -> bool:
        """Whether what is under way can be cut before its end."""
        return self._stretch is not None

    def submit(
        self,
        request_id: str,
        session_id: str,
        prompt: TokenIds,
        completion: TokenIds | None,
        num_completion_tokens: int,
        *,
        now_s: float,
        idle_timeout_s: float = 600.0,
    ) -> None:
        """A request arrives; it will generate exactly `num_completion_tokens` (fewer at max_model_len).

        Args:
            prompt: (P,) int64 ids, 1 <= P < max_model_len.
            completion: ids the generated tokens will have in later prompts, as far as known; None: nothing is known.
        """
        if request_id in self._open:
            raise ValueError(f"request {request_id} is already open on this engine")
        limit = self.scheduler.limits.max_model_len
        final_tokens = min(len(prompt) + num_completion_tokens, limit)
        num_generated = final_tokens - len(prompt)
        if num_generated < 1 or not len(prompt):
            raise ValueError(f"a prompt of {len(prompt)} tokens does not fit max_model_len {limit} (or is empty)")
        chain = self._interner.chain(session_id, prompt, completion, num_generated)
        sequence = Sequence(request_id, chain.ids, num_prompt_tokens=len(prompt), final_tokens=final_tokens)
        sequence.arrival_s = now_s
        self._open[request_id] = _Open(sequence, chain.num_shared_tokens, num_completion_tokens, idle_timeout_s)
        self._inbox.append(sequence)
        self._num_submitted += 1
        heapq.heappush(self._deadlines, (now_s + idle_timeout_s, self._num_submitted, request_id))

    def abort(self, request_id: str) -> None:
        """Drop a request at the next step boundary; nothing happens when it has ended."""
        one = self._open.pop(request_id, None)
        if one is not None:
            self._aborts.append(one.sequence)

    def next_deadline_s(self, before_s: float) -> float | None:
        """When the next client gives up, if that is before `before_s`."""
        entry = self._pop_deadline(before_s)
        if entry is None:
            return None
        heapq.heappush(self._deadlines, entry)
        return entry[0]

    def expire(self, now_s: float) -> list[str]:
        """Abort every request without a token for its idle timeout at `now_s`; returns their ids in order."""
        expired: list[str] = []
        while (entry := self._pop_deadline(math.nextafter(now_s, math.inf))) is not None:
            expired.append(entry[2])
            self.abort(entry[2])
        return expired

    def _pop_deadline(self, before_s: float) -> tuple[float, int, str] | None:
        """Take out the earliest true deadline before `before_s`; entries are lower bounds, corrected on the way."""
        heap, found = self._deadlines, None
        decoding: list[tuple[float, int, str]] = []
        while heap and heap[0][0] < before_s:
            deadline_s, order, request_id = heap[0]
            one = self._open.get(request_id)
            if one is None:
                heapq.heappop(heap)
            elif self._stretch is not None and self._stretch.is_decoding(one.sequence):
                # Gets a token with every step of the stretch (a step is shorter than any idle timeout).
                decoding.append(heapq.heappop(heap))
            else:
                last_s = one.sequence.last_token_s
                actual_s = (one.sequence.arrival_s if last_s is None else last_s) + one.idle_timeout_s
                if actual_s <= deadline_s:
                    found = heapq.heappop(heap)
                    break
                heapq.heapreplace(heap, (actual_s, order, request_id))
        for entry in decoding:
            heapq.heappush(heap, entry)
        return found

    # ---- time

    def begin(self, start_s: float) -> float | None:
        """Decide what happens from `start_s` on; returns when it ends, None when there is nothing to do.

        Requests that arrived by then take part; on a wall clock that runs ahead of the engine later ones stay outside.
        """
        self._sample_until(start_s)
        self.now_s = start_s
        self._take_requests(start_s)
        scheduler = self.scheduler
        if not scheduler.running and not scheduler.waiting:
            self._set_gauges()
            return None
        self.num_plans += 1
        if self._max_jump_steps > 1:
            self._stretch = plan_stretch(scheduler, self._step_time, start_s, self._max_jump_steps)
            if self._stretch is not None:
                next_s = min((one.arrival_s for one in self._inbox), default=math.inf)
                self._end_s = self._stretch.cut(next_s)
                return self._end_s
        step = scheduler.schedule()
        if not step.sequences:
            raise EngineStalled(f"{len(scheduler.waiting)} requests wait and none can be admitted")
        for sequence in step.admitted:
            if sequence.first_scheduled_s is None:
                sequence.first_scheduled_s = max(start_s, sequence.arrival_s)
            else:
                sequence.requeue_s += start_s - sequence.preempted_s
        for sequence in step.preempted:
            sequence.preempted_s = start_s
        self._set_gauges()
        self._step = step
        self._end_s = start_s + self._step_time.step_time_s(step.batch)
        return self._end_s

    def cut(self, at_s: float) -> float:
        """Let the stretch under way end at its first step boundary at or after `at_s`; returns the end."""
        if self._stretch is not None:
            self._end_s = self._stretch.cut(at_s)
        return self._end_s

    def complete(self) -> list[Finished]:
        """What was begun ends: hand out tokens; returns the calls that finished, in scheduling order."""
        end_s = self._end_s
        if self._stretch is not None:
            ended = self._complete_stretch(self._stretch)
            self._stretch = None
        else:
            assert self._step is not None
            self._sample_until(end_s)
            ended = self.scheduler.finish_step(self._step, end_s)
            self._step = None
            self.num_steps += 1
        self.now_s = end_s
        self._gauges.kv_usage = self.scheduler.cache.pool.usage
        self._gauges.num_running = len(self.scheduler.running)
        return [result for sequence in ended if (result := self._result(sequence)) is not None]

    def _complete_stretch(self, stretch: Stretch) -> list[Sequence]:
        ends = stretch.ends_s
        number = stretch.next_event()
        done_s = ends[min(number, len(ends) + 1) - 2] if number > 1 else self.now_s
        self._set_gauges()
        while number <= len(ends):
            self._sample_until(done_s)
            stretch.apply(number)
            self._set_gauges()
            number = stretch.next_event()
            done_s = ends[min(number, len(ends) + 1) - 2]
        self._sample_until(ends[-1])
        self.num_steps += len(ends)
        return stretch.close()

    def _take_requests(self, start_s: float) -> None:
        if self._aborts:
            gone = set(map(id, self._aborts))
            queued = [one for one in self._aborts if one not in self._inbox]
            self._inbox = [one for one in self._inbox if id(one) not in gone]
            self.scheduler.abort(queued)
            self._aborts.clear()
        if self._inbox:
            late = [one for one in self._inbox if one.arrival_s > start_s + _SAME_MOMENT_S]
            for sequence in self._inbox:
                if sequence.arrival_s <= start_s + _SAME_MOMENT_S:
                    self.scheduler.add(sequence)
            self._inbox = late

    def _result(self, sequence: Sequence) -> Finished | None:
        one = self._open.pop(sequence.request_id, None)
        if one is None:
            return None  # aborted while its last step was under way
        assert sequence.first_scheduled_s is not None
        assert sequence.num_cached_tokens is not None
        assert sequence.first_token_s is not None
        assert sequence.last_token_s is not None
        num_completion_tokens = sequence.num_tokens - sequence.num_prompt_tokens
        return Finished(
            request_id=sequence.request_id,
            num_prompt_tokens=sequence.num_prompt_tokens,
            num_cached_tokens=sequence.num_cached_tokens,
            max_shared_tokens=one.max_shared_tokens,
            num_completion_tokens=num_completion_tokens,
            arrival_s=sequence.arrival_s,
            first_scheduled_s=sequence.first_scheduled_s,
            first_token_s=sequence.first_token_s,
            last_token_s=sequence.last_token_s,
            requeue_s=sequence.requeue_s,
            num_preemptions=sequence.num_preemptions,
            recomputed_tokens=sequence.recomputed_tokens,
            is_truncated=num_completion_tokens < one.pinned_tokens,
        )

    # ---- load

    def _set_gauges(self) -> None:
        scheduler = self.scheduler
        usage = scheduler.cache.pool.usage
        self._gauges = _Gauges(usage, len(scheduler.running), len(scheduler.waiting))
        if usage > self.kv_usage_peak:
            self.kv_usage_peak = usage

    def sample(self, now_s: float) -> ReplicaSample:
        """State at `now_s`: the gauges of the step under way, the counters so far."""
        gauges, scheduler = self._gauges, self.scheduler
        return ReplicaSample(
            t_s=now_s,
            kv_usage=gauges.kv_usage,
            kv_usage_peak=self.kv_usage_peak,
            num_running=gauges.num_running,
            num_waiting=gauges.num_waiting,
            num_preemptions_total=scheduler.num_preemptions,
            prefix_queries_tokens=scheduler.prefix_queries_tokens,
            prefix_hits_tokens=scheduler.prefix_hits_tokens,
        )

    def _sample_until(self, until_s: float) -> None:
        samples = self._samples
        while samples.next_s < until_s:
            samples.taken.append(self.sample(samples.next_s))
            samples.next_s += samples.interval_s

    def drain_samples(self, now_s: float) -> list[ReplicaSample]:
        """The samples taken since the last drain, one per interval."""
        if self._step is None and self._stretch is None:
            self._sample_until(now_s)
        taken, self._samples.taken = self._samples.taken, []
        return taken

    def reset_prefix_cache(self) -> bool:
        """Forget all cached blocks; False while anything runs."""
        return self.scheduler.cache.pool.reset()

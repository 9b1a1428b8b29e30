"""vLLM's V1 scheduling decisions, without vLLM: who computes how many tokens in the next step.

For `serving.sim.engine` and the equality tests. There are no prefill and decode phases: every sequence catches up
with its `num_tokens`. Running sequences come first, in order; the last one is preempted when blocks run out; waiting
ones are admitted first come, first served, only while budget is left and only if nothing was preempted in this step.

Synchronous scheduling (no extra step in flight), no speculative decoding, FCFS.
Source: vLLM 0.32.0, `Scheduler.schedule`, `_preempt_request`, `_update_after_schedule`, `update_from_output` and
`_mamba_block_aligned_split` in `vllm/v1/core/sched/scheduler.py`; `check_stop` in `sched/utils.py`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from serving.sim.kv_cache import CacheLayout, make_cache
from serving.sim.sequence import Sequence, Status
from serving.sim.step_time import StepBatch

EMPTY_BATCH = StepBatch(0, 0, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class SchedulerLimits:
    """vLLM's settings that decide who runs; every field is part of a cell's identity.

    Attributes:
        max_num_batched_tokens: token budget of one step.
        max_num_seqs: most sequences running at once.
        max_model_len: a sequence ends when it has this many tokens.
        long_prefill_token_threshold: largest chunk of one prefill while others are there, 0 = no limit.
        reserve_full_sequence: admit a sequence only when all its known tokens fit (scheduler_reserve_full_isl).
        watermark: share of the pool that an admission must leave free while something runs.
    """

    max_num_batched_tokens: int
    max_num_seqs: int
    max_model_len: int
    long_prefill_token_threshold: int = 0
    reserve_full_sequence: bool = True
    watermark: float = 0.0


@dataclass(slots=True)
class Step:
    """What one step computes.

    sequences[i] computes counts[i] tokens. emitting: sequences that get a token at the step's end. admitted: taken
    from the queue in this step. preempted: thrown out, in order. batch: for the step's time.
    """

    sequences: list[Sequence]
    counts: list[int]
    emitting: list[Sequence]
    admitted: list[Sequence]
    preempted: list[Sequence]
    batch: StepBatch = EMPTY_BATCH


class Scheduler:
    """The queue, the running list and the cache of one engine.

    Invariants: running sequences hold blocks, waiting ones none; sum of counts <= max_num_batched_tokens.
    """

    def __init__(self, limits: SchedulerLimits, layout: CacheLayout) -> None:
        self.limits = limits
        self.layout = layout
        self.cache = make_cache(layout)
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []
        self.num_preemptions = 0
        self.prefix_queries_tokens = 0
        self.prefix_hits_tokens = 0
        self.is_aligned = layout.num_state_groups > 0 and layout.enable_prefix_caching
        self._headroom = int(limits.watermark * layout.num_blocks)

    def add(self, sequence: Sequence) -> None:
        """Queue a new sequence."""
        self.cache.admit_keys(sequence)
        self.waiting.append(sequence)

    def abort(self, sequences: Iterable[Sequence]) -> None:
        """Remove sequences wherever they are; between steps only."""
        for sequence in sequences:
            if sequence.status is Status.running:
                self.running.remove(sequence)
                self.cache.release(sequence)
            elif sequence.status is not Status.finished:
                self.waiting.remove(sequence)
            sequence.status = Status.finished

    def schedule(self) -> Step:
        """Decide the next step and count its tokens as computed."""
        self.cache.new_step()
        step = Step([], [], [], [], [])
        budget = self._schedule_running(step)
        if budget > 0 and self.waiting and not step.preempted:
            self._schedule_waiting(step, budget)
        self._advance(step)
        return step

    def _advance(self, step: Step) -> None:
        """Count the step's tokens as computed, as vLLM does at schedule time."""
        num_prefill = pairs = num_prefills = context = 0
        emit = step.emitting.append
        for sequence, count in zip(step.sequences, step.counts, strict=True):
            start = sequence.num_computed
            end = sequence.num_computed = start + count
            if count == 1:
                context += end
            else:
                num_prefills += 1
                num_prefill += count
                pairs += count * start + count * (count + 1) // 2
            if end == sequence.num_tokens:
                emit(sequence)
        num_decodes = len(step.counts) - num_prefills
        step.batch = StepBatch(num_prefill, pairs, num_prefills, num_decodes, context)

    def finish_step(self, step: Step, end_s: float) -> list[Sequence]:
        """Give each emitting sequence its token; returns the sequences that ended, in scheduling order."""
        ended: list[Sequence] = []
        for sequence in step.emitting:
            sequence.num_tokens += 1
            sequence.last_token_s = end_s
            if sequence.first_token_s is None:
                sequence.first_token_s = end_s
            if sequence.num_tokens >= sequence.final_tokens:
                ended.append(sequence)
        if ended:
            self.end(ended)
        return ended

    def end(self, ended: list[Sequence]) -> None:
        """Take finished sequences out, in order, and free their blocks."""
        for sequence in ended:
            sequence.status = Status.finished
            self.cache.release(sequence)
        self.running = [sequence for sequence in self.running if sequence.status is Status.running]

    def _threshold(self) -> int:
        alone = len(self.running) + len(self.waiting) <= 1
        return 0 if alone else self.limits.long_prefill_token_threshold

    def _schedule_running(self, step: Step) -> int:
        """Running sequences in order; returns the budget left."""
        budget = self.limits.max_num_batched_tokens
        threshold = self._threshold()
        running = self.running
        index = 0
        while index < len(running) and budget > 0:
            sequence = running[index]
            num_new = sequence.num_tokens - sequence.num_computed
            if num_new != 1 or sequence.num_computed >= sequence.fast_until:
                num_new = self._chunk(sequence, num_new, budget, threshold)
                if not num_new:
                    index += 1
                    continue
                if not self._allocate(sequence, num_new, step):
                    break
            step.sequences.append(sequence)
            step.counts.append(num_new)
            budget -= num_new
            index += 1
        return budget

    def _chunk(self, sequence: Sequence, num_new: int, budget: int, threshold: int) -> int:
        if 0 < threshold < num_new:
            num_new = threshold
        num_new = min(num_new, budget, self.limits.max_model_len - sequence.num_computed - 1)
        return self._align(sequence, sequence.num_computed, num_new) if self.is_aligned else num_new

    def _allocate(self, sequence: Sequence, num_new: int, step: Step) -> bool:
        """Slots for a running sequence, preempting from the end of the list; False when it fell itself."""
        while not self.cache.allocate(sequence, num_new):
            victim = self.running.pop()
            self._preempt(victim)
            step.preempted.append(victim)
            if victim is sequence:
                return False
        return True

    def _preempt(self, victim: Sequence) -> None:
        victim.lost_tokens = victim.num_computed
        self.cache.release(victim)
        victim.num_computed = 0
        victim.num_preemptions += 1
        victim.status = Status.preempted
        self.num_preemptions += 1
        self.waiting.appendleft(victim)

    def _schedule_waiting(self, step: Step, budget: int) -> None:
        while self.waiting and budget > 0 and len(self.running) < self.limits.max_num_seqs:
            sequence = self.waiting[0]
            hit = self.cache.find_hit(sequence)
            num_new = self._first_chunk(sequence, hit.num_tokens, budget)
            if not num_new:
                break
            headroom = self._headroom if self.running else 0
            reserve = self.limits.reserve_full_sequence
            if not self.cache.fits(sequence, num_new, hit, whole_sequence=reserve, headroom=headroom):
                break
            self.cache.admit(sequence, num_new, hit)
            self.waiting.popleft()
            self._start(sequence, hit.num_tokens)
            step.sequences.append(sequence)
            step.counts.append(num_new)
            step.admitted.append(sequence)
            budget -= num_new

    def _start(self, sequence: Sequence, num_hit_tokens: int) -> None:
        if sequence.num_cached_tokens is None:
            sequence.num_cached_tokens = num_hit_tokens
        if sequence.status is Status.waiting:
            # vLLM counts the lookups of resumed sequences apart; these totals are first admissions.
            self.prefix_queries_tokens += sequence.num_tokens
            self.prefix_hits_tokens += num_hit_tokens
        else:
            sequence.recomputed_tokens += max(0, sequence.lost_tokens - num_hit_tokens)
        sequence.status = Status.running
        sequence.num_computed = num_hit_tokens
        self.running.append(sequence)

    def is_queue_blocked(self) -> bool:
        """Whether no step of pure decoding can admit anybody: nobody waits, no seat, or too few blocks to come.

        Blocks only get fewer while sequences decode. The queue's head could still need fewer of them, if a running
        sequence is about to cache the very block at which the head's hit ends.
        """
        if not self.waiting or len(self.running) >= self.limits.max_num_seqs:
            return True
        head = self.waiting[0]
        self.cache.new_step()
        hit = self.cache.find_hit(head)
        num_new = self._first_chunk(head, hit.num_tokens, self.limits.max_num_batched_tokens - len(self.running))
        reserve = self.limits.reserve_full_sequence
        if not num_new or self.cache.fits(head, num_new, hit, whole_sequence=reserve, headroom=self._headroom):
            return False
        end = len(self.cache.cached_prefix(head))
        if end >= len(head.chain):
            return True
        wanted = head.chain[end]
        return not any(end < len(one.chain) and one.chain[end] == wanted for one in self.running)

    def _first_chunk(self, sequence: Sequence, num_hit_tokens: int, budget: int) -> int:
        """Tokens a waiting sequence would compute in this step; 0 when the budget cannot hold an aligned chunk."""
        num_new = sequence.num_tokens - num_hit_tokens
        threshold = self._threshold()
        if 0 < threshold < num_new:
            num_new = threshold
        num_new = min(num_new, budget)
        return self._align(sequence, num_hit_tokens, num_new) if self.is_aligned else num_new

    def _align(self, sequence: Sequence, start: int, num_new: int) -> int:
        """Cut a prefill chunk so that it ends where a state must be kept; 0 when the budget is too small for that."""
        prefill_end = max(sequence.num_prompt_tokens, sequence.num_tokens - 1)
        if start >= prefill_end:
            return num_new
        size = self.layout.block_size
        end = start + num_new
        if end < prefill_end:
            largest = self.limits.max_num_batched_tokens
            if self.limits.long_prefill_token_threshold:
                largest = min(largest, self.limits.long_prefill_token_threshold)
            aligned_end = end // size * size
            if aligned_end > start or size <= largest:
                end = aligned_end
        stops = [(sequence.num_tokens - 1) // size * size]
        if start % size:
            stops.append((start // size + 1) * size)
        junction = sequence.shared_prefix_tokens
        if start < junction < end:
            stops.append(start + (junction - start) // size * size)
        end = min((stop for stop in stops if start < stop < end), default=end)
        return max(end - start, 0)

"""Stretches of steps without a decision: planned as a whole, cut at a step boundary, applied at once.

For `serving.sim.engine`. A stretch is a run of steps in which the same sequences compute the same number of tokens:
all decode one token each, and (dense models) at most one prefill takes the whole rest of the budget. Nobody can be
admitted, preempted or finished before its last step. Applying j steps of it leaves exactly the state of j single
steps (times included: they are added up in the same order), which the tests check against stepping.
"""

from __future__ import annotations

import heapq
from typing import NamedTuple

from serving.sim.kv_cache import HybridCache
from serving.sim.scheduler import Scheduler
from serving.sim.sequence import Sequence
from serving.sim.step_time import StepBatch, StepTimeModel


class _Member(NamedTuple):
    sequence: Sequence
    chunk: int
    start: int


class Stretch:
    """Planned steps 1..len(ends_s); `apply` moves the scheduler forward, `close` ends the stretch.

    Attributes:
        ends_s: end of each step on the engine's clock; cut it by deleting its tail.
    """

    def __init__(self, scheduler: Scheduler, members: list[_Member], ends_s: list[float]) -> None:
        self.ends_s = ends_s
        self._scheduler = scheduler
        self._members = members
        self._events: list[tuple[int, int]] = []
        for position in range(len(members)):
            self._push(position, 1)

    def cut(self, at_s: float) -> float:
        """Let the stretch end at the first boundary at or after `at_s`; returns that boundary."""
        ends = self.ends_s
        low, high = 0, len(ends) - 1
        while low < high:
            middle = (low + high) // 2
            if ends[middle] >= at_s:
                high = middle
            else:
                low = middle + 1
        del ends[low + 1 :]
        return ends[low]

    def is_decoding(self, sequence: Sequence) -> bool:
        """Whether this sequence gets a token with every step."""
        return any(one.sequence is sequence and one.chunk == 1 for one in self._members)

    def _push(self, position: int, after: int) -> None:
        """Queue the first step >= `after` in which this member needs block work."""
        member = self._members[position]
        number = max(after, (member.sequence.fast_until - member.start) // member.chunk + 1)
        if number <= len(self.ends_s):
            heapq.heappush(self._events, (number, position))

    def next_event(self) -> int:
        """Number of the next step with block work, or a number behind the last step."""
        return self._events[0][0] if self._events else len(self.ends_s) + 1

    def apply(self, number: int) -> None:
        """Do the block work of every step up to and including `number`."""
        cache, events = self._scheduler.cache, self._events
        while events and events[0][0] <= number:
            step, position = heapq.heappop(events)
            sequence, count, start = self._members[position]
            sequence.num_computed = start + (step - 1) * count
            if not cache.allocate(sequence, count):
                raise AssertionError("a stretch ran out of blocks: its plan was wrong")
            self._push(position, step + 1)

    def close(self) -> list[Sequence]:
        """Count all steps as done; returns the sequences that ended with the last one, in scheduling order."""
        num_steps = len(self.ends_s)
        self.apply(num_steps)
        ended: list[Sequence] = []
        for sequence, count, start in self._members:
            sequence.num_computed = start + num_steps * count
            if count == 1:
                sequence.num_tokens += num_steps
                sequence.last_token_s = self.ends_s[-1]
                if sequence.num_tokens >= sequence.final_tokens:
                    ended.append(sequence)
        if ended:
            self._scheduler.end(ended)
        return ended


def plan_stretch(scheduler: Scheduler, step_time: StepTimeModel, start_s: float, max_steps: int) -> Stretch | None:
    """The stretch that begins at `start_s`, or None when the next step is a decision or stands alone."""
    limits = scheduler.limits
    budget = limits.max_num_batched_tokens
    members: list[_Member] = []
    num_steps = max_steps
    prefill: _Member | None = None
    for sequence in scheduler.running:
        if not budget:
            break
        start = sequence.num_computed
        count = sequence.num_tokens - start
        if count == 1:
            if sequence.first_token_s is None:
                return None
            num_steps = min(num_steps, sequence.final_tokens - sequence.num_tokens)
            budget -= 1
        else:
            # The rest of the budget, in chunks that all leave something to compute.
            if scheduler.is_aligned or limits.long_prefill_token_threshold or count <= budget:
                return None
            num_steps = min(num_steps, (count - 1) // budget)
            count, budget = budget, 0
            prefill = _Member(sequence, count, start)
        if num_steps < 2:
            return None
        members.append(_Member(sequence, count, start))
    if not members or (budget and not scheduler.is_queue_blocked()):
        return None
    num_steps = _steps_with_blocks(scheduler, members, num_steps, is_queue_waiting=bool(budget and scheduler.waiting))
    if num_steps < 2:
        return None
    scheduler.cache.new_step()
    return Stretch(scheduler, members, _ends(step_time, members, prefill, start_s, num_steps))


def _steps_with_blocks(scheduler: Scheduler, members: list[_Member], num_steps: int, *, is_queue_waiting: bool) -> int:
    """How many steps are sure to get their blocks without changing who could be admitted."""
    cache = scheduler.cache
    is_hybrid = isinstance(cache, HybridCache)
    if is_hybrid and is_queue_waiting:
        # States are given back in the steps around a block boundary, which may let a waiting sequence in.
        return min(num_steps, *(one.sequence.fast_until - one.start for one in members))
    size = cache.block_size
    per_boundary = 1 + scheduler.layout.num_state_groups
    while num_steps >= 2:
        needed = sum(
            max(0, -(-(start + num_steps * count) // size) - sequence.num_blocks) for sequence, count, start in members
        )
        if needed * per_boundary <= cache.pool.num_free:
            break
        num_steps //= 2
    return num_steps


def _ends(
    step_time: StepTimeModel, members: list[_Member], prefill: _Member | None, start_s: float, num_steps: int
) -> list[float]:
    num_decodes = len(members) - (prefill is not None)
    context = sum(start for _, count, start in members if count == 1)
    ends: list[float] = []
    now_s = start_s
    position, chunk = (prefill.start, prefill.chunk) if prefill else (0, 0)
    num_prefills = 1 if prefill else 0
    pairs = 0
    for _ in range(num_steps):
        context += num_decodes
        if chunk:
            pairs = chunk * position + chunk * (chunk + 1) // 2
            position += chunk
        now_s += step_time.step_time_s(StepBatch(chunk, pairs, num_prefills, num_decodes, context))
        ends.append(now_s)
    return ends

"""Workloads and step records that two schedulers can be compared on.

For the fuzz script, the golden traces of the real scheduler and their replay in the unit tests. A workload is written
as recipes (keep so many tokens of an earlier call, add so many new ones), so that a trace file holds no token ids.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from serving.sim.block_hash import ChainInterner, TokenIds
from serving.sim.kv_cache import CacheLayout, GroupKind
from serving.sim.scheduler import Scheduler, SchedulerLimits
from serving.sim.sequence import Sequence


@dataclass(frozen=True, slots=True)
class Arrival:
    """One call: the first `keep` tokens (prompt, then completion) of call `base`, then `num_new` tokens never seen.

    base: index of an earlier arrival, -1 none. step: scheduling step before which it is queued.
    session: whose call it is (only our side's quick comparison uses it).
    """

    step: int
    session: int
    base: int
    keep: int
    num_new: int
    num_completion: int


@dataclass(frozen=True, slots=True)
class StepRecord:
    """What one step did.

    scheduled: request id -> tokens, in order. admitted: request id -> cached tokens. preempted: ids.
    finished: ids, in order. num_free_blocks: after the decision, before finished requests gave their blocks back.
    """

    scheduled: dict[str, int]
    admitted: dict[str, int]
    preempted: frozenset[str]
    finished: tuple[str, ...]
    num_free_blocks: int


class SteppedScheduler(Protocol):
    """A scheduler that can be compared step by step."""

    def add(self, request_id: str, session_id: str, prompt: TokenIds, completion: TokenIds) -> None:
        """Queue a request that generates exactly `completion`."""
        ...

    def abort(self, request_ids: Iterable[str]) -> None:
        """Drop requests between steps."""
        ...

    def step(self) -> StepRecord:
        """Run one step."""
        ...

    def free_blocks(self) -> list[int]:
        """Free block ids in eviction order."""
        ...


class TokenSource:
    """Builds the token ids of arrivals; equal recipes give equal ids on every machine."""

    def __init__(self) -> None:
        self._next = 1
        self._calls: list[TokenIds] = []

    def _fresh(self, count: int) -> TokenIds:
        ids = np.arange(self._next, self._next + count, dtype=np.int64)
        self._next += count
        return ids

    def tokens(self, arrival: Arrival) -> tuple[TokenIds, TokenIds]:
        """Prompt and completion ids; call it once per arrival, in order."""
        kept = self._calls[arrival.base][: arrival.keep] if arrival.base >= 0 else np.empty(0, dtype=np.int64)
        prompt = np.concatenate((kept, self._fresh(arrival.num_new)))
        completion = self._fresh(arrival.num_completion)
        self._calls.append(np.concatenate((prompt, completion)))
        return prompt, completion


class SimulatedScheduler:
    """`serving.sim.scheduler` behind the comparison's interface."""

    def __init__(self, limits: SchedulerLimits, layout: CacheLayout) -> None:
        self.scheduler = Scheduler(limits, layout)
        self._interner = ChainInterner(layout.block_size)
        self._sequences: dict[str, Sequence] = {}

    def add(self, request_id: str, session_id: str, prompt: TokenIds, completion: TokenIds) -> None:
        """Queue a request that generates exactly `completion`."""
        chain = self._interner.chain(session_id, prompt, completion, len(completion))
        final = min(len(prompt) + len(completion), self.scheduler.limits.max_model_len)
        sequence = Sequence(request_id, chain.ids, num_prompt_tokens=len(prompt), final_tokens=final)
        self._sequences[request_id] = sequence
        self.scheduler.add(sequence)

    def abort(self, request_ids: Iterable[str]) -> None:
        """Drop requests between steps."""
        self.scheduler.abort([self._sequences.pop(request_id) for request_id in request_ids])

    def step(self) -> StepRecord:
        """Run one step."""
        step = self.scheduler.schedule()
        num_free = self.scheduler.cache.pool.num_free
        ids = [sequence.request_id for sequence in step.sequences]
        admitted = {
            sequence.request_id: sequence.num_computed - count
            for sequence, count in zip(step.sequences, step.counts, strict=True)
            if sequence in step.admitted
        }
        ended = [sequence.request_id for sequence in self.scheduler.finish_step(step, 0.0)]
        for request_id in ended:
            del self._sequences[request_id]
        preempted = frozenset(sequence.request_id for sequence in step.preempted)
        return StepRecord(dict(zip(ids, step.counts, strict=True)), admitted, preempted, tuple(ended), num_free)

    def free_blocks(self) -> list[int]:
        """Free block ids in eviction order."""
        return self.scheduler.cache.pool.free_order()


@dataclass(frozen=True, slots=True)
class Trace:
    """A workload and what a scheduler did with it. aborts: (step, request id)."""

    limits: SchedulerLimits
    layout: CacheLayout
    arrivals: tuple[Arrival, ...]
    aborts: tuple[tuple[int, str], ...]
    steps: tuple[StepRecord, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain data; inverse of `trace_from_json`."""
        layout, limits = self.layout, self.limits
        return {
            "limits": {name: getattr(limits, name) for name in limits.__dataclass_fields__},
            "layout": {
                "num_blocks": layout.num_blocks,
                "block_size": layout.block_size,
                "groups": [kind.value for kind in layout.groups],
                "enable_prefix_caching": layout.enable_prefix_caching,
                "retention_interval": layout.retention_interval,
            },
            "arrivals": [[getattr(one, name) for name in Arrival.__dataclass_fields__] for one in self.arrivals],
            "aborts": [list(one) for one in self.aborts],
            "steps": [
                [list(one.scheduled.items()), list(one.admitted.items()), sorted(one.preempted), list(one.finished),
                 one.num_free_blocks]
                for one in self.steps
            ],
        }  # fmt: skip


def trace_from_json(data: dict[str, Any]) -> Trace:
    """Read what `Trace.to_json` wrote."""
    layout = dict(data["layout"])
    layout["groups"] = tuple(GroupKind(name) for name in layout["groups"])
    steps = [
        StepRecord(dict(scheduled), dict(admitted), frozenset(preempted), tuple(finished), num_free)
        for scheduled, admitted, preempted, finished, num_free in data["steps"]
    ]
    return Trace(
        SchedulerLimits(**data["limits"]),
        CacheLayout(**layout),
        tuple(Arrival(*one) for one in data["arrivals"]),
        tuple((step, request_id) for step, request_id in data["aborts"]),
        tuple(steps),
    )


def replay(trace: Trace, scheduler: SteppedScheduler) -> list[StepRecord]:
    """Drive a scheduler with a trace's workload for as many steps as the trace has."""
    source = TokenSource()
    arrivals, aborts = list(trace.arrivals), list(trace.aborts)
    records: list[StepRecord] = []
    position = 0
    for number in range(len(trace.steps)):
        while position < len(arrivals) and arrivals[position].step == number:
            prompt, completion = source.tokens(arrivals[position])
            scheduler.add(str(position), str(arrivals[position].session), prompt, completion)
            position += 1
        scheduler.abort([request_id for step, request_id in aborts if step == number])
        records.append(scheduler.step())
    return records

"""Drive the simulated and the real vLLM scheduler with the same random workloads and compare every step.

    python -m scripts.fuzz_scheduler --steps 20000 [--seed 0] [--layout dense|hybrid|all]

Compared: tokens per request and their order, admissions with their cached tokens, preempted and finished ids, free
blocks after the decision, and every so often the ids of all free blocks in eviction order. Needs vllm. Exit code 1 on
a difference.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field

from serving.engines.vllm_scheduler import VllmScheduler
from serving.sim.kv_cache import CacheLayout, GroupKind
from serving.sim.scheduler import SchedulerLimits
from serving.sim.trace import Arrival, SimulatedScheduler, StepRecord, TokenSource, Trace

ATTENTION, STATE = GroupKind.attention, GroupKind.state


@dataclass
class Case:
    """One random setting: limits, layout and what the sessions do."""

    limits: SchedulerLimits
    layout: CacheLayout
    num_sessions: int
    max_new: int
    max_out: int
    start_tokens: int
    rewrite_share: float
    abort_share: float


def random_case(rng: random.Random, layout_name: str) -> Case:
    """Small pools and budgets, so that chunks, preemptions and evictions all happen within a few hundred steps."""
    is_hybrid = layout_name == "hybrid"
    block_size = rng.choice([16, 16, 32, 48, 784] if is_hybrid else [16])
    scale = block_size / 16
    groups: tuple[GroupKind, ...] = (ATTENTION,)
    if is_hybrid:
        groups = rng.choice([(STATE, STATE, STATE, ATTENTION), (ATTENTION, STATE, STATE, STATE), (STATE, ATTENTION)])
    num_blocks = rng.choice([36, 60, 120, 400]) + (20 if is_hybrid else 0)
    capacity = (num_blocks - 12) * block_size
    max_model_len = min(capacity, int(rng.choice([500, 1500, 3000]) * scale))
    max_num_seqs = rng.choice([2, 8, 32])
    limits = SchedulerLimits(
        max_num_batched_tokens=max(block_size, max_num_seqs, int(rng.choice([16, 64, 100, 256, 1000]) * scale)),
        max_num_seqs=max_num_seqs,
        max_model_len=max_model_len,
        long_prefill_token_threshold=rng.choice([0, 0, 0, int(50 * scale)]),
        reserve_full_sequence=rng.random() < 0.8,
        watermark=rng.choice([0.0, 0.0, 0.0, 0.05]),
    )
    retention: int | None = 0
    if is_hybrid:
        retention = rng.choice([0, 0, 0, None, 2 * block_size])
    layout = CacheLayout(num_blocks, block_size, groups, rng.random() < 0.93, retention)
    return Case(
        limits=limits,
        layout=layout,
        num_sessions=rng.choice([1, 4, 12, 30]),
        max_new=int(rng.choice([20, 60, 200]) * scale),
        max_out=int(rng.choice([5, 60, 200, 500]) * scale),
        start_tokens=int(rng.choice([0, 30, 100, 300]) * scale),
        rewrite_share=rng.choice([0.0, 0.2, 0.6]),
        abort_share=rng.choice([0.0, 0.0, 0.002]),
    )


@dataclass
class Sessions:
    """Closed-loop sessions that grow their prompts, rewrite them, share prefixes and resend."""

    case: Case
    rng: random.Random
    arrivals: list[Arrival] = field(default_factory=list)
    lengths: list[tuple[int, int]] = field(default_factory=list)
    last: dict[int, int] = field(default_factory=dict)
    wake: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.wake = {session: self.rng.randrange(6) for session in range(self.case.num_sessions)}

    def due(self, step: int) -> Iterator[Arrival]:
        """The calls that arrive before this step."""
        for session in [one for one, when in self.wake.items() if when <= step]:
            del self.wake[session]
            yield self._next(step, session)

    def done(self, index: int, step: int) -> None:
        """Call `index` ended: its session thinks a little and goes on."""
        self.wake[self.arrivals[index].session] = step + 1 + self.rng.choice([0, 0, 1, 5, 30])

    def _next(self, step: int, session: int) -> Arrival:
        rng, case = self.rng, self.case
        base = self.last.get(session, -1)
        limit = case.limits.max_model_len
        new, out = 1 + rng.randrange(case.max_new), 1 + rng.randrange(case.max_out)
        keep = 0
        if base < 0 and self.arrivals and rng.random() < 0.6:
            base = rng.randrange(len(self.arrivals))
            keep = rng.randrange(self.lengths[base][0] + 1)
        elif base >= 0:
            prompt, completion = self.lengths[base]
            choice = rng.random()
            keep = prompt + completion
            if choice < case.rewrite_share:
                keep = rng.randrange(prompt + 1)
            elif choice < case.rewrite_share + 0.1:
                keep = prompt  # what was generated does not come back
            elif choice < case.rewrite_share + 0.15:
                keep, new = prompt, 0  # the same prompt again
        if base < 0:
            new += case.start_tokens
        if new and rng.random() < 0.25:
            new += -(keep + new) % case.layout.block_size  # a prompt that ends with a full block
        if keep + new >= limit - 1:
            base, keep, new = -1, 0, 1 + rng.randrange(min(case.max_new, limit // 2))
        if keep + new == 0:
            new = 1
        arrival = Arrival(step, session, base if keep else -1, keep, new, out)
        self.last[session] = len(self.arrivals)
        self.arrivals.append(arrival)
        self.lengths.append((keep + new, min(out, limit - keep - new)))
        return arrival


@dataclass
class Outcome:
    """Totals of one case."""

    steps: list[StepRecord]
    aborts: list[tuple[int, str]]
    difference: str | None = None


def run_case(case: Case, rng: random.Random, num_steps: int, *, order_every: int = 25) -> tuple[Sessions, Outcome]:
    """Both schedulers, step by step, until the first difference."""
    real, ours = VllmScheduler(case.limits, case.layout), SimulatedScheduler(case.limits, case.layout)
    sessions, source, outcome = Sessions(case, rng), TokenSource(), Outcome([], [])
    alive: set[str] = set()
    for number in range(num_steps):
        for arrival in sessions.due(number):
            request_id = str(len(sessions.arrivals) - 1)
            prompt, completion = source.tokens(arrival)
            for one in (real, ours):
                one.add(request_id, str(arrival.session), prompt, completion)
            alive.add(request_id)
        gone = [one for one in sorted(alive) if rng.random() < case.abort_share]
        for one in (real, ours):
            one.abort(gone)
        outcome.aborts += [(number, one) for one in gone]
        expected, got = real.step(), ours.step()
        outcome.steps.append(expected)
        if expected != got or list(expected.scheduled) != list(got.scheduled):
            outcome.difference = f"step {number}:\n  vllm {expected}\n  ours {got}"
        elif number % order_every == 0 and real.free_blocks() != ours.free_blocks():
            outcome.difference = f"step {number}: free blocks in another order"
        if outcome.difference:
            break
        for request_id in [*gone, *expected.finished]:
            alive.discard(request_id)
            sessions.done(int(request_id), number)
    return sessions, outcome


def trace_of(case: Case, sessions: Sessions, outcome: Outcome) -> Trace:
    """The real scheduler's side of a case, as a trace."""
    return Trace(case.limits, case.layout, tuple(sessions.arrivals), tuple(outcome.aborts), tuple(outcome.steps))


def main() -> int:
    """Run cases until enough steps were compared."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=20000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--layout", choices=("dense", "hybrid", "all"), default="all")
    parser.add_argument("--case-steps", type=int, default=800)
    options = parser.parse_args()
    totals = {"steps": 0, "cases": 0, "preemptions": 0, "calls": 0, "cached tokens": 0, "differences": 0}
    seed = options.seed
    while totals["steps"] < options.steps:
        rng = random.Random(seed)
        layout_name = options.layout if options.layout != "all" else ("dense", "hybrid")[seed % 2]
        case = random_case(rng, layout_name)
        sessions, outcome = run_case(case, rng, options.case_steps)
        totals["steps"] += len(outcome.steps)
        totals["cases"] += 1
        totals["calls"] += len(sessions.arrivals)
        totals["preemptions"] += sum(len(step.preempted) for step in outcome.steps)
        totals["cached tokens"] += sum(sum(step.admitted.values()) for step in outcome.steps)
        if outcome.difference:
            totals["differences"] += 1
            print(f"seed {seed} {case}\n{outcome.difference}", flush=True)
            if totals["differences"] >= 3:
                break
        seed += 1
    print(", ".join(f"{value} {name}" for name, value in totals.items()))
    return 1 if totals["differences"] else 0


if __name__ == "__main__":
    sys.exit(main())

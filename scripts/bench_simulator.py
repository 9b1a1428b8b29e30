"""Speed of the simulated engine: model calls per CPU second, closed-loop sessions in virtual time, one process.

    python -m scripts.bench_simulator [--layout dense|hybrid] [--sessions 64] [--rounds 40] [--blocks 5000] [--jump 256]

Everything between a session's prompt and its recorded call is inside: building the prompt's ids, hashing, routing, the
asyncio replica, scheduling, the call record. The hybrid layout gets the same number of tokens in its pool.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import resource
import time
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from db.records import Call
from serving.calls import CallKind, CallRequest, CallResult, Message, PinnedReply, Prompt, ReplicaView, RouteDecision
from serving.clock import VirtualClock, run_virtual
from serving.engines.simulated import SimulatedReplica
from serving.routers.sticky import StickyRouter
from serving.sim.engine import SimulatedCore
from serving.sim.kv_cache import CacheLayout, GroupKind
from serving.sim.scheduler import SchedulerLimits
from serving.sim.step_time import Hardware, ModelShape, Roofline

_HARDWARE = Hardware("2x RTX 6000 Ada", 2, 48305799168, 960e9, 364e12, 0.85, 0.5, 25e-6, 20e9)
_MODEL = ModelShape("Qwen3-8B", 36, 0, 4096, 32, 8, 128, 6_946_000_000, 622_329_856, 622_329_856)
_HYBRID_GROUPS = (GroupKind.state, GroupKind.state, GroupKind.state, GroupKind.attention)


@dataclass
class Load:
    """What the sessions do and what came out."""

    num_rounds: int
    new_tokens: int
    output_tokens: int
    think_s: float
    rows: list[Call] = field(default_factory=list)


def new_ids(session: int, round_: int, count: int, part: int) -> npt.NDArray[np.int64]:
    """Ids that no other session or round has."""
    return np.arange(count, dtype=np.int64) + ((session * 1000 + round_) * 2 + part) * 10_000 + 100_000


def record(call: CallRequest, decision: RouteDecision, result: CallResult) -> Call:
    """The row of one call, as the session loop would write it."""
    usage, timings = result.usage, result.timings
    return Call(
        attempt_id="bench",
        session_id=call.session_id,
        call_index=call.call_index,
        kind=call.kind.value,
        state="ok",
        model=call.model,
        num_prompt_tokens=usage.num_prompt_tokens,
        num_cached_tokens=usage.num_cached_tokens,
        num_completion_tokens=usage.num_completion_tokens,
        queue_delay_s=timings.queue_delay_s,
        num_preemptions=timings.num_preemptions,
        replica=decision.replica_id,
        route_reason=decision.reason,
        sent_s=result.sent_s,
        first_token_s=result.first_token_s,
        last_token_s=result.last_token_s,
        requeue_s=timings.requeue_s,
        prefill_s=timings.prefill_s,
        decode_s=timings.decode_s,
        recomputed_tokens=timings.recomputed_tokens,
        shared_prefix_tokens=timings.max_shared_tokens,
        finish_reason=result.finish_reason.value,
    )


async def run_session(number: int, load: Load, clock: VirtualClock, replicas: dict[str, SimulatedReplica]) -> None:
    """One closed-loop session: think, ask, append."""
    rng = random.Random(number)
    router = StickyRouter()
    pieces: list[npt.NDArray[np.int64]] = [np.arange(300, dtype=np.int64)]
    num_tokens = 300
    views = tuple(ReplicaView(name, one.model) for name, one in replicas.items())
    for round_ in range(load.num_rounds):
        await clock.sleep(rng.expovariate(1 / load.think_s))
        pieces.append(new_ids(number, round_, load.new_tokens - load.output_tokens, 0))
        num_tokens += len(pieces[-1])
        reply = new_ids(number, round_, load.output_tokens, 1)
        call = CallRequest(
            call_id=f"{number}:{round_}",
            session_id=str(number),
            kind=CallKind.main,
            call_index=round_ + 1,
            main_index=round_ + 1,
            model="m",
            messages=(),
            prompt=Prompt(tuple(pieces), num_tokens, ""),
            max_completion_tokens=4096,
            pinned=PinnedReply(Message("assistant", ""), load.output_tokens, reply),
            idle_timeout_s=1e9,
        )
        decision = router.choose(call, home=number, views=views)
        result = await replicas[decision.replica_id].generate(call)
        load.rows.append(record(call, decision, result))
        pieces.append(reply)
        num_tokens += len(reply)


def make_core(options: argparse.Namespace) -> SimulatedCore:
    """The engine under test."""
    is_hybrid = options.layout == "hybrid"
    size = 784 if is_hybrid else 16
    blocks = options.blocks * 16 // size if is_hybrid else options.blocks
    layout = CacheLayout(blocks, size, _HYBRID_GROUPS if is_hybrid else (GroupKind.attention,))
    capacity = (blocks - 1 - 2 * layout.num_state_groups) * size
    limits = SchedulerLimits(max_num_batched_tokens=2048, max_num_seqs=256, max_model_len=min(32768, capacity))
    return SimulatedCore(limits, layout, Roofline(_MODEL, _HARDWARE), max_jump_steps=options.jump)


def main() -> None:
    """Run one load and print what it cost."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layout", choices=("dense", "hybrid"), default="dense")
    for name, default in (
        ("sessions", 64),
        ("rounds", 40),
        ("blocks", 5000),
        ("jump", 256),
        ("new", 615),
        ("out", 150),
    ):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--think", type=float, default=0.02)
    options = parser.parse_args()
    load = Load(options.rounds, options.new, options.out, options.think)
    core = make_core(options)

    async def everything(clock: VirtualClock) -> float:
        replica = SimulatedReplica("r0", "m", core, clock)
        await asyncio.gather(*(run_session(one, load, clock, {"r0": replica}) for one in range(options.sessions)))
        await replica.close()
        return clock.now_s()

    start_s = time.process_time()
    virtual_s = run_virtual(everything)
    cpu_s = time.process_time() - start_s
    rows = load.rows
    prompt = sum(one.num_prompt_tokens or 0 for one in rows)
    cached = sum(one.num_cached_tokens or 0 for one in rows)
    shared = sum(one.shared_prefix_tokens or 0 for one in rows)
    print(f"layout {options.layout}, {core.scheduler.layout.num_blocks} blocks of {core.scheduler.layout.block_size}")
    print(f"calls {len(rows)}, cpu {cpu_s:.2f} s, {len(rows) / cpu_s:.0f} calls per CPU second")
    print(f"steps {core.num_steps}, decisions {core.num_plans}, virtual {virtual_s:.0f} s ({virtual_s / cpu_s:.0f}x)")
    print(
        f"hit rate {cached / prompt:.3f} of at most {shared / prompt:.3f}, preemptions {core.scheduler.num_preemptions}"
    )
    print(f"peak KV {core.kv_usage_peak:.3f}, RSS {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024} MB")


if __name__ == "__main__":
    main()

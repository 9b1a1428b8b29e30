"""Our scheduler repeats, step by step, what the real vLLM scheduler was recorded doing."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from serving.sim.trace import SimulatedScheduler, Trace, replay, trace_from_json

_FILES = sorted((Path(__file__).resolve().parents[3] / "golden").glob("vllm_*.json.gz"))


def _load(path: Path) -> Trace:
    return trace_from_json(json.loads(gzip.decompress(path.read_bytes())))


def test_recordings_cover_what_matters() -> None:
    """There are dense and hybrid recordings, with preemptions, cache hits and aborted requests."""
    traces = [_load(path) for path in _FILES]
    for is_hybrid in (False, True):
        steps = [step for one in traces if bool(one.layout.num_state_groups) is is_hybrid for step in one.steps]
        assert sum(len(step.preempted) for step in steps) >= 100
        assert sum(sum(step.admitted.values()) for step in steps) >= 30_000
    assert any(one.aborts for one in traces)
    assert any(one.layout.block_size == 784 for one in traces)


@pytest.mark.parametrize("path", _FILES, ids=lambda path: path.name.split(".")[0])
def test_scheduler_repeats_the_recording(path: Path) -> None:
    """Tokens per request and their order, cached tokens, preempted and finished ids and free blocks are vLLM's."""
    trace = _load(path)
    for number, (got, expected) in enumerate(
        zip(replay(trace, SimulatedScheduler(trace.limits, trace.layout)), trace.steps, strict=True)
    ):
        assert got == expected, f"step {number}"
        assert list(got.scheduled) == list(expected.scheduled), f"step {number}: order"

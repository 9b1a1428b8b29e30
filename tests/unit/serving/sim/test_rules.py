"""Single rules of vLLM's scheduler, each against a value measured on the real scheduler or calculated by hand."""

from __future__ import annotations

import numpy as np
import pytest

from serving.sim.kv_cache import CacheLayout, GroupKind
from serving.sim.scheduler import SchedulerLimits
from serving.sim.trace import SimulatedScheduler, StepRecord

HYBRID = (GroupKind.attention, GroupKind.state, GroupKind.state, GroupKind.state)


class Driver:
    """Calls with fresh token ids on one scheduler."""

    def __init__(self, layout: CacheLayout, **limits: int) -> None:
        settings = {"max_num_batched_tokens": 2048, "max_num_seqs": 256, "max_model_len": 50_000, **limits}
        self.scheduler = SimulatedScheduler(SchedulerLimits(**settings), layout)
        self._next_id = 0
        self._num_calls = 0

    def fresh(self, count: int) -> np.ndarray:
        """Ids never used before."""
        self._next_id += count
        return np.arange(self._next_id - count, self._next_id, dtype=np.int64)

    def add(self, prompt: np.ndarray, num_out: int) -> tuple[str, np.ndarray]:
        """Queue one call; returns its id and its reply."""
        self._num_calls += 1
        reply = self.fresh(num_out)
        self.scheduler.add(str(self._num_calls), "s", prompt, reply)
        return str(self._num_calls), reply

    def run(self) -> list[StepRecord]:
        """All steps until nothing is left."""
        steps: list[StepRecord] = []
        while self.scheduler.scheduler.running or self.scheduler.scheduler.waiting:
            steps.append(self.scheduler.step())
        return steps

    def call(self, prompt: np.ndarray, num_out: int) -> tuple[int, np.ndarray, list[StepRecord]]:
        """One call alone: cached tokens, reply, steps."""
        name, reply = self.add(prompt, num_out)
        steps = self.run()
        return steps[0].admitted[name], reply, steps


def test_preempted_request_keeps_its_output_and_its_cache() -> None:
    """Two requests of 160 + 400 tokens in 50 blocks: 559 steps; the resumed one computes 161 tokens again, 240 survive.

    Measured on vLLM 0.32.0 (a simulator that decodes again from the first token needs 14.5 % longer).
    """
    driver = Driver(CacheLayout(51, 16))
    for _ in range(2):
        driver.add(driver.fresh(160), 400)
    steps = driver.run()
    assert len(steps) == 559
    assert [sorted(step.preempted) for step in steps if step.preempted] == [["2"]]
    resumed = [step for step in steps[1:] if "2" in step.admitted]
    assert [(step.admitted["2"], step.scheduled["2"]) for step in resumed] == [(240, 161)]


def test_an_exact_repeat_computes_its_last_block_again() -> None:
    """A hit is at most num_tokens - 1 tokens, in whole blocks: 64 tokens again hit 48."""
    driver = Driver(CacheLayout(51, 16))
    prompt = driver.fresh(64)
    assert driver.call(prompt, 1)[0] == 0
    assert driver.call(prompt, 1)[0] == 48


def test_generated_tokens_are_cached_too() -> None:
    """64 + 33 tokens leave 6 full blocks (the last token has no KV): the next prompt hits 96."""
    driver = Driver(CacheLayout(51, 16))
    prompt = driver.fresh(64)
    _, reply, _ = driver.call(prompt, 33)
    assert driver.call(np.concatenate((prompt, reply, driver.fresh(20))), 1)[0] == 96


def test_whole_sequence_must_fit_before_admission() -> None:
    """A prompt of 40 blocks is not started beside one of 20 in a pool of 50, although its first chunk would fit."""
    driver = Driver(CacheLayout(51, 16), max_num_batched_tokens=340, max_num_seqs=8)
    driver.add(driver.fresh(20 * 16 - 10), 10)
    driver.add(driver.fresh(40 * 16), 1)
    steps = driver.run()
    started = next(number for number, step in enumerate(steps) if "2" in step.admitted)
    assert steps[started - 1].finished == ("1",)


def test_running_requests_come_first_and_share_the_budget() -> None:
    """Budget 100: a decoding request takes 1, a prompt of 150 gets 99, then 51."""
    driver = Driver(CacheLayout(51, 16), max_num_batched_tokens=100)
    driver.add(driver.fresh(10), 50)
    driver.scheduler.step()
    driver.add(driver.fresh(150), 5)
    assert [dict(driver.scheduler.step().scheduled) for _ in range(3)] == [
        {"1": 1, "2": 99},
        {"1": 1, "2": 51},
        {"1": 1, "2": 1},
    ]


def test_no_cache_no_hit() -> None:
    """With prefix caching off the same prompt is computed in full."""
    driver = Driver(CacheLayout(51, 16, enable_prefix_caching=False))
    prompt = driver.fresh(64)
    assert [driver.call(prompt, 4)[0] for _ in range(2)] == [0, 0]


def test_hybrid_session_hits_the_replay_boundary_of_its_last_prompt() -> None:
    """Append-only session, +750 tokens a turn: prompts of 5,750 / 8,000 / 11,000 tokens hit 4,704 / 7,056 / 10,192.

    Measured on vLLM 0.32.0; each later turn takes two prefill chunks (784, then the rest), a first chunk is 1,568.
    """
    driver = Driver(CacheLayout(530, 784, HYBRID))
    history = driver.fresh(5000)
    hits: dict[int, int] = {}
    for _ in range(9):
        cached, reply, steps = driver.call(history, 150)
        hits[len(history)] = cached
        chunks = [count for step in steps for count in step.scheduled.values() if count > 1]
        if len(history) == 5000:
            assert chunks[0] == 1568
        history = np.concatenate((history, reply, driver.fresh(600)))
    assert (hits[5750], hits[8000], hits[11000]) == (4704, 7056, 10192)


def _rewrite_probe(layout: CacheLayout, num_others: int, share: float) -> int:
    """12 turns to 14,000 tokens, then other sessions of 12,000, then a prompt that diverges at `share`."""
    driver = Driver(layout, max_model_len=40_000)
    history = driver.fresh(5000)
    for _ in range(12):
        _, reply, _ = driver.call(history, 150)
        history = np.concatenate((history, reply, driver.fresh(600)))
    for _ in range(num_others):
        driver.call(driver.fresh(12_000), 20)
    cut = int(len(history) * share)
    rewritten = np.concatenate((history[:cut], driver.fresh(len(history) - cut - 1500)))
    return driver.call(rewritten, 150)[0]


@pytest.mark.parametrize(("num_others", "at_half", "at_ninety"), [(0, 6272, 12544), (4, 0, 12544), (8, 0, 0)])
def test_rewriting_far_back_loses_everything_on_a_hybrid_model(num_others: int, at_half: int, at_ninety: int) -> None:
    """120 blocks of 784: with 4 other sessions in between, old states are gone though attention blocks are not.

    Measured on vLLM 0.32.0.
    """
    layout = CacheLayout(120, 784, HYBRID)
    assert (_rewrite_probe(layout, num_others, 0.5), _rewrite_probe(layout, num_others, 0.9)) == (at_half, at_ninety)


@pytest.mark.parametrize(("num_others", "at_half", "at_ninety"), [(4, 6992, 12592), (8, 0, 0)])
def test_rewriting_far_back_keeps_the_prefix_on_a_dense_model(num_others: int, at_half: int, at_ninety: int) -> None:
    """The same probe on 5,880 blocks of 16. Measured on vLLM 0.32.0."""
    layout = CacheLayout(5881, 16)
    assert (_rewrite_probe(layout, num_others, 0.5), _rewrite_probe(layout, num_others, 0.9)) == (at_half, at_ninety)

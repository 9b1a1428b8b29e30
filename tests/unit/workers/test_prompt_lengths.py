"""Prompt lengths on the recorded runs, against figures measured with other code on the same files."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from serving.calls import Message
from tests.unit.workers.renderers.histories import no_aux, output, recorded_runs, started
from workers.interfaces import RecordedRun, RecordedStep
from workers.prompt_lengths import PromptLengths, prompt_lengths, repeated_chars, shared_chars
from workers.renderers.base import Base
from workers.renderers.clip import Clip
from workers.renderers.mask import Mask


def lengths(run: RecordedRun, renderer: Any) -> PromptLengths:
    """Lengths of one run."""
    return asyncio.run(prompt_lengths(run, started(renderer), no_aux))


def totals(runs: tuple[RecordedRun, ...], make: type[Any], **settings: Any) -> tuple[int, int]:
    """(cumulative, uncached) characters over all runs."""
    found = [lengths(run, make(**settings)) for run in runs]
    return sum(one.cumulative for one in found), sum(one.uncached for one in found)


@pytest.fixture(scope="module")
def runs() -> tuple[RecordedRun, ...]:
    """The 68 shipped runs of at least five steps."""
    found = recorded_runs()
    if not found:
        pytest.skip("recorded runs are not here (../shared/trajectories)")
    return found


@pytest.fixture(scope="module")
def base(runs: tuple[RecordedRun, ...]) -> tuple[int, int]:
    """Base's totals."""
    return totals(runs, Base)


def step(reply: str, body: str) -> RecordedStep:
    """A recorded step."""
    return RecordedStep(Message("assistant", reply), (), (output(body),))


def test_lengths_by_hand() -> None:
    """Two prompts of base: the opening (10), then opening + reply (4) + framed output; nothing is sent twice."""
    run = RecordedRun((Message("user", "0123456789"),), (step("abcd", "out"), step("x", "y")), "test")
    frame = len("<returncode>0</returncode>\n<output>\n\n</output>")
    assert lengths(run, Base()) == PromptLengths(10 + 10 + 4 + frame + 3, 10 + 4 + frame + 3, 10 + 4 + frame + 3)


def test_shared_prefix_by_hand() -> None:
    """Whole equal messages, then the common start of the first that differs."""
    first = (Message("user", "aaaa"), Message("user", "bbbb"), Message("user", "cccc"))
    second = (Message("user", "aaaa"), Message("user", "bbxb"), Message("user", "cccc"))
    assert shared_chars(first, second) == 6
    assert shared_chars((), second) == 0


def test_repeated_chars_by_hand() -> None:
    """Three equal lines of four characters (with their newlines) repeat, two do not."""
    run = RecordedRun(
        (), (step("", "aaa\nbbb\nccc\nddd"), step("", "bbb\nccc\nddd\nxx"), step("", "aaa\nbbb\nyy")), "t"
    )
    assert repeated_chars(run) == [0, 12, 0]


def test_there_are_68_runs(runs: tuple[RecordedRun, ...]) -> None:
    """The figures below hold for these runs."""
    assert (len(runs), sum(len(run.steps) for run in runs)) == (68, 4735)


def test_clip_on_recorded_runs(runs: tuple[RecordedRun, ...], base: tuple[int, int]) -> None:
    """clip 1,000 behind the three newest: cumulative 0.757, uncached 1.56 of base (trajectories section 2)."""
    cumulative, uncached = totals(runs, Clip)
    assert cumulative / base[0] == pytest.approx(0.757, abs=0.01)
    assert uncached / base[1] == pytest.approx(1.56, abs=0.1)


def test_mask_on_recorded_runs(runs: tuple[RecordedRun, ...], base: tuple[int, int]) -> None:
    """mask N=10 sliding: cumulative 0.576, at least 7 times the uncached characters (8.1 measured)."""
    cumulative, uncached = totals(runs, Mask)
    assert cumulative / base[0] == pytest.approx(0.576, abs=0.02)
    assert uncached / base[1] >= 7


def test_polling_mask_on_recorded_runs(runs: tuple[RecordedRun, ...], base: tuple[int, int]) -> None:
    """Moved only every ten steps, mask re-sends at most 2.2 times base's characters (1.95 measured)."""
    _, uncached = totals(runs, Mask, polling=10)
    assert uncached / base[1] <= 2.2


def test_upper_bound_of_deduplication(runs: tuple[RecordedRun, ...], base: tuple[int, int]) -> None:
    """9.7 % of the cumulative prompt stands in line runs an earlier output holds; 26.2 % of observation characters."""
    removable = sum(
        chars * (len(run.steps) - index) for run in runs for index, chars in enumerate(repeated_chars(run), start=1)
    )
    assert removable / base[0] == pytest.approx(0.097, abs=0.005)
    bodies = sum(len(one.body) for run in runs for step in run.steps for one in step.observations)
    assert sum(sum(repeated_chars(run)) for run in runs) / bodies == pytest.approx(0.262, abs=0.01)

"""Synthetic runs against the figures of the recorded runs they are calibrated to."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from tests.unit.workers.benchmarks.repeats import count_repeats
from workers.actions import step_kind
from workers.benchmarks.generator.dice import Dice
from workers.benchmarks.generator.profiles import DEEPSEEK_V3_CHAT, GEMINI3_PRO
from workers.benchmarks.recorded import Recorded
from workers.benchmarks.synthetic import ProfileName, Synthetic
from workers.errors import BenchmarkError
from workers.harnesses.minimal import FORMAT_ITEM, Minimal
from workers.interfaces import RecordedRun, Task
from workers.shell_reads import parse_read

NUM_TASKS = 110


@cache
def runs(profile: ProfileName) -> tuple[RecordedRun, ...]:
    """110 runs of a profile."""
    tasks = Synthetic(profile=profile, num_tasks=NUM_TASKS).tasks()
    return tuple(task.run for task in tasks if task.run is not None)


def context_chars(run: RecordedRun) -> list[int]:
    """Characters of every prompt when nothing is removed."""
    total = sum(len(message.content) for message in run.opening)
    found = []
    for step in run.steps:
        found.append(total)
        total += len(step.assistant.content) + sum(len(observation.shown) for observation in step.observations)
    return found


def percentiles(values: Sequence[float], *which: int) -> list[float]:
    """Percentiles as plain numbers."""
    return [float(value) for value in np.percentile(values, which)]


# Of the recorded runs: p10, p50, p90 of steps, of the final context and of the cumulative prompt (both in thousands of
# tokens at 4 characters each); p50, p90 of completion tokens; repeated share of output characters; the same for steps
# 1-10, 11-20, 31-40 and 51-60.
RECORDED = {
    ProfileName.deepseek_v3_chat: (
        [53, 76, 115],
        [17.1, 27.5, 47.4],
        [510, 1160, 2670],
        [90, 646],
        0.210,
        [0.06, 0.13, 0.27, 0.33],
    ),
    ProfileName.gemini3_pro: (
        [22, 36, 66],
        [10.8, 17.8, 31.2],
        [154, 367, 1049],
        [89, 681],
        0.232,
        [0.06, 0.23, 0.38, 0.49],
    ),
}


@pytest.mark.parametrize("profile", list(ProfileName))
def test_lengths_fit_the_recorded_runs(profile: ProfileName) -> None:
    """Steps, final context, cumulative prompt and completion tokens are near the recorded percentiles."""
    steps, final_k, cumulative_k, completion, _, _ = RECORDED[profile]
    found = runs(profile)
    contexts = [context_chars(run) for run in found]
    assert percentiles([len(run.steps) for run in found], 10, 50, 90) == pytest.approx(steps, rel=0.15)
    assert percentiles([chars[-1] / 4e3 for chars in contexts], 10, 50, 90) == pytest.approx(final_k, rel=0.2)
    assert percentiles([sum(chars) / 4e3 for chars in contexts], 10, 50, 90) == pytest.approx(cumulative_k, rel=0.25)
    tokens = [step.num_completion_tokens or 0 for run in found for step in run.steps]
    assert percentiles(tokens, 50, 90) == pytest.approx(completion, rel=0.35)


@pytest.mark.parametrize("profile", list(ProfileName))
def test_outputs_repeat_as_recorded_ones_do(profile: ProfileName) -> None:
    """21 to 26 % of the characters were shown before, little in early steps, a third to a half in late ones."""
    _, _, _, _, share, growth = RECORDED[profile]
    repeats = count_repeats(runs(profile))
    assert 0.20 < repeats.share < 0.265
    assert repeats.share == pytest.approx(share, abs=0.03)
    by_step = [repeats.share_of_steps(first, first + 9) for first in (1, 11, 31, 51)]
    assert by_step == sorted(by_step)
    assert by_step == pytest.approx(growth, abs=0.11)


def test_the_count_of_repeats_is_the_one_of_the_figures(shared_dir: Path) -> None:
    """On the 26 shipped runs of the test set the count gives the published 19.5 % (exact) within two points."""
    folder = shared_dir / "trajectories" / "original" / "deepseek-chat_swebench-lite-test"
    recorded = [task.run for task in Recorded(path=str(folder)).tasks() if task.run is not None]
    assert len(recorded) == 26
    assert count_repeats(recorded).share == pytest.approx(0.195, abs=0.02)


@pytest.mark.parametrize("profile", list(ProfileName))
def test_kinds_have_the_recorded_shares(profile: ProfileName) -> None:
    """Each kind's share of the steps is within five points, and the classifier agrees with the commands."""
    shares = {
        ProfileName.deepseek_v3_chat: {"search": 0.29, "read": 0.20, "run": 0.25, "write": 0.19, "edit": 0.06},
        ProfileName.gemini3_pro: {"search": 0.20, "read": 0.24, "run": 0.24, "write": 0.14, "edit": 0.11, "none": 0.03},
    }
    steps = [step for run in runs(profile) for step in run.steps]
    kinds = Counter(step.kind for step in steps)
    for kind, share in shares[profile].items():
        assert kinds[kind] / len(steps) == pytest.approx(share, abs=0.05), kind
    assert all(step_kind(step.actions) == step.kind for step in steps)


def test_outputs_have_the_recorded_empty_share() -> None:
    """About a fifth (DeepSeek, 21 %) and a quarter (Gemini, 26 %) of the outputs are empty."""
    for profile, share in ((ProfileName.deepseek_v3_chat, 0.2138), (ProfileName.gemini3_pro, 0.2582)):
        outputs = [observation.body for run in runs(profile) for step in run.steps for observation in step.observations]
        assert outputs.count("") / len(outputs) == pytest.approx(share, abs=0.03)


def test_reads_show_what_the_files_hold() -> None:
    """Two reads of overlapping lines of one file, with no edit of it between them, show the same common lines."""
    compared = 0
    for run in runs(ProfileName.gemini3_pro)[:40]:
        known: dict[tuple[str, int], str] = {}
        for step in run.steps:
            for action in step.actions:
                if step.kind in ("edit", "write"):
                    known = {}
                    continue
                reads = parse_read(action.command) if step.kind == "read" else ()
                if len(reads) != 1 or "nl -ba" in action.command or "elided" in step.observations[0].body:
                    continue
                lines = step.observations[0].body.split("\n")
                for number, line in enumerate(lines, start=reads[0].first_line or 1):
                    if (reads[0].path, number) in known:
                        compared += 1
                        assert known[reads[0].path, number] == line
                    known[reads[0].path, number] = line
    assert compared > 100


def test_runs_end_with_a_submission() -> None:
    """Patch, a look at it, submission; every reply holds the command it runs; never three errors in a row."""
    for run in runs(ProfileName.gemini3_pro):
        assert [step.actions[0].command for step in run.steps[-3:]] == [
            "git diff > patch.txt",
            "cat patch.txt",
            "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT && cat patch.txt",
        ]
        assert run.submission is not None
        assert run.submission.startswith("diff --git a/")
        for step in run.steps:
            parsed = Minimal().parse(step.assistant)
            assert parsed.actions == step.actions
        kinds = "".join("n" if step.kind == "none" else "." for step in run.steps)
        assert "nnn" not in kinds


def test_tasks_are_seeded_and_do_not_depend_on_their_number() -> None:
    """The same seed gives the same tasks, more tasks leave the first ones as they are, another seed gives others."""
    few = list(Synthetic(num_tasks=3).tasks())
    assert list(Synthetic(num_tasks=5).tasks())[:3] == few
    other = list(Synthetic(num_tasks=3, seed=1).tasks())
    assert not {task.digest for task in few} & {task.digest for task in other}
    assert len({task.task_id for task in few + other}) == 6


def test_dice_are_the_same_everywhere() -> None:
    """The draws are PCG64's raw output: the first number of a stream, computed from numpy's bit generator directly."""
    key = hashlib.blake2b(b"a\x1f1", digest_size=16).digest()
    raw = int(np.random.PCG64(int.from_bytes(key, "big")).random_raw())
    assert Dice("a", 1).uniform() == (raw >> 11) / 2**53


def test_the_prompt_is_the_generated_opening() -> None:
    """The template is the minimal harness's with its format item; a task of another benchmark is refused."""
    task = Synthetic(num_tasks=1).tasks()[0]
    assert task.run is not None
    template = Synthetic().prompt(task, Minimal())
    assert template.opening() == task.run.opening
    assert template.format_item == FORMAT_ITEM
    assert FORMAT_ITEM in template.task
    with pytest.raises(BenchmarkError, match="not from benchmark=synthetic"):
        Synthetic().prompt(Task("t", "s", "d"), Minimal())
    with pytest.raises(BenchmarkError, match="benchmark.num_tasks=0"):
        Synthetic(num_tasks=0)


def test_the_figures_are_those_of_the_calibration(shared_dir: Path) -> None:
    """The committed profiles hold the calibration's numbers."""
    calibration = json.loads((shared_dir / "trajectories" / "calibration.json").read_text())
    for name, profile in (("deepseek_v3_chat", DEEPSEEK_V3_CHAT), ("gemini3_pro", GEMINI3_PRO)):
        figures = calibration[name]
        assert list(profile.steps) == figures["steps_lognormal"]
        assert [profile.steps_min, profile.steps_max] == figures["steps_minmax"]
        assert list(profile.task_chars) == figures["task_chars_lognormal"]
        assert dict(profile.following) == figures["markov"]
        for kind, known in figures["kinds"].items():
            ours = profile.kinds[kind]
            assert (ours.empty, ours.capped) == (known["obs_zero"], known["obs_capped_share"])
            assert list(ours.output_chars) == (known["obs_lognormal"] or [0, 0])
            assert (ours.thoughtless, list(ours.thought_chars)) == (known["thought_zero"], known["thought_lognormal"])
            assert list(ours.command_chars) == (known["action_lognormal"] or [0, 0])
            repeats = known.get("dup_of_obs_ge200")
            if repeats:
                told = (ours.repeats.partial, ours.repeats.full, ours.repeats.part)
                assert told == (repeats["p_partial"], repeats["p_full"], repeats["partial_mean_frac"])

"""Plans over the project's own conf/: grids, refusals at plan time, derived figures, the plan's text."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orchestrator.compose import Composer
from orchestrator.errors import UserError
from orchestrator.plan import SweepPlan, make_plan
from orchestrator.plan_text import plan_lines, summary_lines
from orchestrator.rerun import Action, Decision

TINY = ("num_workers=2", "benchmark.num_tasks=2")


@pytest.fixture(scope="module")
def composer() -> Composer:
    """The project's own conf/."""
    return Composer()


@pytest.fixture(scope="module")
def concurrency(composer: Composer) -> SweepPlan:
    """The concurrency study."""
    return make_plan(composer, ["+sweep=concurrency"])


def test_concurrency_is_refolds_table_2(concurrency: SweepPlan) -> None:
    """Both arms at w = 8, 16, 32, 48 over 50 tasks and w = 64 over 71 (ReFold, Table 2): ten different cells."""
    rows = {(cell.arm, cell.num_workers, cell.num_tasks) for cell in concurrency.cells}
    assert rows == {(arm, w, 71 if w == 64 else 50) for arm in ("base", "refold") for w in (8, 16, 32, 48, 64)}
    assert len({cell.key for cell in concurrency.cells}) == 10


def test_longest_cells_by_steps(concurrency: SweepPlan) -> None:
    """In virtual time a cell's weight is its number of steps: 71 tasks before 50, w does not matter."""
    weights = {cell.num_workers: cell.weight for cell in concurrency.cells}
    assert weights[64] > weights[8] == weights[48]


def test_arms_see_identical_tasks(concurrency: SweepPlan) -> None:
    """The task digests of both arms and of every w are the same list."""
    assert len({tuple(cell.spec["tasks"]) for cell in concurrency.cells if cell.num_tasks == 50}) == 1


def test_stale_sensitivity(composer: Composer) -> None:
    """Base once and refold at five coverages."""
    plan = make_plan(composer, ["+sweep=stale_sensitivity", "benchmark.num_tasks=8"])
    rows = [(cell.arm, cell.labels.get("policy.coverage")) for cell in plan.cells]
    assert rows == [("base", None), *(("refold", label) for label in ("0.2", "0.4", "0.6", "0.8", "1.0"))]
    assert [cell.sources["signals"] for cell in plan.cells[:2]] == ["none", "hindsight"]


@pytest.mark.parametrize(
    "path", sorted((Path(__file__).parents[3] / "conf" / "sweep").glob("*.yaml")), ids=lambda p: p.stem
)
def test_every_sweep_in_conf_can_be_planned(composer: Composer, path: Path) -> None:
    """Each one expands to different cells with a description, whose titles tell them apart."""
    plan = make_plan(composer, [f"+sweep={path.stem}"])
    assert plan.description
    assert len({cell.title for cell in plan.cells}) == len(plan.cells)


def test_one_cell_without_a_sweep(composer: Composer) -> None:
    """Overrides alone make one cell, named after its key; its prices and cache sizes are the paper's (ReFold A.3)."""
    plan = make_plan(composer, TINY)
    (cell,) = plan.cells
    assert plan.name == f"cell-{cell.key[3:11]}"
    assert cell.facts["prices"] == {"Qwen3.6-27B": {"uncached": 0.3, "cached": 0.15, "completion": 2.7}}
    assert cell.facts["kv"]["Qwen3.6-27B"]["bytes_per_token"] == 64 * 1024


def test_derived_figures(composer: Composer) -> None:
    """A capped budget caps the engine at B + 16,384 (ReFold A.3); the hybrid's block is 784 tokens (vLLM)."""
    (cell,) = make_plan(composer, (*TINY, "context_budget_tokens=16384")).cells
    figures = cell.derived["Qwen3.6-27B"]
    assert (figures["max_model_len"], figures["block_size"]) == (32_768, 784)
    assert 0 < figures["step_ms_one_decode_16k"] < figures["step_ms_prefill_2k"]


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["num_workers=9", "benchmark.num_tasks=8"], "num_workers=9 is larger than the 8 tasks"),
        (["num_workers=0"], "num_workers=0: it must be at least 1"),
        (["replicas_per_model=0"], "replicas_per_model=0: it must be at least 1"),
        (["context_budget_tokens=0"], "context_budget_tokens=0: Qwen3.6-27B takes prompts of 1 to 245760 tokens"),
        (["context_budget_tokens=245761"], "takes prompts of 1 to 245760 tokens"),
        (["limits.max_steps=0"], "limits.max_steps=0: it must be greater than 0"),
        (["router=model_alternating"], "needs a second model: model@second_model="),
        (["model@second_model=qwen3_6_35b_a3b"], "only router=model_alternating sends calls to it"),
        (["router=model_alternating", "model@second_model=qwen3_6_27b"], "second_model is the model itself"),
        (["engine.num_kv_blocks=3"], "engine: Qwen3.6-27B leaves 3 KV blocks"),
        (["engine.max_num_seqs=0"], "engine: max_num_seqs=0: it must be at least 1"),
        (["engine.max_num_batched_tokens=-4"], "engine: max_num_batched_tokens=-4: it must be at least 1"),
        (["engine.max_jump_steps=0"], "engine: max_jump_steps=0: it must be at least 1"),
        (["engine.gpu_memory_utilization=2"], r"gpu_memory_utilization=2\.0: give a share above 0 and up to 1"),
        (["engine.watermark=2"], r"engine: watermark=2\.0: give a share from 0 to below 1"),
        (["engine.sample_interval_s=0"], r"engine: sample_interval_s=0\.0: it must be above 0"),
        (["engine.long_prefill_token_threshold=-1"], "long_prefill_token_threshold=-1: it must be at least 0"),
        (["temperature=-1"], r"temperature=-1\.0: it must be at least 0"),
        (["seed=-1"], "seed=-1: it must be at least 0"),
        (["limits.max_completion_tokens=999999"], "max_completion_tokens=999999 leaves no room for a prompt in the"),
        (["trust.min_concurrency_share=7"], r"min_concurrency_share=7\.0: give a share between 0 and 1"),
        (["trust.max_lost_calls=-1"], r"trust\.max_lost_calls=-1: it must be at least 0"),
        (["executor.parallel=0"], r"executor\.parallel=0: it must be at least 1"),
        (["executor=ray_actors", "executor.clock_speed=0"], "executor: clock_speed must be above 0"),
        (["engine.max_model_len=9000000"], "engine: max_model_len=9000000 needs more than"),
        (["policy.coverage=2"], r"policy\.coverage=2\.0: give a share between 0 and 1"),
        (["benchmark=recorded"], "benchmark=recorded needs benchmark.path="),
        (["benchmark=recorded", "benchmark.path=/nowhere/x"], "/nowhere/x"),
        (["+sweep=concurency"], r"unknown sweep 'concurency'; did you mean 'concurrency'\? there are: .*concurrency, "),
        (["+sweep=./mine.yaml"], "sweep ./mine.yaml: no such file"),
        (["num_workers=2", "num_workers=4"], "num_workers is given twice: num_workers=2 and num_workers=4"),
        (["+sweep=smoke", "arm=mask"], "unknown arm 'mask'"),
    ],
)
def test_refused_at_plan_time(composer: Composer, texts: list[str], message: str) -> None:
    """What no attempt could run with is one line before anything starts."""
    with pytest.raises(UserError, match=message) as caught:
        make_plan(composer, texts)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("axes: {executor: [virtual, ray_actors]}", "executor cannot vary within a sweep"),
        ("axes: {num_workers: [2, 2]}", "one and the same experiment: num_workers=2 and num_workers=2"),
        ("axes: {num_workers: [2, 9]}", "num_workers=9: num_workers=9 is larger than the 8 tasks"),
        ("axes: {renderer: [base, refld]}", "unknown renderer 'refld'"),
        ("axes: {num_worker: [2]}", "num_worker=2: unknown key 'num_worker'"),
        ("axes: [", "not readable as YAML"),
    ],
)
def test_a_users_own_sweep_file(composer: Composer, tmp_path: Path, content: str, message: str) -> None:
    """A sweep may be a file of one's own; its mistakes name the cell."""
    path = tmp_path / "mine.yaml"
    path.write_text(f"base: [benchmark.num_tasks=8]\n{content}\n", encoding="utf-8")
    with pytest.raises(UserError, match=message):
        make_plan(composer, [f"+sweep={path}"])


def test_plan_text(sweep_plan: Callable[..., SweepPlan], planned_cell: Callable[..., Any]) -> None:
    """The head counts what happens; reused cells are listed only in a dry run; the summary says how to go on."""
    plan = sweep_plan(planned_cell("a"), planned_cell("b"))
    decisions = [Decision("v1-a", Action.reuse, "attempt 1 is complete"), Decision("v1-b", Action.run, "not run yet")]
    assert list(plan_lines(plan, decisions, verbose=False)) == [
        "sweep s: a test; 2 cells: 1 RUN, 1 REUSE",
        "RUN    cell=b  v1-b  2 tasks, 1 steps; not run yet",
    ]
    reused = "REUSE  cell=a  v1-a  2 tasks, 1 steps; attempt 1 is complete"
    assert reused in plan_lines(plan, decisions, verbose=True)
    assert reused in plan_lines(plan, decisions, verbose=False, with_reused=True)
    assert list(summary_lines(plan, {"v1-a": "complete", "v1-b": "failed"})) == [
        "sweep s: 1 complete, 1 failed",
        "run the failed cells again: the same command with rerun=failed",
        "see the results: python -m db table s",
    ]


FIXTURES = Path(__file__).parents[2] / "fixtures" / "trajectories"


@pytest.mark.parametrize("trace", ["weka.json", "mooncake.jsonl"])
def test_a_length_only_trace_runs_under_base_only(composer: Composer, trace: str) -> None:
    """There is no text to render in another way: clip is refused in one line, base is planned."""
    command = ["benchmark=recorded", f"benchmark.path={FIXTURES / trace}", "num_workers=1"]
    assert make_plan(composer, [*command, "renderer=base"]).cells
    with pytest.raises(UserError, match="length-only trace"):
        make_plan(composer, [*command, "renderer=clip"])


def test_relative_paths_are_seen_from_where_the_command_runs(
    composer: Composer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker may start in another folder: its configuration holds the absolute path, the key holds none."""
    monkeypatch.chdir(FIXTURES)
    command = ["benchmark=recorded", "num_workers=1"]
    relative = make_plan(composer, [*command, "benchmark.path=mini_v2.traj.json"]).cells[0]
    assert relative.config["benchmark"]["path"] == str(FIXTURES / "mini_v2.traj.json")
    absolute = make_plan(composer, [*command, f"benchmark.path={FIXTURES / 'mini_v2.traj.json'}"]).cells[0]
    assert relative.key == absolute.key


def test_signals_of_a_renderer_with_its_own_tags(composer: Composer) -> None:
    """ARSM's tags have their own source: the policy's stale labels are not asked for."""
    (cell,) = make_plan(composer, ["renderer=arsm", *TINY]).cells
    assert cell.sources["signals"] == "heuristic"


def test_a_default_is_a_label_where_other_cells_vary_it(composer: Composer, tmp_path: Path) -> None:
    """An explicit cell that leaves a varied root setting alone shows its default, not a blank."""
    sweep = tmp_path / "zipped.yaml"
    sweep.write_text(
        "description: two settings together\n"
        "base: [benchmark.num_tasks=4]\n"
        "zip:\n  - {num_workers: [1, 2], replicas_per_model: [2, 3]}\n"
        "cells:\n  - {num_workers: 3}\n"
    )
    plan = make_plan(composer, [f"+sweep={sweep}"])
    rows = [(cell.labels["num_workers"], cell.labels["replicas_per_model"]) for cell in plan.cells]
    assert rows == [("1", "2"), ("2", "3"), ("3", "1")]


def test_a_value_given_twice_is_refused(composer: Composer) -> None:
    """`num_workers=[2,2]` is a slip: a cell is run once."""
    with pytest.raises(UserError, match="names 2 twice"):
        make_plan(composer, ["+sweep=concurrency", "num_workers=[2,2]"])

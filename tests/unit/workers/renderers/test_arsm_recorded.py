"""ARSM on the recorded runs: every operator acts, the guard blocks; routing shares are printed beside Table 5."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.unit.workers.renderers.histories import history_of, recorded_runs, recorded_turns, started
from workers.benchmarks.recorded import Recorded
from workers.renderers.arsm import Arsm
from workers.renderers.arsm_loops import chi
from workers.renderers.arsm_signals import Status
from workers.renderers.arsm_state import State

# ARSM Table 5, rho = 0.5, Qwen3.5-9B on SWE-bench Lite: another model's own words, so nothing is tuned to them.
TABLE_5 = {Status.ongoing: 76.34, Status.milestone: 8.99, Status.failure: 9.17, Status.success: 5.50}


def acted(before: State, after: State, status: Status) -> set[str]:
    """Which operators changed the state of one turn to the next."""
    names = set()
    if status is Status.milestone:
        names |= {"delta"} if after.num_done > before.num_done else set()
        names |= {"phi"} if before.path and after.milestones != before.milestones and not after.path else set()
    if status is Status.failure:
        names |= {"ell"} if after.pitfalls != before.pitfalls else set()
        names |= {"pi"} if len(after.path) < len(before.path) else set()
        shared = after.loops.keys() & before.loops.keys()
        names |= {"mu"} if any(after.loops[name].count > before.loops[name].count for name in shared) else set()
    if status in (Status.ongoing, Status.success):
        names |= {"append"} if after.path != before.path else set()
    return names | ({"chi"} if chi(after.loops, 3) else set())


def test_every_operator_acts_on_recorded_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """delta, phi, ell, mu, pi, chi, the append and the guard all act with heuristic signals."""
    runs = recorded_runs()
    if not runs:
        pytest.skip("recorded runs are not here (../shared/trajectories)")
    counts: Counter[str] = Counter()
    routes: Counter[Status] = Counter()
    for run in runs:
        renderer = started(Arsm())
        machine = renderer._cache.machine
        history = history_of()
        for turn in recorded_turns(run):
            before = machine.follow(history)
            blocked = any(renderer.intercept(history, action) is not None for action in turn.actions)
            history.append(turn)
            after = machine.follow(history)
            names = acted(before, after, machine.routes[-1]) if machine.routes else set()
            counts.update(names | ({"guard"} if blocked else set()))
        routes.update(machine.routes)
    total = routes.total()
    with capsys.disabled():
        shares = ", ".join(f"{s.value} {100 * routes[s] / total:.2f} ({TABLE_5[s]:.2f})" for s in TABLE_5)
        print(f"\nARSM routing shares in %, recorded runs with heuristic signals (Table 5): {shares}")
        print(f"turns on which an operator acted, of {total}: {dict(sorted(counts.items()))}")
    assert set(counts) == {"delta", "phi", "ell", "mu", "pi", "chi", "append", "guard"}
    assert set(routes) == set(Status)


def test_recorded_runs_load_through_the_benchmark(shared_dir: object) -> None:
    """The same runs as benchmark=recorded gives them."""
    path = f"{shared_dir}/trajectories/neutral.jsonl.gz"
    tasks = Recorded(path=path, num_tasks=1, min_steps=5).tasks()
    assert tasks[0].run is not None
    rendered = started(Arsm()).render(history_of(*recorded_turns(tasks[0].run)))
    assert rendered.messages[-1].content.startswith("[Internal State Update]")


def test_without_signals_every_recorded_turn_is_ongoing() -> None:
    """replay_signals=none (and `recorded`, for runs without tags) routes all turns as ONGOING: the path only grows."""
    runs = recorded_runs()
    if not runs:
        pytest.skip("recorded runs are not here (../shared/trajectories)")
    for source in ("none", "recorded"):
        renderer = started(Arsm(replay_signals=source))  # type: ignore[arg-type]
        turns = recorded_turns(runs[0])
        renderer.render(history_of(*turns))
        machine = renderer._cache.machine
        assert set(machine.routes) == {Status.ongoing}
        assert len(machine.state.path) == min(8, len(turns) - 1)
        assert (machine.state.pitfalls, machine.state.milestones, machine.state.checklist) == ((), (), ())

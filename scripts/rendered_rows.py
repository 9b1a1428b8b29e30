"""Recorded runs rendered again in this process, rows in memory: for benches, golden totals and docs/choices.md.

The code of `python -m orchestrator rerender` without a database: the same sessions, the same prefix cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from db.recorder import InMemoryRecorder
from db.records import Attempt, Call, Session
from orchestrator.compose import Composer
from orchestrator.interfaces import AttemptPlan, Lease
from orchestrator.plan import PlannedCell, make_plan
from orchestrator.virtual_attempt import run_virtual_attempt

ROOT = Path(__file__).resolve().parent.parent
RECORDED_RUNS = ROOT.parent / "shared" / "trajectories" / "neutral.jsonl.gz"
RENDERERS = tuple(sorted(path.stem for path in (ROOT / "conf" / "renderer").glob("*.yaml")))
# Blocks of 16 tokens, vLLM's default for dense models, so that hits are fine-grained.
_BASE = ("engine=prefix_cache", "engine.block_size=16", "num_workers=1", "benchmark=recorded", "benchmark.min_steps=5")


@dataclass(frozen=True, slots=True)
class Rows:
    """What one renderer's sessions recorded; calls in order within each session."""

    sessions: Sequence[Session]
    calls: Sequence[Call]

    @property
    def served(self) -> list[Call]:
        """Calls with a replica, auxiliary ones included."""
        return [call for call in self.calls if call.state == "ok" and call.replica is not None]

    @property
    def mains(self) -> list[Call]:
        """Main-loop calls that were sent."""
        return [call for call in self.served if call.kind == "main"]

    def last_mains(self) -> list[Call]:
        """Each session's last main call."""
        last: dict[str, Call] = {}
        for call in self.mains:
            last[call.session_id] = call
        return list(last.values())

    def total(self, column: str, *, mains_only: bool = False) -> int:
        """Sum of a column over the served calls."""
        return sum(getattr(call, column) or 0 for call in (self.mains if mains_only else self.served))

    @property
    def uncached_tokens(self) -> int:
        """Prompt tokens that no earlier prompt had left in the cache."""
        return self.total("num_prompt_tokens") - self.total("num_cached_tokens")


@cache
def _composer() -> Composer:
    return Composer()


def cell(overrides: Sequence[str], *, path: Path = RECORDED_RUNS) -> PlannedCell:
    """The cell that re-renders `path` under `overrides`."""
    (planned,) = make_plan(_composer(), [*_BASE, f"benchmark.path={path}", *overrides]).cells
    return planned


def rendered_rows(overrides: Sequence[str], *, path: Path = RECORDED_RUNS) -> Rows:
    """Render all runs of `path` under `overrides` (`renderer=mask`, `renderer.polling=10`, ...).

    Raises:
        RuntimeError: the attempt did not end well.
    """
    planned = cell(overrides, path=path)
    plan = AttemptPlan(f"{planned.key}.1", planned.key, planned.title, planned.config, Lease(planned.key, "", 1), "")
    recorder = InMemoryRecorder()
    recorder.start_attempt(_attempt(plan.attempt_id, planned))
    outcome = run_virtual_attempt(plan, recorder)
    if outcome.exit_class != "ok":
        raise RuntimeError(f"{' '.join(overrides)}: {outcome.exit_class}: {outcome.message}\n{outcome.detail}")
    return Rows(recorder.rows[Session], recorder.rows[Call])


def _attempt(attempt_id: str, planned: PlannedCell) -> Attempt:
    return Attempt(
        attempt_id=attempt_id,
        cell_key=planned.key,
        number=1,
        lease_epoch=1,
        owner="",
        started_utc_s=0.0,
        num_tasks=planned.num_tasks,
        engine_kind="re-rendered",
        policy_kind="replay",
        benchmark_source="recorded",
    )

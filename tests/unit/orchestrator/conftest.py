"""Fakes for the orchestrator's tests: planned cells without composing, a scripted executor that writes rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from db.records import AttemptEnd, Call, Session
from db.store import Store
from orchestrator.interfaces import AttemptOutcome, AttemptPlan, AttemptProgress
from orchestrator.plan import PlannedCell, SweepPlan
from orchestrator.progress import Standing

TRUST = {"min_concurrency_share": 0.95, "max_loop_lag_ms": 250.0, "max_lost_calls": 0, "max_negative_s": 1e-6}


def _planned_cell(
    name: str, *, num_tasks: int = 2, num_workers: int = 1, weight: int = 1, **config: Any
) -> PlannedCell:
    return PlannedCell(
        key=f"v1-{name}",
        spec={"version": 1, "components": {}, "settings": {"name": name}, "tasks": []},
        config={
            "num_workers": num_workers,
            "context_budget_tokens": None,
            "seed": 0,
            "replicate": 1,
            "model": {"name": "m"},
            "policy": {},
            "deadline_s": 1000.0,
            "lease_s": 60.0,
            "trust": TRUST,
            "rerun": None,
            "dry_run": False,
            "db": {"url": "results.db"},
            "executor": {},
            **config,
        },
        labels={"cell": name},
        arm=name,
        title=f"cell={name}",
        kinds={k: k for k in ("renderer", "router", "engine", "benchmark", "policy")} | {"executor": "virtual"},
        num_tasks=num_tasks,
        num_steps=weight,
        derived={},
        facts={"prices": {}, "kv": {}},
        sources={"benchmark": "synthetic", "signals": "none"},
    )


@pytest.fixture
def planned_cell() -> Callable[..., PlannedCell]:
    """A planned cell named `name`; other keywords go into its configuration."""
    return _planned_cell


@pytest.fixture
def sweep_plan() -> Callable[..., SweepPlan]:
    """A plan of the given cells."""

    def make(*cells: PlannedCell, name: str = "s", base: tuple[str, ...] = (), **shared: Any) -> SweepPlan:
        with_shared = tuple(replace(cell, config={**cell.config, **shared}) for cell in cells)
        return SweepPlan(name=name, description="a test", base=base, cells=with_shared, notes=())

    return make


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A new results database."""
    return Store.open(tmp_path / "results.db")


def _session(attempt_id: str, index: int, **values: Any) -> Session:
    base: dict[str, Any] = {
        "attempt_id": attempt_id,
        "session_id": f"t{index}",
        "task_id": f"t{index}",
        "ordinal": index,
        "worker": "w0",
        "exit_status": "Submitted",
        "is_timed_out": False,
        "is_exhausted": False,
        "num_steps": 1,
        "num_main_calls": 1,
        "num_auxiliary_calls": 0,
        "started_s": float(index),
        "finished_s": float(index + 1),
    }
    return Session(**(base | values))


def _call(attempt_id: str, index: int, **values: Any) -> Call:
    base: dict[str, Any] = {
        "attempt_id": attempt_id,
        "session_id": f"t{index}",
        "call_index": 1,
        "kind": "main",
        "state": "ok",
        "model": "m",
        "replica": "m/0",
        "num_prompt_tokens": 10,
        "num_cached_tokens": 0,
        "num_completion_tokens": 1,
        "queue_delay_s": 0.0,
        "num_preemptions": 0,
        "sent_s": float(index),
    }
    return Call(**(base | values))


@pytest.fixture
def session_row() -> Callable[..., Session]:
    """Session `index` of an attempt: one call, one second long, one after another."""
    return _session


@pytest.fixture
def call_row() -> Callable[..., Call]:
    """The only call of session `index`."""
    return _call


@dataclass
class FakeExecutor:
    """Writes the rows of a good attempt and reports what `script` says for the cell's title.

    `script` values: an exit class; `hang` (ends only when cancelled); `deaf` (does not even then); or a callable that
    gets the plan and returns the outcome.
    """

    store: Store
    script: Mapping[str, Any] = field(default_factory=dict)
    num_parallel: int = 1
    submitted: list[str] = field(default_factory=list)
    cancelled: dict[str, str] = field(default_factory=dict)
    most_in_flight: int = 0
    is_open: bool = False
    _ready: list[AttemptOutcome] = field(default_factory=list)
    _hanging: dict[str, str] = field(default_factory=dict)

    def open(self, *, largest_num_workers: int) -> None:
        self.is_open = True

    def submit(self, plan: AttemptPlan) -> None:
        self.submitted.append(plan.title)
        what = self.script.get(plan.title, "ok")
        if callable(what):
            self._ready.append(what(plan))
        elif what in ("hang", "deaf"):
            self._hanging[plan.attempt_id] = what
        else:
            if what == "ok":
                write_good_rows(self.store, plan)
            self._ready.append(AttemptOutcome(plan.attempt_id, what, "told so", "trace", {"wall_s": 1.0, "sim_s": 2.0}))
        self.most_in_flight = max(self.most_in_flight, len(self._ready) + len(self._hanging))

    def wait(self, timeout_s: float) -> Sequence[AttemptOutcome]:
        ready, self._ready = self._ready[:1], self._ready[1:]
        return ready

    def progress(self) -> Sequence[AttemptProgress]:
        return []

    def cancel(self, attempt_id: str, reason: str) -> None:
        self.cancelled[attempt_id] = reason
        if self._hanging.get(attempt_id) == "hang":
            del self._hanging[attempt_id]
            self._ready.append(AttemptOutcome(attempt_id, "Cancelled", reason))

    def close(self) -> None:
        self.is_open = False


def write_good_rows(store: Store, plan: AttemptPlan) -> None:
    """Two sessions at w = 1, one call each, as a worker process would record them."""
    recorder = store.recorder(max_age_s=None)
    recorder.adopt_attempt(plan.attempt_id)
    for index in range(2):
        recorder.record_call(_call(plan.attempt_id, index))
        recorder.record_session(_session(plan.attempt_id, index))
    recorder.flush()


@pytest.fixture
def fake_executor(store: Store) -> Callable[..., FakeExecutor]:
    """A scripted executor on the test's store."""

    def make(script: Mapping[str, Any] | None = None, **options: Any) -> FakeExecutor:
        return FakeExecutor(store, dict(script or {}), **options)

    return make


@dataclass
class ListDisplay:
    """Keeps what it is told."""

    lines: list[str] = field(default_factory=list)
    ends: list[tuple[str, AttemptEnd]] = field(default_factory=list)
    standings: list[Standing] = field(default_factory=list)

    def line(self, text: str) -> None:
        self.lines.append(text)

    def ended(self, cell: PlannedCell, end: AttemptEnd, sessions: Sequence[Session]) -> None:
        self.ends.append((cell.title, end))

    def update(self, standing: Standing) -> None:
        self.standings.append(standing)

    def close(self) -> None:
        pass


@pytest.fixture
def display() -> ListDisplay:
    """A display that keeps what it is told."""
    return ListDisplay()

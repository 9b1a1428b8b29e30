"""Attempts for executor tests: a composed configuration, its claimed cell in a fresh database, and its rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from db.records import Attempt, Call, Cell, Event, ServerSample, Session, Sweep, SweepCell, attempt_id_of
from db.store import Store
from orchestrator.compose import Composer
from orchestrator.interfaces import AttemptOutcome, AttemptPlan, Executor, Lease
from serving.clock import stopwatch_s, utc_s

LEASE_S = 600.0


def compose(*overrides: str) -> dict[str, Any]:
    """The configuration of a small simulated cell with these overrides."""
    composer = Composer()
    return composer.compose([composer.vocabulary.parse(text) for text in overrides])


@dataclass(frozen=True)
class Prepared:
    """A claimed cell with a started attempt."""

    store: Store
    plan: AttemptPlan

    def rows(self, kind: type[Any]) -> tuple[Any, ...]:
        """The attempt's rows of one kind."""
        return self.store.rows(kind, attempt_id=self.plan.attempt_id)

    @property
    def sessions(self) -> tuple[Session, ...]:
        return self.rows(Session)

    @property
    def calls(self) -> tuple[Call, ...]:
        return self.rows(Call)

    @property
    def samples(self) -> tuple[ServerSample, ...]:
        return self.rows(ServerSample)

    @property
    def events(self) -> tuple[Event, ...]:
        return self.rows(Event)


def prepared(db: Path, config: Mapping[str, Any], *, key: str = "v1-test", owner: str = "test:1") -> Prepared:
    """Register one cell, claim it and start its attempt."""
    store = Store.open(str(db))
    cell = Cell(
        cell_key=key,
        spec_json="{}",
        arm="base",
        num_workers=int(config["num_workers"]),
        renderer="base",
        router="sticky",
        model="model",
        engine="simulated",
        executor="ray_actors",
        benchmark="synthetic",
        context_budget_tokens=None,
        seed=0,
        replicate=1,
        created_utc_s=utc_s(),
    )
    store.register_sweep(
        Sweep(name=key, spec_json="{}", created_utc_s=utc_s()),
        [cell],
        [SweepCell(sweep=key, cell_key=key, ordinal=0, arm="base")],
    )
    return started(store, config, key=key, owner=owner, db_url=str(db))


def started(
    store: Store, config: Mapping[str, Any], *, key: str, owner: str, db_url: str, states: Sequence[str] = ("planned",)
) -> Prepared:
    """Claim a registered cell and start its next attempt."""
    claim = store.claim(key, owner=owner, lease_s=LEASE_S, states=states)
    assert claim is not None
    attempt = Attempt(
        attempt_id=attempt_id_of(key, claim.number),
        cell_key=key,
        number=claim.number,
        lease_epoch=claim.epoch,
        owner=owner,
        started_utc_s=utc_s(),
        num_tasks=1,
        engine_kind="simulated",
        policy_kind="replay",
        benchmark_source="synthetic",
    )
    store.start_attempt(attempt)
    plan = AttemptPlan(attempt.attempt_id, key, key, config, Lease(key, owner, claim.epoch), db_url)
    return Prepared(store, plan)


def outcome_of(executor: Executor, plan: AttemptPlan, *, timeout_s: float = 120.0) -> AttemptOutcome:
    """Submit an attempt and wait for its end."""
    executor.submit(plan)
    return waited(executor, timeout_s=timeout_s)


def waited(executor: Executor, *, timeout_s: float = 120.0) -> AttemptOutcome:
    """The next outcome."""
    limit_s = stopwatch_s() + timeout_s
    while stopwatch_s() < limit_s:
        for outcome in executor.wait(1.0):
            return outcome
    raise AssertionError(f"no outcome within {timeout_s} s")

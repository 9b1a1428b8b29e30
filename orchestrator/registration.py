"""A plan as rows: the sweep, its cells, its membership, and the attempt that is about to start."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from db.records import Attempt, Cell, Sweep, SweepCell, to_json
from db.records import attempt_id_of as make_attempt_id
from db.store import Claim, Store
from orchestrator.cells import revisions_of
from orchestrator.plan import PlannedCell, SweepPlan
from orchestrator.versions import git_revision, installed_versions

# Engine -> Attempt.engine_kind; what is not listed runs for real.
_ENGINE_KINDS = {"simulated": "simulated", "vllm_modelled": "vllm_modelled", "prefix_cache": "re-rendered"}


def register(store: Store, plan: SweepPlan, *, now_utc_s: float) -> None:
    """Put the whole grid into the database, before anything runs.

    A command that narrows or extends the axes of a stored sweep adds to it; one with other settings for all cells
    replaces its membership, because a table of a sweep must not mix them. Cells and attempts are never removed.
    """
    sweep = Sweep(name=plan.name, spec_json=to_json(_sweep_spec(plan)), created_utc_s=now_utc_s)
    cells = [cell_row(cell, now_utc_s=now_utc_s) for cell in plan.cells]
    members = [
        SweepCell(
            sweep=plan.name,
            cell_key=cell.key,
            ordinal=ordinal,
            arm=cell.arm,
            axis_labels_json=to_json(dict(cell.labels)),
        )
        for ordinal, cell in enumerate(plan.cells)
    ]
    store.register_sweep(sweep, cells, _with_kept(store, plan, members))


def _sweep_spec(plan: SweepPlan) -> dict[str, Any]:
    return {"description": plan.description, "base": list(plan.base), "notes": list(plan.notes)}


def _with_kept(store: Store, plan: SweepPlan, members: Sequence[SweepCell]) -> list[SweepCell]:
    """The new members, after the stored ones that belong to the same grid (same base)."""
    stored = next((sweep for sweep in store.sweeps() if sweep.name == plan.name), None)
    if stored is None or json.loads(stored.spec_json).get("base") != list(plan.base):
        return list(members)
    new = {member.cell_key: member for member in members}
    old = store.sweep_cells(plan.name)
    if set(new) >= {member.cell_key for member in old}:
        return list(members)
    kept = [new.get(member.cell_key, member) for member in old]
    known = {member.cell_key for member in old}
    merged = [*kept, *(member for member in members if member.cell_key not in known)]
    return [_at(member, ordinal) for ordinal, member in enumerate(merged)]


def _at(member: SweepCell, ordinal: int) -> SweepCell:
    return SweepCell(
        sweep=member.sweep,
        cell_key=member.cell_key,
        ordinal=ordinal,
        arm=member.arm,
        axis_labels_json=member.axis_labels_json,
    )


def cell_row(cell: PlannedCell, *, now_utc_s: float) -> Cell:
    """A planned cell as its row."""
    config, kinds = cell.config, cell.kinds
    models = [str(config["model"]["name"])]
    if config.get("second_model"):
        models.append(str(config["second_model"]["name"]))
    return Cell(
        cell_key=cell.key,
        spec_json=to_json(dict(cell.spec)),
        arm=cell.arm,
        num_workers=cell.num_workers,
        renderer=kinds["renderer"],
        router=kinds["router"],
        model="+".join(models),
        engine=kinds["engine"],
        executor=kinds["executor"],
        benchmark=kinds["benchmark"],
        context_budget_tokens=config["context_budget_tokens"],
        seed=config["seed"],
        replicate=config["replicate"],
        created_utc_s=now_utc_s,
    )


def attempt_row(cell: PlannedCell, claim: Claim, *, now_utc_s: float) -> Attempt:
    """The attempt a claim entitles to, with everything that is provenance."""
    policy = cell.config["policy"]
    return Attempt(
        attempt_id=make_attempt_id(cell.key, claim.number),
        cell_key=cell.key,
        number=claim.number,
        lease_epoch=claim.epoch,
        owner=claim.owner,
        started_utc_s=now_utc_s,
        num_tasks=cell.num_tasks,
        engine_kind=_ENGINE_KINDS.get(cell.kinds["engine"], "live"),
        policy_kind=cell.kinds["policy"],
        benchmark_source=cell.sources["benchmark"],
        signals_source=cell.sources["signals"],
        stale_coverage=policy.get("coverage"),
        generated=policy.get("generated"),
        versions_json=to_json(dict(installed_versions())),
        config_json=to_json(config_snapshot(cell)),
        thresholds_json=to_json(dict(cell.config["trust"])),
        git_sha=git_revision(),
    )


def config_snapshot(cell: PlannedCell) -> dict[str, Any]:
    """The configuration without the database's address, plus prices, cache sizes, revisions and derived figures."""
    config = {key: value for key, value in cell.config.items() if key != "db"}
    return {**config, **cell.facts, "revisions": revisions_of(cell.spec), "derived": dict(cell.derived)}

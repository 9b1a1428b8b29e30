"""What happens to each cell of a sweep: run, take over, wait, reuse, leave or run again, with the reason. Pure.

A plain restart runs what has no terminal row; `rerun=...` adds whole cells as new attempts. The unit is always the
cell: three failed sessions of 32, run again alone, would run at w = 3, which is another experiment.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from db.records import Attempt, Cell
from orchestrator.cells import revisions_of, without_revisions
from orchestrator.errors import ConfigError, unknown
from orchestrator.versions import DECIDING_PACKAGES
from workers import errors as worker_errors

MODES = ("failed", "tainted", "lost", "outdated", "all")
# Exit classes the driver itself gives, beside those of `workers.errors`.
DRIVER_EXITS = ("Cancelled", "ConfigurationError", "DeadlineExceeded", "LeaseExpired")


class Action(StrEnum):
    """What is done with a cell, in the order the plan shows them."""

    run = "RUN"
    take = "TAKE"
    rerun = "RERUN"
    wait = "WAIT"
    reuse = "REUSE"
    leave = "LEAVE"


@dataclass(frozen=True, slots=True)
class Decision:
    """What happens to one cell and why.

    Attributes:
        from_states: states a claim may take it from (an expired lease on `running` is taken in any case).
        last_number: the newest attempt seen; when there is a newer one at the claim, another driver was faster.
    """

    cell_key: str
    action: Action
    reason: str
    from_states: tuple[str, ...] = ()
    last_number: int = 0

    @property
    def is_pending(self) -> bool:
        """Whether this driver wants to run the cell, now or after another driver has dropped it."""
        return self.action in (Action.run, Action.take, Action.rerun, Action.wait)


def read_modes(value: Any, known_exits: Iterable[str] = ()) -> frozenset[str]:
    """The `rerun` setting: null, one word or a list of words.

    Args:
        known_exits: exit classes that occur in the database.
    Raises:
        ConfigError: a word that is neither a mode nor an exit class.
    """
    words = [] if value is None else [str(word) for word in (value if isinstance(value, list) else [value])]
    exits = {name for name, cls in inspect.getmembers(worker_errors, inspect.isclass) if _is_exit(cls)}
    known = {*MODES, *exits, *DRIVER_EXITS, *known_exits}
    for word in words:
        if word not in known:
            raise ConfigError(f"rerun={word}: {unknown('rerun', word, known)}")
    return frozenset(words)


def _is_exit(cls: type[Any]) -> bool:
    return issubclass(cls, worker_errors.SessionEnd) and cls is not worker_errors.SessionEnd and cls.invalidates_cell


def decide(
    cells: Sequence[Cell],
    attempts: Mapping[str, Sequence[Attempt]],
    modes: frozenset[str],
    *,
    now_utc_s: float,
    versions: Mapping[str, str],
    older: Mapping[str, str] | None = None,
) -> tuple[Decision, ...]:
    """One decision per cell, in the given order.

    Args:
        attempts: cell key -> its attempts by number.
        versions: what would run now, for `outdated`.
        older: cell key -> how its components differ from an older result of the same cell (`older_results`).
    """
    made = []
    for cell in cells:
        found = tuple(attempts.get(cell.cell_key, ()))
        decision = _decide(cell, found, modes, now_utc_s=now_utc_s, versions=versions)
        if not found and older and cell.cell_key in older:
            decision = replace(
                decision, reason=f"{decision.reason}; its older result is outdated: {older[cell.cell_key]}"
            )
        made.append(decision)
    return tuple(made)


def older_results(specs: Mapping[str, Mapping[str, Any]], stored: Sequence[Cell]) -> dict[str, str]:
    """Planned cells that were run before some component's REVISION was raised, and which components those are.

    The revisions are part of a key, so such a cell is a new one and runs anyway; this is only said, never decided on.

    Args:
        specs: cell key -> specification, of the planned cells.
    """
    latest: dict[str, Mapping[str, Any]] = {}
    for cell in stored:
        if cell.state == "complete" and cell.cell_key not in specs:
            spec = json.loads(cell.spec_json)
            latest[without_revisions(spec)] = spec
    found = {}
    for key, spec in specs.items():
        old = latest.get(without_revisions(spec)) if latest else None
        if old is not None:
            before, now = revisions_of(old), revisions_of(spec)
            names = [name for name in sorted({*before, *now}) if before.get(name) != now.get(name)]
            found[key] = "REVISION of " + ", ".join(f"{name} {before.get(name)} -> {now.get(name)}" for name in names)
    return found


def _decide(
    cell: Cell, attempts: Sequence[Attempt], modes: frozenset[str], *, now_utc_s: float, versions: Mapping[str, str]
) -> Decision:
    last = max(attempts, key=lambda attempt: attempt.number, default=None)
    number = 0 if last is None else last.number
    if cell.state == "planned":
        why = "not run yet" if last is None else f"attempt {number} was interrupted ({last.exit_class or last.state})"
        return Decision(cell.cell_key, Action.run, why, ("planned",), number)
    if cell.state == "running":
        left_s = (cell.lease_until_utc_s or 0.0) - now_utc_s
        if left_s >= 0:
            why = f"runs under {cell.lease_owner}, whose lease has {left_s:.0f} s left"
            return Decision(cell.cell_key, Action.wait, why, ("planned",), number)
        why = f"{cell.lease_owner} stopped renewing its lease; attempt {number} is lost"
        return Decision(cell.cell_key, Action.take, why, ("planned",), number)
    asked = _asked(cell, last, modes, versions)
    if asked is not None:
        return Decision(cell.cell_key, Action.rerun, asked, (cell.state,), number)
    if cell.state == "complete":
        return Decision(cell.cell_key, Action.reuse, f"attempt {number} is complete", (), number)
    hint = cell.state if cell.state in MODES else "all"
    return Decision(cell.cell_key, Action.leave, f"{_ending(cell, last)}; rerun={hint} runs it again", (), number)


def _asked(cell: Cell, last: Attempt | None, modes: frozenset[str], versions: Mapping[str, str]) -> str | None:
    """Why `modes` ask for a terminal cell, or None."""
    if cell.state in modes:
        return f"rerun={cell.state}: {_ending(cell, last)}"
    if last is not None and last.exit_class in modes:
        return f"rerun={last.exit_class}: {_ending(cell, last)}"
    if "outdated" in modes:
        changed = version_changes(last, versions)
        if changed:
            return f"rerun=outdated: {', '.join(changed)}"
    if "all" in modes:
        return f"rerun=all: {_ending(cell, last)}"
    return None


def _ending(cell: Cell, last: Attempt | None) -> str:
    number = 0 if last is None else last.number
    if cell.state == "tainted" and last is not None and last.taint_reasons_json:
        reasons = json.loads(last.taint_reasons_json)
        more = f" and {len(reasons) - 1} more" if len(reasons) > 1 else ""
        return f"attempt {number} is tainted: {reasons[0]}{more}" if reasons else f"attempt {number} is tainted"
    detail = "" if last is None or not last.exit_class else f" ({last.exit_class}: {last.message or 'no message'})"
    return f"attempt {number} is {cell.state}{detail}"


def version_changes(attempt: Attempt | None, versions: Mapping[str, str]) -> tuple[str, ...]:
    """Deciding packages whose version differs between a stored attempt and now: `vllm 0.31.0 -> 0.32.0`."""
    if attempt is None:
        return ()
    stored: dict[str, str] = json.loads(attempt.versions_json)
    return tuple(
        f"{name} {stored[name]} -> {versions.get(name, 'not installed')}"
        for name in DECIDING_PACKAGES
        if name in stored and stored[name] != versions.get(name)
    )

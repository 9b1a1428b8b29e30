"""The seam between the driver and an executor: an attempt's plan, its progress and its outcome."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to write rows of one attempt. Every recorder transaction checks owner and epoch."""

    cell_key: str
    owner: str
    epoch: int


@dataclass(frozen=True, slots=True)
class AttemptPlan:
    """Everything an executor needs to run one attempt of one cell; plain data, sent to Ray tasks and actors.

    Attributes:
        config: the cell's composed configuration (component nodes with `_target_`, scalars), plain dicts.
        db_url: SQLAlchemy URL of the results DB.
    """

    attempt_id: str
    cell_key: str
    title: str
    config: Mapping[str, Any]
    lease: Lease
    db_url: str


@dataclass(frozen=True, slots=True)
class AttemptProgress:
    """Counters of a running attempt, for the display only. `clock_s` is the attempt's clock."""

    attempt_id: str
    sessions_done: int
    sessions_total: int
    sessions_open: int
    calls: int
    clock_s: float


@dataclass(frozen=True, slots=True)
class AttemptOutcome:
    """How an attempt ended.

    Attributes:
        exit_class: `ok`, or the exit status that invalidated the attempt (WorkerLost, ReplicaLost, Bug, ...).
        message: one line.
        detail: traceback or log excerpt, for the event row.
        facts: measured values that trust checks and provenance need: `max_loop_lag_ms`, `was_cache_warm`, `sim_s`,
            `wall_s`, `cpu_s_by_part`, `peak_rss_bytes`, ...
    """

    attempt_id: str
    exit_class: str
    message: str = ""
    detail: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)


class Executor(Protocol):
    """Runs attempts. Never retries: only the driver makes attempts."""

    @property
    def num_parallel(self) -> int:
        """How many attempts may be in flight at once; asked after `open`."""
        ...

    def open(self, *, largest_num_workers: int) -> None:
        """Start or join the cluster; called once per sweep.

        Raises:
            ClusterError: not reachable, another version, ports or HOME unusable; one line.
        """
        ...

    def submit(self, plan: AttemptPlan) -> None:
        """Start one attempt; at most `parallel` are in flight."""
        ...

    def wait(self, timeout_s: float) -> Sequence[AttemptOutcome]:
        """Outcomes that arrived within `timeout_s`, maybe none. A dead task or node is an outcome, not an exception."""
        ...

    def progress(self) -> Sequence[AttemptProgress]:
        """Counters of the attempts in flight."""
        ...

    def cancel(self, attempt_id: str, reason: str) -> None:
        """Stop an attempt (deadline, signal); its outcome arrives by `wait`."""
        ...

    def close(self) -> None:
        """End everything this executor started."""
        ...

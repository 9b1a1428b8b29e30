"""The virtual executor: each attempt is one Ray task in virtual time; attempts spread over the cluster's CPUs.

Default for simulated engines. Ray never retries (`max_retries=0`): only the driver makes attempts.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import ray

from orchestrator.executors import ray_cluster
from orchestrator.executors.actor_proxies import outcome_of_ray_error
from orchestrator.interfaces import AttemptOutcome, AttemptPlan, AttemptProgress
from orchestrator.virtual_attempt import run_recorded_attempt


@ray.remote(max_retries=0, num_cpus=1)
def _run_in_task(plan: AttemptPlan, driver_host: str) -> AttemptOutcome:
    """One attempt in a Ray worker process, writing its rows itself."""
    if plan.db_url.startswith("sqlite") and ray_cluster.driver_host() != driver_host:
        return AttemptOutcome(
            plan.attempt_id,
            "ConfigurationError",
            f"the SQLite file lies on {driver_host} and this task runs on {ray_cluster.driver_host()}: "
            "use db=postgresql on a cluster",
        )
    return run_recorded_attempt(plan)


@dataclass
class VirtualExecutor:
    """Runs attempts as Ray tasks.

    Args:
        address: Ray cluster, `local` for one of our own.
        parallel: attempts in flight; None = the cluster's CPUs.

    Source: architecture section 3, ReFold section 4.3 (the concurrency study it speeds up).
    """

    address: str = "local"
    parallel: int | None = None
    _in_flight: dict[Any, AttemptPlan] = field(default_factory=dict, init=False)
    _reasons: dict[str, str] = field(default_factory=dict, init=False)

    def open(self, *, largest_num_workers: int) -> None:
        """See `Executor`. A virtual attempt needs one CPU however large w is."""
        ray_cluster.start_or_join(self.address, num_cpus=self.parallel or os.cpu_count())

    @property
    def num_parallel(self) -> int:
        """How many attempts may be in flight at once; needs an open cluster."""
        return self.parallel or ray_cluster.num_cluster_cpus()

    def submit(self, plan: AttemptPlan) -> None:
        """See `Executor`."""
        self._in_flight[_run_in_task.remote(plan, ray_cluster.driver_host())] = plan

    def wait(self, timeout_s: float) -> Sequence[AttemptOutcome]:
        """See `Executor`."""
        if not self._in_flight:
            return []
        refs = list(self._in_flight)
        ready, _ = ray.wait(refs, num_returns=len(refs), timeout=0)
        if not ready:
            ready, _ = ray.wait(refs, num_returns=1, timeout=timeout_s)
        return [self._outcome(ref, self._in_flight.pop(ref)) for ref in ready]

    def progress(self) -> Sequence[AttemptProgress]:
        """Virtual tasks report through their rows; nothing is known here."""
        return []

    def cancel(self, attempt_id: str, reason: str) -> None:
        """See `Executor`."""
        for ref, plan in self._in_flight.items():
            if plan.attempt_id == attempt_id:
                self._reasons[attempt_id] = reason
                ray.cancel(ref, force=True)

    def close(self) -> None:
        """See `Executor`."""
        ray_cluster.stop()

    def _outcome(self, ref: Any, plan: AttemptPlan) -> AttemptOutcome:
        try:
            outcome: AttemptOutcome = ray.get(ref)
        except ray.exceptions.RayError as exc:
            return outcome_of_ray_error(plan.attempt_id, exc, self._reasons.pop(plan.attempt_id, None))
        return outcome

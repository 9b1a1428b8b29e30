"""The executor of re-rendering: attempts one after another in this process, no Ray.

Rows, cell keys and states are those of `executor=virtual`, whose attempts are the same code in a Ray task.
"""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.interfaces import AttemptOutcome, AttemptPlan, AttemptProgress
from orchestrator.virtual_attempt import run_recorded_attempt


class InlineExecutor:
    """Runs each attempt inside `wait`; a signal is obeyed when the running attempt is over."""

    num_parallel = 1

    def __init__(self) -> None:
        self._submitted: list[AttemptPlan] = []
        self._outcomes: list[AttemptOutcome] = []

    def open(self, *, largest_num_workers: int) -> None:
        """Nothing to start."""

    def submit(self, plan: AttemptPlan) -> None:
        """See `Executor`."""
        self._submitted.append(plan)

    def wait(self, timeout_s: float) -> Sequence[AttemptOutcome]:
        """Run the next attempt to its end, however long it takes, and return its outcome."""
        if self._submitted:
            self._outcomes.append(run_recorded_attempt(self._submitted.pop(0)))
        outcomes, self._outcomes = self._outcomes, []
        return outcomes

    def progress(self) -> Sequence[AttemptProgress]:
        """Attempts report through their rows; nothing is known here."""
        return []

    def cancel(self, attempt_id: str, reason: str) -> None:
        """Drop an attempt that has not begun."""
        for plan in [plan for plan in self._submitted if plan.attempt_id == attempt_id]:
            self._submitted.remove(plan)
            self._outcomes.append(AttemptOutcome(attempt_id, "Cancelled", reason))

    def close(self) -> None:
        """Nothing to end."""

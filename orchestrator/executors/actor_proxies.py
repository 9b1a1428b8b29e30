"""Ray handles behind our seams, and the one place that maps Ray's errors to ours."""

from __future__ import annotations

import ray

from orchestrator.interfaces import AttemptOutcome


def outcome_of_ray_error(attempt_id: str, exc: ray.exceptions.RayError, reason: str | None) -> AttemptOutcome:
    """What a failed Ray task or actor means for its attempt.

    Args:
        reason: why we cancelled it, or None when we did not.
    """
    text = " ".join(str(exc).split())[:500]
    if reason is not None:
        return AttemptOutcome(attempt_id, "Cancelled", reason, text)
    if isinstance(exc, ray.exceptions.RayTaskError):
        return AttemptOutcome(attempt_id, "Bug", f"{type(exc.cause).__name__}: {exc.cause}", str(exc))
    return AttemptOutcome(attempt_id, "WorkerLost", f"{type(exc).__name__}: the process or node that ran the attempt is gone", text)

"""What every router needs first: the replicas that serve a model."""

from __future__ import annotations

from collections.abc import Sequence

from serving.calls import ReplicaView
from serving.errors import NoReplicaError


def models_of(views: Sequence[ReplicaView]) -> tuple[str, ...]:
    """The models served, each once, in the order of their first replica."""
    return tuple(dict.fromkeys(view.model for view in views))


def replicas_of(model: str, views: Sequence[ReplicaView]) -> list[ReplicaView]:
    """The replicas that serve `model`, in fixed order, at least one.

    Raises:
        NoReplicaError: none does; names what is served.
    """
    found = [view for view in views if view.model == model]
    if not found:
        served = ", ".join(models_of(views)) or "nothing"
        raise NoReplicaError(f"no replica serves the model {model!r}; served: {served}")
    return found

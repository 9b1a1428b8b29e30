"""Sticky: a session stays on one replica, so that its prefix cache is there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from serving.calls import CallRequest, ReplicaView, RouteDecision
from serving.routers.candidates import replicas_of


@dataclass(frozen=True, slots=True)
class StickyRouter:
    """Session number `home` goes to replica `home mod n` of its model, for all its calls.

    Sessions are numbered in task order, so the first n sessions are spread over all n replicas.

    Invariants: same home, model and replicas -> same replica; auxiliary calls are no exception.
    Source: ReFold appendix F.1 ("sends every call of a task to one replica"); the spread mod n is our choice.
    """

    REVISION: ClassVar[int] = 1

    def choose(self, call: CallRequest, *, home: int, views: Sequence[ReplicaView]) -> RouteDecision:
        """Choose the session's own replica.

        Raises:
            NoReplicaError: no replica serves `call.model`.
        """
        replicas = replicas_of(call.model, views)
        slot = home % len(replicas)
        return RouteDecision(replicas[slot].replica_id, f"sticky: home {home} mod {len(replicas)} = {slot}")

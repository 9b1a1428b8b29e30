"""Round robin per session: successive calls of a session go to successive replicas."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from serving.calls import CallRequest, ReplicaView, RouteDecision
from serving.routers.candidates import replicas_of


@dataclass(frozen=True, slots=True)
class RoundRobinRouter:
    """Main-loop call j (1-based) goes to replica j mod n of its model, replicas numbered from 0.

    With two replicas calls 1, 2, 3, 4 go to replicas 1, 0, 1, 0. The count is the session's own, not global, so a
    session's placement does not depend on what other sessions do. Auxiliary calls carry the index of their main call
    and so go where it goes.

    Invariants: any n successive main calls of a session visit n different replicas.
    Source: ReFold appendix F.1 ("alternates the replicas call by call, so a call can reuse only what its replica cached
    two calls earlier": per task, hence call j to replica j mod n).
    """

    REVISION: ClassVar[int] = 1

    def choose(self, call: CallRequest, *, home: int, views: Sequence[ReplicaView]) -> RouteDecision:
        """Choose by the index of the main-loop call.

        Raises:
            NoReplicaError: no replica serves `call.model`.
        """
        replicas = replicas_of(call.model, views)
        slot = call.main_index % len(replicas)
        return RouteDecision(
            replicas[slot].replica_id, f"round_robin: call {call.main_index} mod {len(replicas)} = {slot}"
        )

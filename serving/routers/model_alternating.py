"""Model alternation: odd calls to one model, even calls to another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from serving.calls import CallRequest, ReplicaView, RouteDecision
from serving.errors import NoReplicaError
from serving.routers.candidates import models_of, replicas_of


@dataclass(frozen=True, slots=True)
class ModelAlternatingRouter:
    """Odd main-loop calls (1, 3, ...) go to the first model, even ones to the second; inside a model sticky by home.

    Auxiliary calls carry the index of their main call and so go where it goes. The model that the call asks for is
    overruled; the decision's reason names the one that was used.

    Attributes:
        first_model: None for the first model in the order of the replicas.
        second_model: None for the next one after `first_model` in that order.

    Source: ReFold appendix F.2 (odd calls to one model, even calls to the other); which model is first it does not say.
    """

    REVISION: ClassVar[int] = 1

    first_model: str | None = None
    second_model: str | None = None

    def choose(self, call: CallRequest, *, home: int, views: Sequence[ReplicaView]) -> RouteDecision:
        """Choose by the parity of the main-loop call.

        Raises:
            NoReplicaError: fewer than two models are served, or not the ones named.
        """
        first, second = self._models(views)
        is_odd = call.main_index % 2 == 1
        model = first if is_odd else second
        replicas = replicas_of(model, views)
        slot = home % len(replicas)
        parity = "odd" if is_odd else "even"
        reason = (
            f"model_alternating: {parity} call {call.main_index} to {model}, home {home} mod {len(replicas)} = {slot}"
        )
        return RouteDecision(replicas[slot].replica_id, reason)

    def _models(self, views: Sequence[ReplicaView]) -> tuple[str, str]:
        served = models_of(views)
        first = self.first_model or next((model for model in served if model != self.second_model), None)
        second = self.second_model or next((model for model in served if model != first), None)
        if first is None or second is None or first == second:
            names = ", ".join(served) or "nothing"
            raise NoReplicaError(f"router=model_alternating needs replicas of two different models; served: {names}")
        return first, second

"""Routers, by hand-worked placements."""

from __future__ import annotations

import pytest

from serving.calls import CallKind, CallRequest, Prompt, ReplicaView
from serving.errors import NoReplicaError
from serving.interfaces import Router
from serving.routers.model_alternating import ModelAlternatingRouter
from serving.routers.round_robin import RoundRobinRouter
from serving.routers.sticky import StickyRouter

ONE_MODEL = (ReplicaView("a0", "a"), ReplicaView("a1", "a"))
TWO_MODELS = (ReplicaView("a0", "a"), ReplicaView("b0", "b"), ReplicaView("a1", "a"))


def call(
    main_index: int, *, model: str = "a", kind: CallKind = CallKind.main, call_index: int | None = None
) -> CallRequest:
    """A call with the fields that routers read."""
    index = main_index if call_index is None else call_index
    return CallRequest(
        call_id=f"c{index}",
        session_id="s",
        kind=kind,
        call_index=index,
        main_index=main_index,
        model=model,
        messages=(),
        prompt=Prompt((), 0, ""),
        max_completion_tokens=1,
    )


def route(router: Router, indices: range, *, home: int = 0, views: tuple[ReplicaView, ...] = ONE_MODEL) -> list[str]:
    """The replicas of some main calls of one session."""
    return [router.choose(call(index), home=home, views=views).replica_id for index in indices]


def test_sticky_keeps_a_session_on_one_replica() -> None:
    """Session 5 of two replicas stays on replica 5 mod 2 = 1."""
    assert route(StickyRouter(), range(1, 6), home=5) == ["a1"] * 5


def test_sticky_spreads_sessions_in_task_order() -> None:
    """Sessions 0, 1, 2, 3 go to replicas 0, 1, 0, 1."""
    placed = [route(StickyRouter(), range(1, 2), home=home)[0] for home in range(4)]
    assert placed == ["a0", "a1", "a0", "a1"]


def test_sticky_counts_only_replicas_of_the_model_asked_for() -> None:
    """Model a is served by a0 and a1 (b0 between them does not count); session 1 goes to a1."""
    assert route(StickyRouter(), range(1, 3), home=1, views=TWO_MODELS) == ["a1", "a1"]


def test_sticky_gives_its_reason() -> None:
    """The reason names the session's slot and the arithmetic."""
    assert StickyRouter().choose(call(1), home=5, views=ONE_MODEL).reason == "sticky: home 5 mod 2 = 1"


def test_round_robin_is_call_mod_replicas() -> None:
    """Call j goes to replica j mod 2: calls 1, 2, 3, 4 to 1, 0, 1, 0, whatever the session's slot."""
    assert route(RoundRobinRouter(), range(1, 5)) == ["a1", "a0", "a1", "a0"]
    assert route(RoundRobinRouter(), range(1, 5), home=1) == ["a1", "a0", "a1", "a0"]


def test_round_robin_reuses_what_was_cached_two_calls_earlier() -> None:
    """With two replicas the replica of call j saw calls j-2, j-4, ... (ReFold F.1)."""
    placed = route(RoundRobinRouter(), range(1, 21))
    assert all(placed[j] == placed[j - 2] != placed[j - 1] for j in range(2, 20))


def test_model_alternating_sends_odd_calls_to_the_first_model() -> None:
    """Calls 1, 2, 3, 4 of session 0 go to a0, b0, a0, b0; of session 1 to a1, b0, a1, b0 (sticky inside a model)."""
    assert route(ModelAlternatingRouter(), range(1, 5), views=TWO_MODELS) == ["a0", "b0", "a0", "b0"]
    assert route(ModelAlternatingRouter(), range(1, 5), home=1, views=TWO_MODELS) == ["a1", "b0", "a1", "b0"]


@pytest.mark.parametrize(
    ("router", "expected"),
    [
        (ModelAlternatingRouter(first_model="b"), ["b0", "a0"]),
        (ModelAlternatingRouter(second_model="a"), ["b0", "a0"]),
        (ModelAlternatingRouter(first_model="b", second_model="a"), ["b0", "a0"]),
        (ModelAlternatingRouter(first_model="a", second_model="b"), ["a0", "b0"]),
    ],
)
def test_model_alternating_takes_named_models(router: ModelAlternatingRouter, expected: list[str]) -> None:
    """A named model is first or second; the unnamed one is the other."""
    assert route(router, range(1, 3), views=TWO_MODELS) == expected


def test_model_alternating_overrules_the_model_asked_for_and_says_so() -> None:
    """An even call that asks for model a goes to b; the reason names parity and model."""
    decision = ModelAlternatingRouter().choose(call(2, model="a"), home=0, views=TWO_MODELS)
    assert decision.replica_id == "b0"
    assert decision.reason == "model_alternating: even call 2 to b, home 0 mod 1 = 0"


@pytest.mark.parametrize("router", [StickyRouter(), RoundRobinRouter()])
def test_an_unserved_model_is_one_line_that_names_what_is_served(router: Router) -> None:
    """A call for model c names c and the models served."""
    with pytest.raises(NoReplicaError, match="no replica serves the model 'c'; served: a, b"):
        router.choose(call(1, model="c"), home=0, views=TWO_MODELS)


@pytest.mark.parametrize(
    "router", [ModelAlternatingRouter(), ModelAlternatingRouter(first_model="a", second_model="a")]
)
def test_alternation_needs_two_models(router: ModelAlternatingRouter) -> None:
    """One model served, or the same model named twice, is refused."""
    with pytest.raises(NoReplicaError, match="two different models"):
        router.choose(call(1), home=0, views=ONE_MODEL)


def test_alternation_refuses_a_named_model_that_is_not_served() -> None:
    """`second_model=c` without a replica of c fails at the first even call, by name."""
    with pytest.raises(NoReplicaError, match="'c'"):
        ModelAlternatingRouter(second_model="c").choose(call(2), home=0, views=TWO_MODELS)

"""What every router of conf/router must do."""

from __future__ import annotations

import importlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.calls import CallKind, CallRequest, Prompt, ReplicaView, RouteDecision
from serving.interfaces import Router

CONF = Path(__file__).resolve().parent.parent.parent / "conf" / "router"
VIEWS = tuple(
    ReplicaView(f"{model}{number}", model, num_running=number, num_waiting=0, kv_usage=0.1 * number)
    for model in ("a", "b")
    for number in range(3)
)
CALL = CallRequest(
    call_id="c",
    session_id="s",
    kind=CallKind.main,
    call_index=1,
    main_index=1,
    model="a",
    messages=(),
    prompt=Prompt((), 0, ""),
    max_completion_tokens=1,
)


def build(path: Path) -> Router:
    """The router of one conf entry with its YAML's values."""
    values: dict[str, Any] = yaml.safe_load(path.read_text())
    module, _, name = values.pop("_target_").rpartition(".")
    router: Router = getattr(importlib.import_module(module), name)(**values)
    return router


ROUTERS = [pytest.param(build(path), id=path.stem) for path in sorted(CONF.glob("*.yaml"))]


def test_the_issue_s_routers_exist() -> None:
    """Sticky, round-robin and model alternation are there."""
    assert {"sticky", "round_robin", "model_alternating"} <= {path.stem for path in CONF.glob("*.yaml")}


@pytest.mark.parametrize("router", ROUTERS)
@settings(max_examples=50, deadline=None)
@given(main_index=st.integers(1, 500), home=st.integers(0, 100), model=st.sampled_from(["a", "b"]))
def test_choice_is_a_replica_with_a_reason_and_repeats(router: Router, main_index: int, home: int, model: str) -> None:
    """A choice is one of the views, has a one-line reason, and is the same when asked again."""
    call = replace(CALL, main_index=main_index, call_index=main_index, model=model)
    decision = router.choose(call, home=home, views=VIEWS)
    assert isinstance(decision, RouteDecision)
    assert decision.replica_id in {view.replica_id for view in VIEWS}
    assert decision.reason
    assert "\n" not in decision.reason
    assert router.choose(call, home=home, views=VIEWS) == decision


@pytest.mark.parametrize("router", ROUTERS)
@settings(max_examples=50, deadline=None)
@given(main_index=st.integers(1, 500), later=st.integers(0, 50), kind=st.sampled_from(CallKind))
def test_auxiliary_calls_follow_their_main_call(router: Router, main_index: int, later: int, kind: CallKind) -> None:
    """A call of any kind with the same main index goes where its main call goes, whatever its own index."""
    main = router.choose(replace(CALL, main_index=main_index, call_index=main_index), home=1, views=VIEWS)
    auxiliary = replace(CALL, main_index=main_index, call_index=main_index + later, kind=kind, call_id="x")
    assert router.choose(auxiliary, home=1, views=VIEWS).replica_id == main.replica_id


@pytest.mark.parametrize("router", ROUTERS)
def test_every_replica_of_the_model_is_reached(router: Router) -> None:
    """Over many sessions and calls no replica of the model asked for stays idle."""
    placed = {
        router.choose(replace(CALL, main_index=index), home=home, views=VIEWS).replica_id
        for index in range(1, 13)
        for home in range(6)
    }
    assert {"a0", "a1", "a2"} <= placed

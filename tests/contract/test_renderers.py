"""What every renderer must keep, over every `conf/renderer/*.yaml`; what composes gets `base` inside."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from omegaconf import OmegaConf

from orchestrator.build import build, class_parts, component_class, typed_node
from serving.calls import TokenUsage
from tests.unit.workers.renderers.histories import (
    FakeCounter,
    history_of,
    random_turns,
    recorded_runs,
    recorded_turns,
)
from workers.history import History, Part, Rendered, Turn
from workers.interfaces import AuxReply, HarnessTemplate

CONF = Path(__file__).resolve().parents[2] / "conf" / "renderer"
NAMES = sorted(path.stem for path in CONF.glob("*.yaml"))
BUDGET_TOKENS = 16_384


def load(name: str) -> dict[str, Any]:
    """The YAML of a renderer as plain data; what composes gets `base` inside, as Hydra's defaults list gives it."""
    node = dict(OmegaConf.to_container(OmegaConf.load(CONF / f"{name}.yaml")))  # type: ignore[arg-type]
    node.pop("defaults", None)
    if "inner" in class_parts(component_class(node["_target_"])).inner:
        node["inner"] = load("base")
    return node


def make(name: str) -> Any:
    """A started renderer with the settings of its YAML."""
    renderer = build(load(name), "renderer")
    renderer.start(counter=FakeCounter(), budget_tokens=BUDGET_TOKENS, path="renderer")
    return renderer


class Auxiliary:
    """Answers every auxiliary call with the same text."""

    async def __call__(self, **_: Any) -> Any:
        return AuxReply("summary of what happened", TokenUsage(10, None, 10, "client"), "test")


def follow(renderer: Any, turns: list[Turn]) -> tuple[History, list[Rendered]]:
    """The session loop around the renderer: prompts c_0..c_t and the history with its memos."""

    async def run() -> tuple[History, list[Rendered]]:
        history = history_of()
        prompts = [renderer.render(history)]
        for turn in turns:
            history.append(turn)
            history.extend(await renderer.observe(history, prompts[-1], Auxiliary()))
            prompts.append(renderer.render(history))
        return history, prompts

    return asyncio.run(run())


def check_pure(name: str, turns: list[Turn]) -> None:
    """Render twice, render fresh, and leave the history alone."""
    renderer = make(name)
    history, prompts = follow(renderer, turns)
    before = repr((history.opening, history.turns, history.all_memos))
    assert renderer.render(history) == prompts[-1]
    assert make(name).render(history) == prompts[-1]
    assert repr((history.opening, history.turns, history.all_memos)) == before


@pytest.mark.parametrize("name", NAMES)
def test_yaml_and_class_agree(name: str) -> None:
    """YAML holds every field with its default, the class is a frozen dataclass with a Source line and a REVISION."""
    cls = component_class(load(name)["_target_"])
    given_keys = {key for key in load(name) if key not in ("_target_", "inner")}
    assert given_keys == set(class_parts(cls).settings)
    assert cls.__dataclass_params__.frozen
    assert isinstance(cls.REVISION, int)
    assert "Source:" in (cls.__doc__ or "")
    assert typed_node(load(name)).settings == typed_node({"_target_": load(name)["_target_"]}).settings


@pytest.mark.parametrize("name", NAMES)
@given(turns=random_turns(max_turns=16))
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_render_is_pure(name: str, turns: list[Turn]) -> None:
    """The same history renders the same, twice and in a fresh object, and is never changed."""
    check_pure(name, turns)


@pytest.mark.parametrize("name", NAMES)
def test_render_is_pure_on_recorded_runs(name: str) -> None:
    """The same on recorded runs: the longest and every tenth other, each reply naming the step before it STALE."""
    runs = recorded_runs()
    if not runs:
        pytest.skip("recorded runs are not here (../shared/trajectories)")
    for run in [max(runs, key=lambda run: len(run.steps)), *runs[::10]]:
        check_pure(name, recorded_turns(run, lambda label: (label - 1,) if label % 3 else ()))


@pytest.mark.parametrize("name", NAMES)
@given(turns=random_turns(max_turns=14))
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_segments_are_in_order_and_name_their_turns(name: str, turns: list[Turn]) -> None:
    """The opening first, then turns in order, each range inside the history; messages are the segments' messages."""
    history, prompts = follow(make(name), turns)
    rendered = prompts[-1]
    assert rendered.segments[0].part is Part.opening
    starts = [segment.first_turn for segment in rendered.segments if segment.part in (Part.agent, Part.observation)]
    assert starts == sorted(starts)
    assert all(0 <= part.first_turn <= part.last_turn <= len(history) for part in rendered.segments)
    assert len(rendered.messages) == sum(len(segment.messages) for segment in rendered.segments)


@pytest.mark.parametrize("name", NAMES)
@given(turns=random_turns(max_turns=14))
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_the_newest_turn_is_always_shown(name: str, turns: list[Turn]) -> None:
    """No renderer hides what just happened; prune, which cuts an output when it arrives, keeps its frame and lines."""
    if not turns:
        return
    _, prompts = follow(make(name), turns)
    newest = [segment for segment in prompts[-1].segments if segment.last_turn == len(turns)]
    text = "\n".join(message.content for segment in newest for message in segment.messages)
    expected = turns[-1].observations[-1]
    if name == "prune" and expected.shown not in text:
        assert text.startswith(turns[-1].assistant.content + "\n" + expected.head)
        assert text.endswith(expected.tail)
        assert "(filtered " in text
        return
    assert expected.shown in text


@pytest.mark.parametrize("name", NAMES)
def test_prompt_layer_keeps_the_task(name: str) -> None:
    """A layer adds to the harness's prompt and never drops the task; applied twice to equal templates it is equal."""
    template = HarnessTemplate("You are an agent.", "Fix bug 17.\n\n1. Think.\n2. Act.", "1. Think.")
    layered = make(name).prompt_layer(template)
    assert "Fix bug 17." in layered.task
    assert "2. Act." in layered.task
    assert make(name).prompt_layer(template) == layered

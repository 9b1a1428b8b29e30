"""Nodes to objects: types and keys are checked, classes come from our packages only, `inner` is built recursively."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import InitVar, dataclass, field
from enum import Enum
from typing import Any

import pytest

from orchestrator.build import as_declared, build, class_parts, typed_node
from orchestrator.errors import ConfigError
from serving.engines.simulated import SimulatedEngine
from workers.renderers.mask import Mask

MASK = "workers.renderers.mask.Mask"


def test_builds_with_declared_types_and_defaults() -> None:
    """A node gives its settings, the class gives the rest; 1 for a float setting arrives as 1.0."""
    assert build({"_target_": MASK, "keep_recent": 3}) == Mask(keep_recent=3, polling=1)
    engine = build({"_target_": "serving.engines.simulated.SimulatedEngine", "watermark": 1})
    assert isinstance(engine, SimulatedEngine)
    assert type(engine.watermark) is float


@pytest.mark.parametrize(
    ("node", "message"),
    [
        ({"_target_": MASK, "keep_recnt": 3}, "renderer: unknown key 'keep_recnt'; did you mean 'keep_recent'"),
        ({"_target_": MASK, "keep_recent": "many"}, "renderer: keep_recent: Value 'many' of type 'str' could not be"),
        (
            {"_target_": MASK, "keep_recent": None},
            "renderer: keep_recent: Incompatible value 'None' for field of type 'int'",
        ),
        ({"_target_": MASK, "keep_recent": -1}, "give keep_recent >= 0"),
        ({"_target_": "os.system", "x": 1}, "renderer: _target_ 'os.system' is outside our packages"),
        ({"_target_": "workersX.renderers.mask.Mask"}, "is outside our packages"),
        ({"_target_": "workers.renderers.musk.Mask"}, "there is no module 'workers.renderers.musk'"),
        ({"_target_": "workers.renderers.mask.placeholder"}, "is not a component class"),
        ({"_target_": "workers.renderers.mask.Musk"}, "is not a component class"),
        ({"keep_recent": 3}, "no _target_ names the component's class"),
        ({"_target_": MASK, "polling": {"_target_": "os.system"}}, r"renderer\.polling: takes no component of its own"),
        ({"_target_": MASK, "polling": {"x": [{"_target_": MASK}]}}, "takes no component of its own"),
    ],
)
def test_mistakes_are_one_line(node: dict[str, Any], message: str) -> None:
    """Each mistake names the key, the value or the class, and what exists."""
    with pytest.raises(ConfigError, match=message) as caught:
        build(node, "renderer")
    assert "\n" not in str(caught.value)


class Colour(Enum):
    red = 1
    blue = 2


@dataclass(frozen=True)
class Plain:
    """Settings of every kind that components use, and a cache of its own."""

    names: tuple[str, ...] = ("a",)
    pair: tuple[float, ...] = (1.0, 2.0)
    colour: Colour = Colour.red
    limit: int | None = None
    table: dict[str, float] = field(default_factory=dict)
    cache: set[int] = field(default_factory=set, init=False)


@dataclass(frozen=True)
class Outer:
    """Composes another component."""

    k: int = 5
    inner: InitVar[object | None] = None

    def __post_init__(self, inner: object | None) -> None:
        object.__setattr__(self, "made_inner", inner)


@pytest.fixture
def component(monkeypatch: pytest.MonkeyPatch) -> Callable[[type[Any]], str]:
    """Put a test's class into one of our modules, so that a node may name it."""

    def put(cls: type[Any]) -> str:
        monkeypatch.setattr("workers.renderers.mask." + cls.__name__, cls, raising=False)
        return f"workers.renderers.mask.{cls.__name__}"

    return put


def test_containers_and_enums(component: Callable[[type[Any]], str]) -> None:
    """Lists become the declared tuples, an enum is chosen by its member's name, computed fields are no settings."""
    target = component(Plain)
    node = {"_target_": target, "names": ["x", "y"], "pair": [3, 4], "colour": "blue", "limit": 7, "table": {"p": 1}}
    made = build(node)
    assert (made.names, made.pair, made.colour, made.limit) == (("x", "y"), (3.0, 4.0), Colour.blue, 7)
    assert made.table == {"p": 1.0}
    with pytest.raises(ConfigError, match="Invalid value 'green', expected one of"):
        build({"_target_": target, "colour": "green"})
    with pytest.raises(ConfigError, match="unknown key 'cache'"):
        build({"_target_": target, "cache": []})


def test_inner_components_are_built_recursively(component: Callable[[type[Any]], str]) -> None:
    """An InitVar takes a component, also two levels down; its mistakes name the path; null means none."""
    target = component(Outer)
    assert class_parts(Outer) == (("k",), ("inner",))
    made = build({"_target_": target, "inner": {"_target_": target, "k": 1, "inner": {"_target_": MASK}}})
    assert (made.k, made.made_inner.k, made.made_inner.made_inner) == (5, 1, Mask())
    assert build({"_target_": target, "inner": None}).made_inner is None
    with pytest.raises(ConfigError, match=re.escape("renderer.inner: unknown key 'keep'")):
        build({"_target_": target, "inner": {"_target_": MASK, "keep": 1}}, "renderer")
    with pytest.raises(ConfigError, match=re.escape("renderer.inner: _target_ 'os.system' is outside")):
        build({"_target_": target, "inner": {"_target_": "os.system"}}, "renderer")


def test_kind_is_the_modules_name() -> None:
    """The name used in tables is the file's name, which is the option's name in conf/."""
    assert typed_node({"_target_": MASK}).kind == "mask"


def test_as_declared_leaves_unions_alone() -> None:
    """`int | str` is not ours to decide."""
    assert as_declared(int | str, "x") == "x"

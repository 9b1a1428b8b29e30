"""From a configuration node to a component object: types checked, unknown keys refused, `inner` built recursively.

A node is a mapping with `_target_`, the dotted name of a frozen dataclass in one of our packages, and its settings.
Settings are merged onto the class's structured form, so that a wrong type or a misspelt key is one line. A nested node
with a `_target_` of its own is allowed only where the class declares an `InitVar` of that name (composition, as in
`compact` over `refold`). Hydra's own `instantiate` is not used: it checks no types and runs any callable.
"""

from __future__ import annotations

import importlib
import inspect
import types
import typing
from collections.abc import Mapping
from dataclasses import field, fields, is_dataclass, make_dataclass
from enum import Enum
from typing import Any, NamedTuple

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from orchestrator.errors import ComponentBug, ConfigError, unknown
from orchestrator.home import OUR_PACKAGES
from serving.errors import ServingError
from workers.errors import ConfigurationError

_META_KEYS = frozenset({"_target_"})


class TypedNode(NamedTuple):
    """A checked node: its class, its settings with the declared types and defaults, and its inner nodes."""

    cls: type[Any]
    settings: dict[str, Any]
    inner: dict[str, TypedNode]

    @property
    def kind(self) -> str:
        """The module's own name, which is also the option's name in conf/: `refold`, `sticky`, ..."""
        return self.cls.__module__.rpartition(".")[2]


def build(node: Mapping[str, Any], where: str = "") -> Any:
    """Make the object a node describes.

    Args:
        where: the node's key, for messages.
    Raises:
        ConfigError: unknown class or key, wrong type, a value the class refuses.
    """
    return make(typed_node(node, where), where)


def make(node: TypedNode, where: str = "") -> Any:
    """Make the object of a checked node."""
    inner = {name: make(child, f"{where}.{name}") for name, child in node.inner.items()}
    try:
        return node.cls(**node.settings, **inner)
    except (ValueError, ServingError, ConfigurationError) as exc:  # a class refuses a value in its __post_init__
        raise ConfigError(f"{_at(where)}{exc}") from exc


def typed_node(node: Mapping[str, Any], where: str = "") -> TypedNode:
    """Check a node and give its settings the declared types.

    Raises:
        ConfigError: see `build`.
    """
    plain = to_plain(node)
    cls = component_class(plain.get("_target_"), where)
    parts = class_parts(cls)
    given = {str(key): value for key, value in plain.items() if key not in _META_KEYS}
    inner = {
        name: typed_node(given.pop(name), _join(where, name)) for name in parts.inner if given.get(name) is not None
    }
    for name in parts.inner:
        given.pop(name, None)
    for key, value in given.items():
        if key not in parts.settings:
            raise ConfigError(f"{_at(where)}{unknown('key', key, (*parts.settings, *parts.inner))}")
        if _holds_target(value):
            raise ConfigError(f"{_at(_join(where, key))}takes no component of its own (a nested _target_)")
    return TypedNode(cls, _typed_settings(cls, given, where), inner)


def to_plain(node: Any) -> dict[str, Any]:
    """A node as plain containers, interpolations resolved."""
    if isinstance(node, DictConfig):
        node = OmegaConf.to_container(node, resolve=True)
    if not isinstance(node, Mapping):
        raise ConfigError(f"expected a component (a mapping with _target_), got {node!r}")
    return dict(node)


def component_class(target: Any, where: str = "") -> type[Any]:
    """The class a `_target_` names; only dataclasses in our own packages.

    Raises:
        ConfigError: another package, no such module or class, a package it needs is not installed.
    """
    if not isinstance(target, str) or not target:
        raise ConfigError(f"{_at(where)}no _target_ names the component's class")
    module_name, _, class_name = target.rpartition(".")
    if module_name.split(".")[0] not in OUR_PACKAGES:
        raise ConfigError(f"{_at(where)}_target_ {target!r} is outside our packages ({', '.join(OUR_PACKAGES)})")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as exc:
        missing = exc.name or ""
        if module_name.startswith(missing):
            raise ConfigError(f"{_at(where)}_target_ {target!r}: there is no module {missing!r}") from exc
        raise ConfigError(f"{_at(where)}{class_name} needs the package {missing!r}, which is not installed") from exc
    cls = getattr(module, class_name, None)
    if not (isinstance(cls, type) and is_dataclass(cls)):
        raise ConfigError(f"{_at(where)}_target_ {target!r} is not a component class of {module_name}")
    return cls


class ClassParts(NamedTuple):
    """Constructor parameters of a component class: its dataclass fields and its InitVars, in order."""

    settings: tuple[str, ...]
    inner: tuple[str, ...]


def class_parts(cls: type[Any]) -> ClassParts:
    """Settings are the class's own fields; InitVars (parameters that are no fields) take inner components."""
    names = [f.name for f in fields(cls) if f.init]
    parameters = [name for name in inspect.signature(cls).parameters if name not in names]
    return ClassParts(tuple(names), tuple(parameters))


def _typed_settings(cls: type[Any], given: Mapping[str, Any], where: str) -> dict[str, Any]:
    try:
        schema = _schema(cls)
    except (OmegaConfBaseException, TypeError, ValueError) as exc:
        raise ComponentBug(f"{cls.__module__}.{cls.__qualname__} cannot be typed: {_first_line(exc)}") from exc
    try:
        merged = OmegaConf.merge(schema, dict(given))
    except OmegaConfBaseException as exc:
        raise ConfigError(f"{_at(where)}{explain(exc)}") from exc
    names = class_parts(cls).settings
    absent = [name for name in names if OmegaConf.is_missing(merged, name)]
    if absent:
        raise ConfigError(
            f"{_at(_join(where, absent[0]))}has no default, give it a value: {_join(where, absent[0])}=..."
        )
    values = OmegaConf.to_container(merged, resolve=True)
    assert isinstance(values, dict)
    hints = _hints(cls)
    return {name: as_declared(hints[name], values[name]) for name in names}


_SCHEMAS: dict[type[Any], Any] = {}  # class -> structured config; making one takes a millisecond


def _schema(cls: type[Any]) -> Any:
    """The class's settings alone as a structured config; fields it computes itself (`init=False`) may have any type."""
    if cls not in _SCHEMAS:
        hints = _hints(cls)
        copied: list[Any] = [
            (f.name, hints[f.name], field(default=f.default, default_factory=f.default_factory))
            for f in fields(cls)
            if f.init
        ]
        _SCHEMAS[cls] = OmegaConf.structured(make_dataclass(cls.__name__, copied, kw_only=True))
    return _SCHEMAS[cls]


def _hints(cls: type[Any]) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def as_declared(hint: Any, value: Any) -> Any:
    """OmegaConf's containers to the declared type: tuples for lists, nested dataclasses, frozensets."""
    if value is None or isinstance(value, Enum):
        return value
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        rest = [option for option in arguments if option is not type(None)]
        return as_declared(rest[0], value) if len(rest) == 1 else value
    if origin is tuple:
        item = arguments[:1] * len(value) if arguments[1:] == (Ellipsis,) else arguments
        return tuple(as_declared(h, v) for h, v in zip(item, value, strict=True))
    if origin is list:
        return [as_declared(arguments[0], v) for v in value]
    if origin is dict:
        return {k: as_declared(arguments[1], v) for k, v in value.items()}
    if isinstance(hint, type) and is_dataclass(hint) and isinstance(value, Mapping):
        hints = typing.get_type_hints(hint)
        return hint(**{k: as_declared(hints[k], v) for k, v in value.items()})
    return value


def explain(exc: Exception) -> str:
    """OmegaConf's message as one line with the key first."""
    key = getattr(exc, "full_key", None)
    text = _first_line(exc)
    return f"{key}: {text}" if key else text


def _first_line(exc: Exception) -> str:
    return (str(exc) or type(exc).__name__).strip().splitlines()[0]


def _holds_target(value: Any) -> bool:
    if isinstance(value, Mapping):
        return "_target_" in value or any(_holds_target(child) for child in value.values())
    return isinstance(value, list) and any(_holds_target(child) for child in value)


def _join(where: str, key: str) -> str:
    return f"{where}.{key}" if where else key


def _at(where: str) -> str:
    return f"{where}: " if where else ""

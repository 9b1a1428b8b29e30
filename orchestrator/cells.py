"""A cell's identity: the specification made of its typed components, and the key that is a hash of it.

Everything that can change a result is in the specification: the settings of every component with their declared types
and defaults, the `REVISION` of its class, the root settings, and the digests of the tasks. Nothing else is: no path,
address, database, price, deadline or threshold. A component class lists its own exceptions in `PROVENANCE:
ClassVar[frozenset[str]]`.

The key of a stored specification is the key of the plan (`key_of_spec`), so an old database can be checked at any time.
Endpoint ports, job ids and random values in a resume key have made other harnesses run everything again.
"""

from __future__ import annotations

import hashlib
import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any, NamedTuple

from orchestrator.build import TypedNode, class_parts, typed_node
from orchestrator.errors import ComponentBug
from orchestrator.schema import (
    COMPONENT_GROUPS,
    EXTRA_NODES,
    IDENTITY_FIELDS,
    PROVENANCE_FIELDS,
    RootConfig,
)

SPEC_VERSION = 1
# Where something lies or is reached never decides a result, in whatever component: what is found there does.
_ALWAYS_PROVENANCE = frozenset({"path", "url", "host", "port", "address"})
# How an executor fills its cluster decides nothing either.
_EXECUTOR_PROVENANCE = frozenset({"parallel", "sessions_per_actor"})


class TypedConfig(NamedTuple):
    """A configuration with its component nodes checked. `components`: node name -> typed node."""

    config: Mapping[str, Any]
    components: Mapping[str, TypedNode]


def typed_config(config: Mapping[str, Any]) -> TypedConfig:
    """Check every component node of a composed configuration.

    Raises:
        ConfigError: a node that does not build.
    """
    names = [*COMPONENT_GROUPS, *(name for name in EXTRA_NODES if config.get(name) is not None)]
    return TypedConfig(config, {name: typed_node(config[name], name) for name in names})


def spec_of(typed: TypedConfig, *, task_digests: Sequence[str], budget_tokens: int) -> dict[str, Any]:
    """The identity document of a cell.

    Args:
        budget_tokens: the effective B, so that "the full window" and its number are one experiment.
    """
    settings = {name: typed.config[name] for name in sorted(IDENTITY_FIELDS)}
    settings["context_budget_tokens"] = budget_tokens
    spec = {
        "version": SPEC_VERSION,
        "settings": settings,
        "components": {name: _component(node, name) for name, node in typed.components.items()},
        "tasks": list(task_digests),
    }
    plain = json.loads(canonical_json(spec))
    assert isinstance(plain, dict)
    return plain


def key_of_spec(spec: Mapping[str, Any]) -> str:
    """The cell key of a specification, planned or read back from a database."""
    digest = hashlib.sha256(canonical_json(spec).encode()).hexdigest()
    return f"v{spec['version']}-{digest[:32]}"


def without_revisions(spec: Mapping[str, Any]) -> str:
    """The specification as text but for the components' revisions: equal for a cell and its outdated versions."""

    def strip(node: Any) -> Any:
        if isinstance(node, Mapping):
            return {key: strip(value) for key, value in node.items() if key != "revision"}
        return node

    return canonical_json({**spec, "components": strip(spec["components"])})


def revisions_of(spec: Mapping[str, Any]) -> dict[str, int]:
    """Component path -> REVISION, inner components as `renderer.inner`."""
    found: dict[str, int] = {}

    def visit(path: str, node: Mapping[str, Any]) -> None:
        if node.get("revision") is not None:
            found[path] = node["revision"]
        for name, child in node.get("inner", {}).items():
            visit(f"{path}.{name}", child)

    for name, node in spec["components"].items():
        visit(name, node)
    return found


def canonical_json(value: Any) -> str:
    """JSON with sorted keys, no spaces, ASCII; 0.50 is 0.5, -0.0 is 0.0, enums are their member's name.

    Raises:
        ComponentBug: NaN, infinities and types that have no canonical form.
    """
    return json.dumps(_canonical(value), sort_keys=True, separators=(",", ":"), allow_nan=False)


def _canonical(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.name
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ComponentBug(f"{value} has no place in a cell's identity")
        return value + 0.0
    if isinstance(value, Mapping):
        return {str(key): _canonical(child) for key, child in value.items()}
    if isinstance(value, (list, tuple)):
        return [_canonical(child) for child in value]
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: _canonical(getattr(value, f.name)) for f in fields(value)}
    raise ComponentBug(f"a {type(value).__name__} has no canonical form; make the setting plain data")


def _component(node: TypedNode, group: str) -> dict[str, Any]:
    provenance = provenance_of(node.cls, group)
    entry: dict[str, Any] = {
        "type": f"{node.kind}.{node.cls.__qualname__}",
        "settings": {name: value for name, value in node.settings.items() if name not in provenance},
    }
    revision = revision_of(node.cls)
    if revision is not None:
        entry["revision"] = revision
    if node.inner:
        entry["inner"] = {name: _component(child, group) for name, child in node.inner.items()}
    return entry


def revision_of(cls: type[Any]) -> int | None:
    """The `REVISION` of a class, or of its module; None for plain data (a model's sizes)."""
    found = getattr(cls, "REVISION", None)
    if found is None:
        found = getattr(sys.modules[cls.__module__], "REVISION", None)
    return None if found is None else int(found)


def provenance_of(cls: type[Any], group: str) -> frozenset[str]:
    """The settings of a class that are not identity.

    Raises:
        ComponentBug: PROVENANCE names a setting the class does not have.
    """
    declared: frozenset[str] = frozenset(getattr(cls, "PROVENANCE", ()))
    settings = frozenset(class_parts(cls).settings)
    if not declared <= settings:
        raise ComponentBug(f"{cls.__qualname__}.PROVENANCE names {sorted(declared - settings)}, which are no settings")
    fixed = _ALWAYS_PROVENANCE | (_EXECUTOR_PROVENANCE if group == "executor" else frozenset())
    return declared | (fixed & settings)


def classify_root() -> Iterator[tuple[str, str, str]]:
    """(`root`, field, class) of every root field.

    Raises:
        ComponentBug: a field that is in neither set of `orchestrator.schema`, or in both.
    """
    for field in fields(RootConfig):
        if field.name in COMPONENT_GROUPS or field.name in EXTRA_NODES:
            yield "root", field.name, "component"
        elif (field.name in IDENTITY_FIELDS) == (field.name in PROVENANCE_FIELDS):
            raise ComponentBug(
                f"root field {field.name!r} must be in IDENTITY_FIELDS or in PROVENANCE_FIELDS (schema.py)"
            )
        else:
            yield "root", field.name, "identity" if field.name in IDENTITY_FIELDS else "provenance"


def classify(cls: type[Any], group: str, option: str) -> Iterator[tuple[str, str, str]]:
    """(`group/option`, field, class) of every setting of a component class."""
    provenance = provenance_of(cls, group)
    parts = class_parts(cls)
    for name in parts.settings:
        yield f"{group}/{option}", name, "provenance" if name in provenance else "identity"
    for name in parts.inner:
        yield f"{group}/{option}", name, "component"

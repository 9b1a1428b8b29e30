"""A renderer by name and settings, for agents that are configured outside this project.

`"refold"`, `{"name": "refold", "k": 5}`, `{"name": "compact", "inner": {"name": "refold"}}` or a renderer object. Names
are the files of `conf/renderer/`; settings are checked against the renderer's own fields, as in our studies.
"""

from __future__ import annotations

import importlib
import inspect
import typing
from collections.abc import Mapping
from dataclasses import field, fields, make_dataclass
from pathlib import Path
from typing import Any

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

import workers
from workers.errors import ConfigurationError
from workers.interfaces import Renderer
from workers.renderers.common import Quiet
from workers.renderers.composing import Composed

CONF = Path(workers.__file__).parent.parent / "conf" / "renderer"
Choice = Renderer | str | Mapping[str, Any]


def renderer_of(choice: Choice) -> Renderer:
    """A new renderer for a name or a mapping with `name`; an object is returned as it is.

    Raises:
        ConfigurationError: unknown name or setting, wrong type, a value the renderer refuses.
    """
    if isinstance(choice, str):
        return _named(choice, {})
    if isinstance(choice, Mapping):
        settings = {str(key): value for key, value in choice.items()}
        name: object = settings.pop("name", None)
        if not isinstance(name, str):
            raise ConfigurationError(f"renderer {dict(choice)!r} has no name; names: {', '.join(names())}")
        return _named(name, settings)
    return choice


def names() -> list[str]:
    """All renderers."""
    return sorted(path.stem for path in CONF.glob("*.yaml"))


def answers_commands(renderer: Renderer) -> bool:
    """Whether a renderer, or one inside it, answers commands in the environment's place (restore, recall, guard)."""
    own: object = type(renderer).intercept
    if isinstance(renderer, Composed) and own is Composed.intercept:
        return answers_commands(renderer._inner)
    return own is not Quiet.intercept


def _named(name: str, settings: dict[str, Any]) -> Renderer:
    if name not in names():
        raise ConfigurationError(f"renderer {name!r}: there is no such renderer; names: {', '.join(names())}")
    node = yaml.safe_load((CONF / f"{name}.yaml").read_text(encoding="utf-8"))
    module, _, class_name = node["_target_"].rpartition(".")
    cls = getattr(importlib.import_module(module), class_name)
    inner: dict[str, Any] = {}
    if "inner" in inspect.signature(cls).parameters:
        inner["inner"] = renderer_of(settings.pop("inner", None) or _default_inner(node))
    made: Renderer = cls(**_typed(name, cls, settings), **inner)
    return made


def _default_inner(node: Mapping[str, Any]) -> str:
    """The inner renderer that the YAML's defaults list names."""
    for entry in node.get("defaults", []):
        if isinstance(entry, Mapping):
            for key, value in entry.items():
                if str(key).endswith("renderer@inner"):
                    return str(value)
    return "base"


def _typed(name: str, cls: type[Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """The given settings with their declared types."""
    hints = typing.get_type_hints(cls)
    declared = [f for f in fields(cls) if f.init]
    known = [f.name for f in declared]
    for key in settings:
        if key not in known:
            raise ConfigurationError(f"renderer {name} has no setting {key!r}; settings: {', '.join(known)}")
    copied: list[Any] = [
        (f.name, hints[f.name], field(default=f.default, default_factory=f.default_factory)) for f in declared
    ]
    try:
        merged = OmegaConf.merge(OmegaConf.structured(make_dataclass(name, copied, kw_only=True)), dict(settings))
    except OmegaConfBaseException as exc:
        where = getattr(exc, "full_key", None)
        raise ConfigurationError(f"renderer {name}, {where}: {str(exc).splitlines()[0]}") from exc
    values = OmegaConf.to_container(merged)
    assert isinstance(values, dict)
    return {str(key): values[key] for key in settings}

"""Overrides in Hydra's grammar, read once: `num_workers=16`, `renderer=refold`, `renderer@renderer.inner=refold`.

An override chooses a group's option or sets a value; which one is decided by the folders in conf/, so that a misspelt
name is one line that lists what exists. Adding and deleting keys is refused: everything that can be set has a default.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import OverrideType
from hydra.errors import HydraException

from orchestrator.errors import ConfigError, unknown


@dataclass(frozen=True, slots=True)
class Override:
    """One override.

    Attributes:
        key: dotted key or group; `group@package` for an option placed elsewhere.
        is_group: whether it chooses an option of a group.
    """

    key: str
    value: Any
    is_group: bool

    @property
    def text(self) -> str:
        """As it is written on a command line."""
        return f"{self.key}={show(self.value)}"


def show(value: Any) -> str:
    """A value as it is written in an override."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(show(item) for item in value) + "]"
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{show(item)}" for key, item in value.items()) + "}"
    return str(value)


class Vocabulary:
    """What can be named: the groups of a conf folder and their options."""

    def __init__(self, conf: Path) -> None:
        self.conf = conf
        self._parser = OverridesParser.create()

    def groups(self) -> dict[str, tuple[str, ...]]:
        """Group -> its options, both in alphabetical order."""
        folders = sorted(path for path in self.conf.iterdir() if path.is_dir() and not path.name.startswith((".", "_")))
        return {folder.name: tuple(sorted(path.stem for path in folder.glob("*.yaml"))) for folder in folders}

    def is_group(self, key: str) -> bool:
        """Whether a key (without `@package`) is a group."""
        group = key.partition("@")[0]
        return bool(group) and "." not in group and (self.conf / group).is_dir()

    def parse(self, text: str) -> Override:
        """Read one override.

        Raises:
            ConfigError: not an override, a Hydra sweep, `+` or `~`, or an option that does not exist.
        """
        try:
            parsed = self._parser.parse_override(text)
        except HydraException as exc:
            raise ConfigError(f"{text!r} is not an override; write key=value, for example num_workers=16") from exc
        if parsed.is_sweep_override():
            raise ConfigError(f"{text!r}: several values are written as a list, {parsed.key_or_group}=[...]")
        key = parsed.key_or_group + (f"@{parsed.package}" if parsed.package else "")
        if parsed.type is OverrideType.DEL:
            raise ConfigError(f"{text!r}: a key cannot be deleted; set it to null or to another value")
        if parsed.type is not OverrideType.CHANGE and key != "sweep":
            raise ConfigError(f"{text!r}: keys cannot be added, every key has a default; write {key}=... without +")
        return self.override(key, parsed.value())

    def override(self, key: str, value: Any) -> Override:
        """An override from its parts; checks the option of a group.

        Raises:
            ConfigError: the option does not exist.
        """
        if key == "sweep" or not self.is_group(key):
            return Override(key, value, is_group=False)
        group = key.partition("@")[0]
        options = self.groups()[group]
        for option in value if isinstance(value, list) else [value]:
            if not (option is None and "@" in key) and str(option) not in options:
                raise ConfigError(unknown(group, str(option), options))
        return Override(key, value, is_group=True)


def last_wins(overrides: Iterable[Override]) -> tuple[Override, ...]:
    """One override per key: a later one takes an earlier one's place."""
    by_key: dict[str, Override] = {}
    for override in overrides:
        by_key.pop(override.key, None)
        by_key[override.key] = override
    return tuple(by_key.values())


def refuse_repeats(overrides: Iterable[Override]) -> None:
    """Refuse a key that one command line names twice."""
    seen: dict[str, Override] = {}
    for override in overrides:
        if override.key in seen:
            raise ConfigError(f"{override.key} is given twice: {seen[override.key].text} and {override.text}")
        seen[override.key] = override

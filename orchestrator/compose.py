"""From overrides to one cell's configuration: Hydra composes the groups, we set the scalars and check the types.

Composing costs about 76 ms, so it is done once per distinct choice of groups; values are set on a copy. Hydra's own
messages list nothing that exists, hence the checks here. Hydra writes no output and does not change the working
directory.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

from orchestrator.build import explain
from orchestrator.errors import ConfigError, unknown
from orchestrator.home import CONF
from orchestrator.overrides import Override, Vocabulary, last_wins
from orchestrator.schema import RootConfig


class Composer:
    """Composes configurations from one conf folder."""

    def __init__(self, conf: Path = CONF) -> None:
        self.vocabulary = Vocabulary(conf)
        self._conf = conf
        self._composed: dict[tuple[str, ...], DictConfig] = {}

    def compose(self, overrides: Sequence[Override]) -> dict[str, Any]:
        """One cell's configuration as plain containers: typed scalars, group nodes as in conf/ with values set.

        Raises:
            ConfigError: an option that fits nowhere, a misspelt key, a wrong type, a value without default.
        """
        effective = last_wins(overrides)
        choices = tuple(o.text for o in effective if o.is_group and o.value is not None)
        config = copy.deepcopy(self._groups(choices))
        for override in effective:
            if not override.is_group:
                _set(config, override)
        return _typed(config)

    def _groups(self, choices: tuple[str, ...]) -> DictConfig:
        if choices not in self._composed:
            self._composed[choices] = self._hydra_compose(choices)
        return self._composed[choices]

    def _hydra_compose(self, choices: tuple[str, ...]) -> DictConfig:
        GlobalHydra.instance().clear()
        try:
            with initialize_config_dir(config_dir=str(self._conf), version_base="1.3", job_name="convoy"):
                return compose(config_name="config", overrides=list(choices))
        except HydraException as exc:
            raise ConfigError(_hydra_in_one_line(exc, choices)) from exc
        except OmegaConfBaseException as exc:
            raise ConfigError(explain(exc)) from exc


def _hydra_in_one_line(exc: HydraException, choices: tuple[str, ...]) -> str:
    text = str(exc).strip()
    for choice in choices:
        key = choice.partition("=")[0]
        group, _, package = key.partition("@")
        if package and f"'{key}'" in text:
            return f"{choice}: nothing at {package!r} takes a {group} in this configuration"
    return " ".join(text.splitlines()[:2])


def _set(config: DictConfig, override: Override) -> None:
    """Set an existing key; every step of the path must exist."""
    node: Any = config
    steps = override.key.split(".")
    for depth, step in enumerate(steps):
        here = ".".join(steps[:depth])
        if not isinstance(node, DictConfig):
            raise ConfigError(f"{override.text}: {here!r} holds no keys")
        if step not in node.keys():  # noqa: SIM118 - `in node` says no to a mandatory value (???)
            known = [str(key) for key in node if key != "_target_"]
            where = f"{here}: " if here else ""
            raise ConfigError(f"{where}{unknown('key', step, known)}")
        node = None if OmegaConf.is_missing(node, step) else node[step]
    if isinstance(node, DictConfig) and ("_target_" in node or not isinstance(override.value, dict)):
        keys = ", ".join(str(key) for key in node if key != "_target_")
        raise ConfigError(
            f"{override.text}: {override.key} holds keys; set one of them, {override.key}.<key>=... ({keys})"
        )
    try:
        OmegaConf.update(config, override.key, override.value, merge=True)
    except OmegaConfBaseException as exc:
        raise ConfigError(f"{override.text}: {explain(exc)}") from exc


def _typed(config: DictConfig) -> dict[str, Any]:
    OmegaConf.set_struct(config, False)
    try:
        merged = OmegaConf.merge(OmegaConf.structured(RootConfig), config)
        plain = OmegaConf.to_container(merged, resolve=True, throw_on_missing=True)
    except MissingMandatoryValue as exc:
        raise ConfigError(f"{exc.full_key} has no default, give it a value: {exc.full_key}=...") from exc
    except OmegaConfBaseException as exc:
        raise ConfigError(explain(exc)) from exc
    assert isinstance(plain, dict)
    _refuse_non_finite(plain, "")
    return {str(key): value for key, value in plain.items()}


def _refuse_non_finite(value: Any, where: str) -> None:
    """NaN and infinities have no place in a key or a database."""
    if isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(f"{where}={value}: give a finite number")
    if isinstance(value, (dict, list)):
        for key, child in value.items() if isinstance(value, dict) else enumerate(value):
            _refuse_non_finite(child, f"{where}.{key}" if where else str(key))

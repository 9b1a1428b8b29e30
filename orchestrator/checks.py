"""What is refused at plan time: settings that no attempt could run with, or that would measure something else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from orchestrator.cells import TypedConfig
from orchestrator.errors import ConfigError, SweepError
from orchestrator.overrides import show
from workers.interfaces import Task

# One command has one database, one executor and one way to run; an axis over them has no meaning.
_SHARED = ("cluster", "db", "executor", "lease_s", "rerun", "dry_run")


def check_cell(typed: TypedConfig, made: Mapping[str, Any], *, num_tasks: int) -> None:
    """Refuse a cell that cannot be run as it is asked for.

    Args:
        made: component name -> object, for those the plan makes.
    Raises:
        ConfigError: one line with the value, the limit and the remedy.
    """
    config = typed.config
    for key, least in (
        ("num_workers", 1),
        ("replicas_per_model", 1),
        ("replicate", 1),
        ("deadline_s", 1),
        ("lease_s", 1),
        ("temperature", 0),
        ("seed", 0),
    ):
        if config[key] < least:
            raise ConfigError(f"{key}={show(config[key])}: it must be at least {least}")
    if config["num_workers"] > num_tasks:
        raise ConfigError(
            f"num_workers={config['num_workers']} is larger than the {num_tasks} tasks of the benchmark: w sessions are"
            " never open at once; lower num_workers or raise benchmark.num_tasks"
        )
    _check_limits(config["limits"])
    _check_trust(config["trust"])
    _check_budget(config, made["model"])
    _check_models(typed, made)
    _check_executor(typed)


def check_text(tasks: Sequence[Task], *, renderer: str) -> None:
    """Refuse to render recordings that hold lengths only.

    Raises:
        ConfigError: names the first such task.
    """
    for task in tasks:
        if renderer != "base" and task.run is not None and not task.run.has_text:
            raise ConfigError(
                f"renderer={renderer} needs text, but task {task.task_id} is a length-only trace"
                f" ({task.run.source_format}): use renderer=base, or recordings with text"
            )


def _check_budget(config: Mapping[str, Any], model: Any) -> None:
    budget, window = (
        config["context_budget_tokens"],
        model.max_position_tokens - config["limits"]["max_completion_tokens"],
    )
    if window < 1:
        raise ConfigError(
            f"limits.max_completion_tokens={config['limits']['max_completion_tokens']} leaves no room for a prompt in"
            f" the {model.max_position_tokens} tokens of {model.name}; lower it"
        )
    if budget is not None and not 0 < budget <= window:
        raise ConfigError(f"context_budget_tokens={budget}: {model.name} takes prompts of 1 to {window} tokens")


def _check_limits(limits: Mapping[str, Any]) -> None:
    for key, value in limits.items():
        if value <= 0:
            raise ConfigError(f"limits.{key}={show(value)}: it must be greater than 0")


def _check_trust(trust: Mapping[str, Any]) -> None:
    for key, value in trust.items():
        if value < 0:
            raise ConfigError(f"trust.{key}={show(value)}: it must be at least 0")
    if trust["min_concurrency_share"] > 1:
        share = show(trust["min_concurrency_share"])
        raise ConfigError(f"trust.min_concurrency_share={share}: give a share between 0 and 1")


def _check_models(typed: TypedConfig, made: Mapping[str, Any]) -> None:
    alternates = typed.components["router"].kind == "model_alternating"
    second = made.get("second_model")
    if alternates and second is None:
        raise ConfigError("router=model_alternating needs a second model: model@second_model=<one of conf/model>")
    if second is not None and not alternates:
        raise ConfigError("second_model is set but only router=model_alternating sends calls to it")
    if second is not None and second.name == made["model"].name:
        raise ConfigError(f"second_model is the model itself ({second.name}); choose another")


def _check_executor(typed: TypedConfig) -> None:
    engine, executor = typed.components["engine"].kind, typed.components["executor"].kind
    parallel = typed.components["executor"].settings.get("parallel")
    if parallel is not None and parallel < 1:
        raise ConfigError(f"executor.parallel={show(parallel)}: it must be at least 1")
    if executor == "virtual" and engine not in ("simulated", "prefix_cache"):
        raise ConfigError(f"engine={engine} runs on real time: choose executor=ray_actors, or engine=simulated")
    if executor != "virtual" and engine == "prefix_cache":
        raise ConfigError("engine=prefix_cache has no time to run on: choose executor=virtual, or another engine")


def check_shared(configs: Sequence[Mapping[str, Any]]) -> None:
    """Refuse an axis over what one command has once.

    Raises:
        SweepError: names the key.
    """
    for key in _SHARED:
        if any(config[key] != configs[0][key] for config in configs):
            raise SweepError(f"{key} cannot vary within a sweep: one command has one; run it once for each")

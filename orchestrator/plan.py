"""From a command line to the whole grid: every cell composed, typed, checked, keyed and described before anything runs.

`SweepPlan` is what the dry run prints, what is put into the database and what the driver works on. Mistakes that would
end a cell later (w larger than the number of tasks, a pool that holds no model) are refused here, as one line.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from orchestrator.attempt import limits_of
from orchestrator.build import TypedNode, make
from orchestrator.cells import TypedConfig, canonical_json, key_of_spec, spec_of, typed_config
from orchestrator.checks import check_cell, check_shared, check_text
from orchestrator.compose import Composer
from orchestrator.derive import derived_figures, model_facts
from orchestrator.errors import ConfigError, SweepError, UserError, unknown
from orchestrator.overrides import Override, refuse_repeats, show
from orchestrator.sweep import Combination, Expansion, expand
from orchestrator.sweep_file import SweepReader, SweepSpec
from workers.errors import ConfigurationError
from workers.interfaces import Task


@dataclass(frozen=True, slots=True)
class PlannedCell:
    """One cell of the grid.

    Attributes:
        spec: the identity document; `key` is its hash.
        config: the composed configuration, plain data.
        labels: axis -> label, in the sweep's order.
        kinds: component -> the name of its option (`renderer` with its inner ones, `compact+refold`).
        num_steps: recorded steps of all tasks, or the most there can be: how long the cell will take.
        derived: figures the engine's settings come to, by model name, for the dry run and the stored snapshot.
        facts: `prices` and `kv` by model name, which the tables need.
        sources: `benchmark_source` and the policy's `signals_source`, stored with every attempt.
    """

    key: str
    spec: Mapping[str, Any]
    config: Mapping[str, Any]
    labels: Mapping[str, str]
    arm: str
    title: str
    kinds: Mapping[str, str]
    num_tasks: int
    num_steps: int
    derived: Mapping[str, Any]
    facts: Mapping[str, Any]
    sources: Mapping[str, str]

    @property
    def num_workers(self) -> int:
        """w."""
        return int(self.config["num_workers"])

    @property
    def weight(self) -> float:
        """How long the cell takes, relative to others: all its steps, on wall-clock time shared by w sessions."""
        is_virtual = self.kinds["executor"] == "virtual"
        return self.num_steps / (1 if is_virtual else self.num_workers)


@dataclass(frozen=True, slots=True)
class SweepPlan:
    """A sweep's cells in grid order and what the command line changed about it.

    Attributes:
        base: text of every override that holds for all cells; two plans of one name and base are parts of one grid.
    """

    name: str
    description: str
    base: tuple[str, ...]
    cells: tuple[PlannedCell, ...]
    notes: tuple[str, ...]

    @property
    def shared(self) -> Mapping[str, Any]:
        """The settings of the command itself (database, executor, lease, rerun), equal in all cells."""
        return self.cells[0].config


def make_plan(composer: Composer, command: Sequence[str], *, spec: SweepSpec | None = None) -> SweepPlan:
    """Plan the cells a command line asks for.

    Args:
        command: overrides, with `+sweep=<name or file>` for more than one cell.
        spec: a sweep made by the caller, in place of the one `command` names.
    Raises:
        UserError: one line for any mistake.
    """
    parsed = [composer.vocabulary.parse(text) for text in command]
    refuse_repeats(parsed)
    overrides = [override for override in parsed if override.key != "sweep"]
    chosen = next((override for override in parsed if override.key == "sweep"), None)
    if spec is None and chosen is not None:
        spec = read_sweep(composer, str(chosen.value))
    if spec is None:
        expansion = Expansion((Combination({}, tuple(overrides)),))
    else:
        expansion = expand(spec, overrides, composer.vocabulary.override)
    cache = TaskCache()
    cells = tuple(_plan_cell(composer, cache, combination) for combination in expansion.combinations)
    check_shared([cell.config for cell in cells])
    _refuse_twins(cells)
    return SweepPlan(
        name=spec.name if spec is not None else f"cell-{cells[0].key[3:11]}",
        description=spec.description if spec is not None else "one cell",
        base=_base(spec, overrides),
        cells=_fully_labelled(cells),
        notes=expansion.notes,
    )


def _fully_labelled(cells: Sequence[PlannedCell]) -> tuple[PlannedCell, ...]:
    """Every cell with a label for each root setting that some cell varies: a default is a value too.

    Settings of components are left out: `policy.coverage` says nothing about a renderer that asks for no labels.
    """
    names = {name: None for cell in cells for name in cell.labels}
    labelled = []
    for cell in cells:
        settings = {n: cell.config[n] for n in names if n not in cell.labels and n in cell.config}
        known = {name: show(value) for name, value in settings.items() if not isinstance(value, Mapping)}
        labelled.append(replace(cell, labels={**cell.labels, **known}))
    return tuple(labelled)


def read_sweep(composer: Composer, name: str) -> SweepSpec:
    """Read conf/sweep/<name>.yaml, or a file of the user's own when `name` is a path.

    Raises:
        UserError: no such sweep, or a mistake in it.
    """
    is_path = name.endswith((".yaml", ".yml")) or "/" in name
    path = Path(name) if is_path else composer.vocabulary.conf / "sweep" / f"{name}.yaml"
    if not path.is_file():
        if is_path:
            raise SweepError(f"sweep {name}: no such file")
        raise SweepError(unknown("sweep", name, composer.vocabulary.groups().get("sweep", ())))
    try:
        content = OmegaConf.to_container(OmegaConf.load(path), resolve=True)
    except (YAMLError, OmegaConfBaseException, UnicodeDecodeError) as exc:
        raise SweepError(f"sweep {name}: not readable as YAML: {' '.join(str(exc).split())}") from exc
    return SweepReader(composer.vocabulary.parse, composer.vocabulary.override).read(path.stem, content)


def _base(spec: SweepSpec | None, overrides: Sequence[Override]) -> tuple[str, ...]:
    axes = spec.grid_names() if spec is not None else frozenset()
    own = {override.key: override.text for override in (spec.base if spec is not None else ())}
    own |= {override.key: override.text for override in overrides if override.key not in axes}
    return tuple(sorted(own.values()))


def _plan_cell(composer: Composer, cache: TaskCache, combination: Combination) -> PlannedCell:
    try:
        typed = typed_config(composer.compose(combination.overrides))
        tasks = cache.tasks(typed)
        made = {name: make(node, name) for name, node in typed.components.items() if name in _DESCRIBED}
        check_cell(typed, made, num_tasks=len(tasks))
        check_text(tasks, renderer=_kind(typed.components["renderer"]))
        budget_tokens = limits_of(typed.config).budget_tokens
        derived = derived_figures(typed, made, budget_tokens=budget_tokens)
    except UserError as exc:
        raise type(exc)(f"{combination.title}: {exc}" if combination.labels else str(exc)) from exc
    spec = spec_of(typed, task_digests=[task.digest for task in tasks], budget_tokens=budget_tokens)
    kinds = {name: _kind(node) for name, node in typed.components.items()}
    max_steps = int(typed.config["limits"]["max_steps"])
    return PlannedCell(
        key=key_of_spec(spec),
        spec=spec,
        config=_with_absolute_paths(typed.config),
        labels=combination.labels,
        arm=combination.labels.get("arm", kinds["renderer"]),
        title=combination.title or f"{kinds['renderer']} num_workers={typed.config['num_workers']}",
        kinds=kinds,
        num_tasks=len(tasks),
        num_steps=sum(max_steps if task.run is None else min(max_steps, len(task.run.steps)) for task in tasks),
        derived=derived,
        facts=model_facts(made),
        sources={"benchmark": made["benchmark"].source, "signals": _signals_source(typed, made)},
    )


def _with_absolute_paths(config: Mapping[str, Any]) -> dict[str, Any]:
    """`config` with every component's `path` seen from here: the process that runs the cell may start elsewhere."""
    absolute = dict(config)
    for name, node in config.items():
        if isinstance(node, dict) and node.get("path"):
            absolute[name] = node | {"path": str(Path(node["path"]).absolute())}
    return absolute


def _signals_source(typed: TypedConfig, made: Mapping[str, Any]) -> str:
    """Where the cell's signals come from: `none` when its renderer asks for none, else as policy or renderer says."""
    request = made["renderer"].signals
    if request is None:
        return "none"
    if request.kind != "stale":
        return str(typed.components["renderer"].settings.get("replay_signals", "none"))
    stale = typed.components["policy"].settings.get("stale")
    return str(made["policy"].signals_source if stale is None else stale)


# Components that are made at plan time, because the plan shows what they come to or needs their word.
_DESCRIBED = frozenset(
    {"model", "second_model", "hardware", "engine", "router", "renderer", "harness", "tokens", "policy", "benchmark"}
    | {"executor"}
)


def _kind(node: TypedNode) -> str:
    """The option's name, inner components appended: `compact+refold`."""
    return "+".join((node.kind, *(_kind(child) for child in node.inner.values())))


class TaskCache:
    """Tasks by benchmark configuration: a sweep's cells share them, and generating or reading them takes seconds."""

    def __init__(self) -> None:
        self._tasks: dict[str, Sequence[Task]] = {}

    def tasks(self, typed: TypedConfig) -> Sequence[Task]:
        """The tasks of a cell.

        Raises:
            ConfigError: they cannot be loaded.
        """
        key = canonical_json(typed.config["benchmark"])
        if key not in self._tasks:
            benchmark = make(typed.components["benchmark"], "benchmark")
            try:
                self._tasks[key] = benchmark.tasks()
            except ConfigurationError as exc:
                raise ConfigError(str(exc)) from exc
            except OSError as exc:
                raise ConfigError(f"benchmark: {exc.filename}: {exc.strerror}") from exc
        return self._tasks[key]


def _refuse_twins(cells: Sequence[PlannedCell]) -> None:
    seen: dict[str, PlannedCell] = {}
    for cell in cells:
        if cell.key in seen:
            raise SweepError(
                f"two cells of the sweep are one and the same experiment: {seen[cell.key].title} and {cell.title}"
            )
        seen[cell.key] = cell

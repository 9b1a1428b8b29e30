"""A sweep under a command line: combinations of overrides, one per cell, in grid order. Pure: nothing is composed here.

An override of an axis on the command line replaces it (`num_workers=[16,32]`, `arm=refold`); explicit cells with other
values of it are left out, and a value that only explicit cells have selects those.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.errors import SweepError, unknown
from orchestrator.overrides import Override, last_wins, show
from orchestrator.sweep_file import Block, Choice, SweepReader, SweepSpec

__all__ = ["Combination", "Expansion", "SweepReader", "SweepSpec", "expand"]


@dataclass(frozen=True, slots=True)
class Combination:
    """One cell to be: labels by axis and all overrides, weakest first."""

    labels: Mapping[str, str]
    overrides: tuple[Override, ...]

    @property
    def title(self) -> str:
        """For people: `arm=refold num_workers=16`."""
        return " ".join(f"{axis}={label}" for axis, label in self.labels.items())


@dataclass(frozen=True, slots=True)
class Expansion:
    """The combinations of a sweep under a command line, and what the command line changed, for the plan."""

    combinations: tuple[Combination, ...]
    notes: tuple[str, ...] = ()


def expand(spec: SweepSpec, command: Sequence[Override], make: Callable[[str, Any], Override]) -> Expansion:
    """All combinations of a sweep under the overrides of a command line.

    Args:
        make: key and value -> Override, for values that replace an axis.
    Raises:
        SweepError: an override that an axis would contradict, an unknown label, a zipped value that does not exist.
    """
    names = spec.axis_names()
    replaced = {o.key: o.value if isinstance(o.value, list) else [o.value] for o in command if o.key in names}
    _refuse_doubles(replaced)
    # A key that only explicit cells set is, as a single value, an ordinary override of all other cells.
    others = tuple(
        o for o in command if o.key not in names or (o.key not in spec.grid_names() and not isinstance(o.value, list))
    )
    _refuse_contradictions(spec, others)
    combinations = []
    for block in spec.blocks:
        narrowed = _narrow(block, spec, replaced, make)
        for rows in itertools.product(*narrowed.axes) if narrowed is not None else ():
            choices = [choice for row in rows for choice in row]
            chosen = tuple(o for choice in choices for o in choice.overrides)
            overrides = last_wins((*spec.base, *others, *chosen))
            labels = {choice.axis: choice.label for choice in choices}
            # A key that only other cells vary: its value here, so that a table shows it in every row.
            labels |= {o.key: show(o.value) for o in overrides if o.key in names and o.key not in labels}
            combinations.append(Combination(labels, overrides))
    if replaced:
        combinations = _distinct(combinations)
    if not combinations:
        listed = ", ".join(f"{axis}={show(values)}" for axis, values in replaced.items())
        raise SweepError(f"sweep {spec.name} has no cell with {listed}")
    return Expansion(tuple(combinations), _notes(spec, command))


def _refuse_doubles(replaced: Mapping[str, Sequence[Any]]) -> None:
    for axis, values in replaced.items():
        shown = [show(value) for value in values]
        for value in shown:
            if shown.count(value) > 1:
                raise SweepError(f"{axis}={show(list(values))} names {value} twice; a cell is run once")


def _distinct(combinations: Sequence[Combination]) -> list[Combination]:
    """Without the later ones of equal cells: explicit cells may have differed only in what was replaced."""
    first: dict[frozenset[str], Combination] = {}
    for combination in combinations:
        first.setdefault(frozenset(o.text for o in combination.overrides), combination)
    return list(first.values())


def _notes(spec: SweepSpec, command: Sequence[Override]) -> tuple[str, ...]:
    """What the command line changed about the sweep, for the plan."""
    own = {override.key for override in spec.base} | spec.axis_names()
    return tuple(
        f"{o.text} replaces the values of the sweep's axis {o.key}"
        if o.key in spec.grid_names()
        else f"{o.text} replaces the sweep's own setting"
        for o in command
        if o.key in own
    )


def _narrow(
    block: Block, spec: SweepSpec, replaced: Mapping[str, list[Any]], make: Callable[[str, Any], Override]
) -> Block | None:
    """The block under replaced axes; None when nothing of it is left."""
    axes = []
    for options in block.axes:
        is_free = not block.is_explicit and all(len(row) == 1 for row in options)
        for axis in {choice.axis: None for choice in options[0]}:
            if axis not in replaced:
                continue
            wanted = [show(value) for value in replaced[axis]]
            if is_free and not _is_named(axis, options):
                only_explicit = _labels(spec, axis, explicit=True) - _labels(spec, axis, explicit=False)
                values = [value for value in replaced[axis] if show(value) not in only_explicit]
                options = tuple((Choice(axis, show(value), (make(axis, value),)),) for value in values)
            elif axis not in spec.grid_names() and not set(wanted) <= _labels(spec, axis):
                options = tuple((Choice(axis, show(value), (make(axis, value),)),) for value in replaced[axis])
            else:
                if not block.is_explicit:
                    _require_labels(spec, axis, wanted)
                options = tuple(row for row in options if any(c.axis == axis and c.label in wanted for c in row))
        if not options:
            return None
        axes.append(options)
    return Block(tuple(axes), block.is_explicit)


def _is_named(axis: str, options: Sequence[Sequence[Choice]]) -> bool:
    """Whether the axis's values are names of override lists (an arm), not values of a key."""
    return any([o.key for o in choice.overrides] != [axis] for row in options for choice in row if choice.axis == axis)


def _labels(spec: SweepSpec, axis: str, *, explicit: bool | None = None) -> frozenset[str]:
    return frozenset(
        choice.label
        for block in spec.blocks
        if explicit is None or block.is_explicit is explicit
        for options in block.axes
        for row in options
        for choice in row
        if choice.axis == axis
    )


def _require_labels(spec: SweepSpec, axis: str, wanted: Sequence[str]) -> None:
    known = _labels(spec, axis)
    for label in wanted:
        if label not in known:
            raise SweepError(f"sweep {spec.name}: {unknown(axis, label, known)}")


def _refuse_contradictions(spec: SweepSpec, command: Sequence[Override]) -> None:
    """An override of a key that a named choice sets would lose silently."""
    for override in command:
        for block in spec.blocks:
            for choice in (c for options in block.axes for row in options for c in row):
                if choice.axis != override.key and any(o.key == override.key for o in choice.overrides):
                    raise SweepError(
                        f"{override.text}: the sweep's axis {choice.axis!r} sets {override.key} itself;"
                        f" choose with {choice.axis}=..., or run without +sweep"
                    )

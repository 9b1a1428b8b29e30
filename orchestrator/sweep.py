"""A sweep's axes, arms and explicit cells, expanded to combinations of overrides. Pure: nothing is composed here.

    description: one line for --help
    base: [benchmark.num_tasks=50]                       # for all cells
    arms: {base: [renderer=base], refold: [renderer=refold]}
    axes: {arm: [base, refold], num_workers: [8, 16]}    # every combination
    zip: [{num_workers: [8, 64], benchmark.num_tasks: [50, 71]}]   # together, one by one
    cells: [{arm: [base, refold], num_workers: 64, benchmark.num_tasks: 71}]   # beyond the product

An axis value is a value of the axis's key, or a name with its list of overrides (`arms`, or a mapping in place of the
list); the name is then the label. Lists inside one entry of `cells` are combined. The paper's grids need all of this:
ReFold's Table 2 is not a full product (w = 64 runs over 71 tasks, the others over 50).

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

_SECTIONS = ("description", "base", "arms", "axes", "zip", "cells")


@dataclass(frozen=True, slots=True)
class Choice:
    """One value of an axis: its label and the overrides it stands for."""

    axis: str
    label: str
    overrides: tuple[Override, ...]


@dataclass(frozen=True, slots=True)
class Block:
    """A product of axes; every inner tuple is an axis's choices (a zipped axis's choice sets several keys)."""

    axes: tuple[tuple[tuple[Choice, ...], ...], ...]
    is_explicit: bool = False

    def names(self) -> frozenset[str]:
        """The axes it sets."""
        return frozenset(choice.axis for options in self.axes for row in options for choice in row)


@dataclass(frozen=True, slots=True)
class SweepSpec:
    """A read sweep: base overrides and blocks, the product first, then the explicit cells in their order."""

    name: str
    description: str
    base: tuple[Override, ...]
    blocks: tuple[Block, ...]

    def axis_names(self) -> frozenset[str]:
        """Every axis of every block."""
        return frozenset().union(*(block.names() for block in self.blocks))

    def grid_names(self) -> frozenset[str]:
        """The axes a command line narrows or replaces as such: those of the product, and named ones anywhere."""
        named = {
            choice.axis
            for block in self.blocks
            for options in block.axes
            for row in options
            for choice in row
            if [o.key for o in choice.overrides] != [choice.axis]
        }
        return frozenset(named).union(*(block.names() for block in self.blocks if not block.is_explicit))


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


class SweepReader:
    """Reads a sweep file's content.

    Args:
        parse: text of an override -> Override. make: key and value -> Override. Both check a group's options.
    """

    def __init__(self, parse: Callable[[str], Override], make: Callable[[str, Any], Override]) -> None:
        self._parse = parse
        self._make = make

    def read(self, name: str, content: Any) -> SweepSpec:
        """Check a sweep and give it its form.

        Raises:
            SweepError: an unknown section, an axis without values, zipped axes of different lengths.
            ConfigError: an option that does not exist.
        """
        if not isinstance(content, Mapping):
            raise SweepError(f"sweep {name}: expected a mapping with {', '.join(_SECTIONS)}")
        for section in content:
            if section not in _SECTIONS:
                raise SweepError(f"sweep {name}: {unknown('section', str(section), _SECTIONS)}")
        self._where = f"sweep {name}"
        self._arms = dict(content.get("arms") or {})
        axes = tuple(self._axis(str(axis), values) for axis, values in (content.get("axes") or {}).items())
        zipped = tuple(self._zip(group) for group in content.get("zip") or ())
        explicit = tuple(self._block(entry) for entry in content.get("cells") or ())
        product = (Block(axes + zipped),) if axes or zipped else ()
        if not product and not explicit:
            raise SweepError(f"{self._where}: it has neither axes nor cells")
        base = tuple(self._parse(str(text)) for text in content.get("base") or ())
        return SweepSpec(name, str(content.get("description") or ""), base, product + explicit)

    def choices(self, axis: str, values: Any) -> tuple[Choice, ...]:
        """The choices of one axis: a mapping of named lists, or values (names of arms for the axis `arm`)."""
        if isinstance(values, Mapping):
            return tuple(self._named(axis, str(label), texts) for label, texts in values.items())
        if not isinstance(values, (list, tuple)):
            values = [values]
        if not values:
            raise SweepError(f"{self._where}: axis {axis} has no values")
        if axis == "arm":
            return tuple(self._arm(str(label)) for label in values)
        return tuple(Choice(axis, show(value), (self._make(axis, value),)) for value in values)

    def _arm(self, label: str) -> Choice:
        if label not in self._arms:
            raise SweepError(f"{self._where}: {unknown('arm', label, self._arms)}")
        return self._named("arm", label, self._arms[label])

    def _named(self, axis: str, label: str, texts: Any) -> Choice:
        if not isinstance(texts, (list, tuple)):
            raise SweepError(f"{self._where}: {axis} {label!r} must be a list of overrides, got {texts!r}")
        return Choice(axis, label, tuple(self._parse(str(text)) for text in texts))

    def _axis(self, axis: str, values: Any) -> tuple[tuple[Choice, ...], ...]:
        return tuple((choice,) for choice in self.choices(axis, values))

    def _zip(self, group: Any) -> tuple[tuple[Choice, ...], ...]:
        columns = [self.choices(str(axis), values) for axis, values in dict(group).items()]
        if len({len(column) for column in columns}) != 1:
            lengths = ", ".join(f"{column[0].axis}: {len(column)}" for column in columns)
            raise SweepError(f"{self._where}: zipped axes need equally many values ({lengths})")
        return tuple(zip(*columns, strict=True))

    def _block(self, entry: Any) -> Block:
        if not isinstance(entry, Mapping):
            raise SweepError(f"{self._where}: an entry of cells is a mapping of axes, got {entry!r}")
        return Block(tuple(self._axis(str(axis), values) for axis, values in entry.items()), is_explicit=True)


def expand(spec: SweepSpec, command: Sequence[Override], make: Callable[[str, Any], Override]) -> Expansion:
    """All combinations of a sweep under the overrides of a command line.

    Args:
        make: key and value -> Override, for values that replace an axis.
    Raises:
        SweepError: an override that an axis would contradict, an unknown label, a zipped value that does not exist.
    """
    names = spec.axis_names()
    replaced = {o.key: o.value if isinstance(o.value, list) else [o.value] for o in command if o.key in names}
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
            labels = {choice.axis: choice.label for choice in choices}
            combinations.append(Combination(labels, last_wins((*spec.base, *others, *chosen))))
    if not combinations:
        listed = ", ".join(f"{axis}={show(values)}" for axis, values in replaced.items())
        raise SweepError(f"sweep {spec.name} has no cell with {listed}")
    return Expansion(tuple(combinations), _notes(spec, command))


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
            elif axis not in spec.grid_names():
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

"""A sweep as it is written: axes, zipped axes, named arms and explicit cells, read and checked.

    description: one line for --help
    base: [benchmark.num_tasks=50]                       # for all cells
    arms: {base: [renderer=base], refold: [renderer=refold]}
    axes: {arm: [base, refold], num_workers: [8, 16]}    # every combination
    zip: [{num_workers: [8, 64], benchmark.num_tasks: [50, 71]}]   # together, one by one
    cells: [{arm: [base, refold], num_workers: 64, benchmark.num_tasks: 71}]   # beyond the product

An axis value is a value of the axis's key, or a name with its list of overrides (`arms`, or a mapping in place of the
list); the name is then the label. Lists inside one entry of `cells` are combined. The paper's grids need all of this:
ReFold's Table 2 is not a full product (w = 64 runs over 71 tasks, the others over 50).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from orchestrator.errors import SweepError, unknown
from orchestrator.overrides import Override, show

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

"""The one gate every record passes before it reaches a database.

What a database would distort is refused or escaped here, so that a row read back equals the row written, on SQLite
and on PostgreSQL alike:

- NaN and infinities are refused (SQLite turns NaN into NULL, and NULL means "not reported").
- A value of another type than the field declares is refused (SQLite stores it as it is, PostgreSQL rounds 3.5 to 4).
- NUL and lone surrogates are escaped in free text (PostgreSQL refuses both) and refused in keys, where two escaped
  values could meet.
"""

from __future__ import annotations

import json
import math
import types
import typing
from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import cache
from operator import attrgetter, itemgetter
from typing import Any, ClassVar, NamedTuple, Protocol

from db.errors import RowRefused

__all__ = ["Column", "Row", "columns_of", "escape_text", "row_values", "to_json"]

_MAX_INTEGER = 2**63 - 1  # the widest integer SQLite and PostgreSQL store


class Row(Protocol):
    """A frozen dataclass that is one row of one table."""

    __dataclass_fields__: ClassVar[dict[str, Any]]
    TABLE: ClassVar[str]
    KEY: ClassVar[tuple[str, ...]]


class Column(NamedTuple):
    """One column as its record declares it."""

    name: str
    python_type: type  # str, int, float or bool
    is_nullable: bool


def to_json(value: object) -> str:
    """Canonical JSON text: sorted keys, no NaN, ASCII only, so that every database stores it unchanged.

    Raises:
        RowRefused: the value holds NaN, an infinity or something JSON has no form for.
    """
    try:
        return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise RowRefused(f"not storable as JSON: {error}") from error


def escape_text(text: str) -> str:
    r"""Replace NUL and lone surrogates by their visible escapes (`\u0000`, `\udcff`)."""
    if "\0" in text:
        text = text.replace("\0", "\\u0000")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        text = "".join(f"\\u{ord(c):04x}" if 0xD800 <= ord(c) <= 0xDFFF else c for c in text)
    return text


@cache
def columns_of(record: type[Row]) -> tuple[Column, ...]:
    """The columns of a record class, in order."""
    hints = typing.get_type_hints(record)
    columns = []
    for field in fields(record):
        hint = hints[field.name]
        options = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
        (python_type,) = [option for option in options if option is not type(None)]
        columns.append(Column(field.name, python_type, type(None) in options))
    return tuple(columns)


class _Shape(NamedTuple):
    """What must be looked at in rows whose values have one known sequence of types."""

    floats: Callable[[tuple[Any, ...]], Sequence[float]] | None
    texts: Callable[[tuple[Any, ...]], Sequence[str]] | None
    integers: Callable[[tuple[Any, ...]], Sequence[int]] | None


class _Gate:
    """The checks of one record class; row shapes seen before are not type-checked again."""

    def __init__(self, record: type[Row]) -> None:
        self.record = record
        self.columns = columns_of(record)
        self.get = attrgetter(*(column.name for column in self.columns))
        self.shapes: dict[tuple[type, ...], _Shape] = {}

    def values(self, row: Row) -> tuple[Any, ...]:
        values: tuple[Any, ...] = self.get(row)
        shape_key = tuple(map(type, values))
        shape = self.shapes.get(shape_key)
        if shape is None:
            shape = self.shapes[shape_key] = self._shape(shape_key)
        if shape.floats is not None and not math.isfinite(sum(shape.floats(values))):
            self._refuse_non_finite(values)
        if shape.integers is not None and max(map(abs, shape.integers(values))) > _MAX_INTEGER:
            raise RowRefused(f"{self.record.__name__}: an integer beyond 64 bits")
        if shape.texts is not None:
            joined = "".join(shape.texts(values))
            if not joined.isascii() or "\0" in joined:
                values = self._escaped(values)
        return values

    def _shape(self, shape_key: tuple[type, ...]) -> _Shape:
        picked: dict[type, list[int]] = {float: [], str: [], int: []}
        for index, (column, found) in enumerate(zip(self.columns, shape_key, strict=True)):
            is_none = found is type(None)
            fits = column.is_nullable if is_none else found is column.python_type
            if not fits and not (column.python_type is float and found is int):
                expected = column.python_type.__name__ + (" or None" if column.is_nullable else "")
                raise RowRefused(f"{self.record.__name__}.{column.name} must be {expected}, got {found.__name__}")
            if found in picked:
                picked[found].append(index)
        return _Shape(*(_picker(picked[kind]) for kind in (float, str, int)))

    def _refuse_non_finite(self, values: tuple[Any, ...]) -> None:
        for column, value in zip(self.columns, values, strict=True):
            if isinstance(value, float) and not math.isfinite(value):
                raise RowRefused(f"{self.record.__name__}.{column.name} is {value}; use None for 'not reported'")

    def _escaped(self, values: tuple[Any, ...]) -> tuple[Any, ...]:
        clean = []
        for column, value in zip(self.columns, values, strict=True):
            if isinstance(value, str):
                escaped = escape_text(value)
                if escaped != value and column.name in self.record.KEY:
                    name = f"{self.record.__name__}.{column.name}"
                    raise RowRefused(f"{name} is part of a key and holds NUL or a lone surrogate: {escaped}")
                value = escaped
            clean.append(value)
        return tuple(clean)


def _picker(indices: list[int]) -> Callable[[tuple[Any, ...]], Sequence[Any]] | None:
    if not indices:
        return None
    if len(indices) == 1:
        only = indices[0]
        return lambda values: (values[only],)
    return itemgetter(*indices)


_gate = cache(_Gate)


def row_values(row: Row) -> tuple[Any, ...]:
    """The checked values of `row`, in column order.

    Raises:
        RowRefused: a value that a database would distort.
    """
    return _gate(type(row)).values(row)

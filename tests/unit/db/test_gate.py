"""The gate refuses or escapes whatever a database would distort."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from db.errors import RowRefused
from db.gate import columns_of, escape_text, row_values, to_json
from db.records import Call, Cell

CALL = Call(attempt_id="a.1", session_id="t0", call_index=1, kind="main", state="ok", model="m")


def value(call: Call, name: str) -> object:
    """The gated value of one column."""
    return dict(zip((column.name for column in columns_of(Call)), row_values(call), strict=True))[name]


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_non_finite_floats_are_refused_by_name(number: float) -> None:
    """SQLite would store NaN as NULL, that is, as `not reported`."""
    with pytest.raises(RowRefused, match="Call.due_s is (nan|inf|-inf); use None"):
        row_values(replace(CALL, due_s=number))


def test_huge_finite_floats_are_kept() -> None:
    """A sum that overflows while all its parts are finite is no reason to refuse."""
    assert value(replace(CALL, due_s=1.7e308, sent_s=1.7e308), "sent_s") == 1.7e308


@pytest.mark.parametrize(
    ("field", "wrong"), [("call_index", 1.0), ("call_index", True), ("model", None), ("due_s", "1"), ("model", b"m")]
)
def test_a_value_of_another_type_is_refused(field: str, wrong: object) -> None:
    """SQLite would store it as it is, PostgreSQL would round or fail in the middle of a batch."""
    with pytest.raises(RowRefused, match=f"Call.{field} must be"):
        row_values(replace(CALL, **{field: wrong}))


def test_an_integer_is_a_valid_float() -> None:
    """A stamp of exactly 3 seconds may be written 3."""
    assert value(replace(CALL, due_s=3), "due_s") == 3


def test_integers_beyond_64_bits_are_refused() -> None:
    """Neither database can hold them."""
    row_values(replace(CALL, num_prompt_tokens=2**63 - 1))
    with pytest.raises(RowRefused, match="64 bits"):
        row_values(replace(CALL, num_prompt_tokens=2**63))


def test_nul_and_lone_surrogates_are_escaped_in_text() -> None:
    """Tool output decoded with surrogateescape and binary output reach the database readable."""
    assert value(replace(CALL, error="a\0b \udcff \U0001f642 ü"), "error") == "a\\u0000b \\udcff \U0001f642 ü"


def test_nul_in_a_key_is_refused() -> None:
    """Two escaped keys could be the same."""
    with pytest.raises(RowRefused, match="session_id is part of a key"):
        row_values(replace(CALL, session_id="t\0"))


@given(st.text(st.characters(), max_size=50))
def test_escaped_text_is_storable_and_clean_text_unchanged(text: str) -> None:
    """The result encodes to UTF-8 without NUL; text that was storable is returned as it was."""
    escaped = escape_text(text)
    assert "\0" not in escaped
    escaped.encode("utf-8")
    if "\0" not in text and not any(0xD800 <= ord(c) <= 0xDFFF for c in text):
        assert escaped == text


def test_json_is_canonical_and_without_nan() -> None:
    """Equal documents give equal text; NaN is refused; lone surrogates and NUL become ASCII escapes."""
    assert to_json({"b": 0.5, "a": [1, None]}) == to_json({"a": [1, None], "b": 0.50}) == '{"a":[1,null],"b":0.5}'
    assert to_json("\0\udcff") == '"\\u0000\\udcff"'
    with pytest.raises(RowRefused, match="not storable as JSON"):
        to_json({"x": math.nan})
    with pytest.raises(RowRefused, match="not storable as JSON"):
        to_json({"x": object()})


def test_columns_know_type_and_nullability() -> None:
    """`int | None` is a nullable integer column."""
    columns = {column.name: column for column in columns_of(Cell)}
    assert columns["context_budget_tokens"] == ("context_budget_tokens", int, True)
    assert columns["num_workers"] == ("num_workers", int, False)

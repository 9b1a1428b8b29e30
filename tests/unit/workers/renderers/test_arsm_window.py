"""W(rho), ARSM section 3.3, against the golden values of the three triples (worked by hand in exact fractions)."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.errors import ConfigurationError
from workers.renderers.arsm import Arsm
from workers.renderers.arsm_window import window

GOLDEN = {
    (1, 5, 50): [37, 17, 10, 7, 5, 4, 3, 2, 1, 1],
    (3, 8, 64): [48, 23, 15, 11, 8, 6, 5, 4, 4, 3],
    (2, 8, 64): [56, 26, 16, 11, 8, 6, 5, 4, 3, 2],
}


@pytest.mark.parametrize("capacity", GOLDEN)
def test_golden_values(capacity: tuple[int, int, int]) -> None:
    """rho = .1, .2, ... 1 give the golden sizes, whether rho comes as text or as a float."""
    texts = [str(Decimal(number) / 10) for number in range(1, 11)]
    assert [window(text, capacity) for text in texts] == GOLDEN[capacity]
    assert [window(float(text), capacity) for text in texts] == GOLDEN[capacity]


def test_halves_round_up_where_floats_do_not() -> None:
    """(2, 8, 64) at rho = 0.8 is 2 + 6 * 1/4 = 3.5, which is 4; the float expression gives 3."""
    assert Fraction(2) + 6 * (1 - Fraction("0.8")) / Fraction("0.8") == Fraction(7, 2)
    assert window(0.8, (2, 8, 64)) == 4
    assert round(2 + 6 * (1 - 0.8) / 0.8) == 3


def test_ends() -> None:
    """rho = 0 gives L_max, 0.5 gives V_r, 1 gives V_min."""
    for capacity in GOLDEN:
        assert (window(0, capacity), window("0.50", capacity), window(1.0, capacity)) == capacity[::-1]


@given(st.integers(0, 1000), st.integers(0, 1000))
def test_never_grows_with_rho(first: int, second: int) -> None:
    """A larger rho never gives a larger window, and the window stays inside [V_min, L_max]."""
    low, high = sorted((first, second))
    for capacity in GOLDEN:
        sizes = window(str(Decimal(low) / 1000), capacity), window(str(Decimal(high) / 1000), capacity)
        assert capacity[2] >= sizes[0] >= sizes[1] >= capacity[0]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rho": 1.5}, r"rho=1.5; give a number from 0"),
        ({"rho": float("nan")}, r"rho=nan"),
        ({"raw_capacity": (0, 5, 50)}, r"raw_capacity=\[0, 5, 50\]; give three rising integers"),
        ({"path_capacity": (5, 2, 50)}, r"path_capacity"),
        ({"theta_loop": 1}, r"theta_loop=1; give at least 2"),
        ({"state_position": "start"}, r"state_position=start; give one of end, after_task"),
        ({"replay_signals": "yes"}, r"replay_signals=yes; give one of none, recorded, heuristic"),
    ],
)
def test_wrong_settings_are_named(settings: dict[str, object], message: str) -> None:
    """A wrong setting is one line with the value and the remedy."""
    with pytest.raises(ConfigurationError, match=message):
        Arsm(**settings)  # type: ignore[arg-type]

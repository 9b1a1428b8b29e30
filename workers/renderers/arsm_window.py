"""ARSM's compression control W(rho): how many turns or entries a memory holds (section 3.3).

W(0) = L_max, and for rho > 0 max(V_min, min(L_max, V_min + round((V_r - V_min) * (1 - rho) / rho))), so that
W(0.5) = V_r and W(1) = V_min. Exact rationals from rho's decimal literal: in floats (2, 8, 64) at rho = 0.8 gives 3
instead of 4.
[choice] the paper gives neither the three values nor their unit; here raw memory counts turns, the others entries.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from math import floor

from workers.errors import ConfigurationError

Capacity = tuple[int, int, int]  # (V_min, V_r, L_max): at rho = 1, at rho = 0.5, at rho = 0


@lru_cache(maxsize=256)
def window(rho: float | str, capacity: Capacity) -> int:
    """W(rho) for one memory; halves round up.

    Args:
        rho: the compression control, 0 to 1, as a decimal literal or a float (then its shortest literal is meant).
    """
    least, at_half, most = capacity
    share = Fraction(str(rho))
    if share == 0:
        return most
    grown = floor((at_half - least) * (1 - share) / share + Fraction(1, 2))
    return max(least, min(most, least + grown))


def check_rho(rho: float, renderer: str) -> None:
    """Refuse what is no compression control.

    Raises:
        ConfigurationError: rho is not between 0 and 1.
    """
    if not 0 <= rho <= 1:
        raise ConfigurationError(f"renderer {renderer}: rho={rho}; give a number from 0 (keep all) to 1 (keep least)")


def checked_capacity(name: str, capacity: Capacity, renderer: str) -> Capacity:
    """The triple as a tuple.

    Raises:
        ConfigurationError: not three integers with 1 <= V_min <= V_r <= L_max.
    """
    values = tuple(capacity)
    if len(values) != 3 or not 1 <= values[0] <= values[1] <= values[2]:
        raise ConfigurationError(
            f"renderer {renderer}: {name}={list(values)}; give three rising integers from 1: at rho = 1, 0.5 and 0"
        )
    return values

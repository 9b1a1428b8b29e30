"""Draws of the generator: the same numbers on every machine and with every numpy version.

Only the raw 64-bit output of PCG64 is used (numpy keeps bit generators stable, its distributions not), turned into
normals by the inverse distribution function of the standard library.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import TypeVar

import numpy as np

ItemT = TypeVar("ItemT")
_BATCH = 2048
_STANDARD_NORMAL = NormalDist()


class Dice:
    """A stream of draws named by its key."""

    __slots__ = ("_bits", "_numbers", "_position")

    def __init__(self, *key: object) -> None:
        digest = hashlib.blake2b("\x1f".join(map(str, key)).encode(), digest_size=16).digest()
        self._bits = np.random.PCG64(int.from_bytes(digest, "big"))
        self._numbers: list[float] = []
        self._position = 0

    def uniform(self) -> float:
        """A number in [0, 1)."""
        if self._position == len(self._numbers):
            raw = self._bits.random_raw(_BATCH) >> np.uint64(11)
            self._numbers = (raw * 2.0**-53).tolist()
            self._position = 0
        number = self._numbers[self._position]
        self._position += 1
        return number

    def below(self, bound: int) -> int:
        """An integer in 0..bound-1."""
        return int(self.uniform() * bound)

    def between(self, low: int, high: int) -> int:
        """An integer in low..high, both included."""
        return low + int(self.uniform() * (high - low + 1))

    def chance(self, probability: float) -> bool:
        """True with `probability`."""
        return self.uniform() < probability

    def pick(self, items: Sequence[ItemT]) -> ItemT:
        """One of `items`."""
        return items[int(self.uniform() * len(items))]

    def normal(self) -> float:
        """A standard normal number."""
        return _STANDARD_NORMAL.inv_cdf(max(self.uniform(), 1e-12))

    def lognormal(self, mu: float, sigma: float) -> float:
        """exp(mu + sigma * z)."""
        return math.exp(mu + sigma * self.normal())

    def weighted(self, weights: dict[str, float]) -> str:
        """A key of `weights` in proportion to its weight."""
        mark = self.uniform() * sum(weights.values())
        for name, weight in weights.items():
            mark -= weight
            if mark < 0:
                return name
        return next(reversed(weights))

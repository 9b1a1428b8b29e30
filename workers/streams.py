"""Random streams that are equal over arms (architecture, section 8).

A draw depends on (seed, replicate, benchmark, task, stream name, key) and on nothing else: no renderer, w, router or
cell is in the key, nor is the number of draws made before. So two arms see the same tasks, tool times and stale draws.
Nothing here keeps state: asking twice gives the same number.
"""

from __future__ import annotations

import hashlib

_MANTISSA_BITS = 53


class SeededStreams:
    """Streams of one session on one task (Protocol `workers.interfaces.Streams`).

    Args:
        seed: the study's seed.
        replicate: 1-based repetition of the cell.
        benchmark: the benchmark's name, so that equal task ids of two benchmarks do not share draws.
        task_id: the task.
    Source: this project (the papers seed nothing); keyed hashing by BLAKE2b (RFC 7693).
    """

    __slots__ = ("_base",)

    def __init__(self, *, seed: int, replicate: int, benchmark: str, task_id: str) -> None:
        identity = "\x1f".join((str(seed), str(replicate), benchmark, task_id))
        self._base = hashlib.blake2b(identity.encode("utf-8", "surrogatepass"), digest_size=8)

    def uniform(self, name: str, *key: int | str) -> float:
        """A number in [0, 1), a multiple of 2**-53."""
        return float((self._word(name, key) >> (64 - _MANTISSA_BITS)) * 2.0**-_MANTISSA_BITS)

    def integer(self, name: str, *key: int | str) -> int:
        """A number in [0, 2**63)."""
        return self._word(name, key) >> 1

    def _word(self, name: str, key: tuple[int | str, ...]) -> int:
        """64 bits for one stream and key; the separator keeps ("a", 1) and ("a1",) apart."""
        state = self._base.copy()
        state.update("\x1f".join(("", name, *map(str, key))).encode("utf-8", "surrogatepass"))
        return int.from_bytes(state.digest(), "big")

"""Seeded streams: what a draw depends on, and what it does not."""

from __future__ import annotations

import hashlib

from hypothesis import given
from hypothesis import strategies as st

from workers.streams import SeededStreams


def streams(**changes: int | str) -> SeededStreams:
    """Streams of one session, with changes."""
    settings = {"seed": 1, "replicate": 1, "benchmark": "recorded", "task_id": "t-1", **changes}
    return SeededStreams(**settings)  # type: ignore[arg-type]


def test_a_draw_is_blake2b_of_its_key() -> None:
    """The number is the first 53 of 64 bits of BLAKE2b over the joined key, worked out here with hashlib alone."""
    key = "\x1f".join(["1", "1", "recorded", "t-1", "stale-coverage", "7"]).encode()
    word = int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "big")
    assert streams().uniform("stale-coverage", 7) == (word >> 11) / 2**53
    assert streams().integer("stale-coverage", 7) == word >> 1


def test_draws_do_not_depend_on_earlier_draws() -> None:
    """Asking in another order, or twice, gives the same numbers: two arms may draw different amounts."""
    first, second = streams(), streams()
    forward = [first.uniform("a", i) for i in range(5)]
    assert [second.uniform("a", i) for i in reversed(range(5))] == forward[::-1]
    assert first.uniform("a", 0) == forward[0]


def test_every_part_of_the_identity_changes_the_draw() -> None:
    """Seed, replicate, benchmark, task, stream name and key each give other numbers."""
    base = streams().uniform("a", 1)
    others = [
        streams(seed=2).uniform("a", 1),
        streams(replicate=2).uniform("a", 1),
        streams(benchmark="synthetic").uniform("a", 1),
        streams(task_id="t-2").uniform("a", 1),
        streams().uniform("b", 1),
        streams().uniform("a", 2),
    ]
    assert len({base, *others}) == 7


def test_keys_do_not_run_into_each_other() -> None:
    """("a", 1, 2) and ("a", 12) are different streams."""
    assert streams().integer("a", 1, 2) != streams().integer("a", 12)


@given(st.text(max_size=8), st.integers())
def test_draws_are_in_range(name: str, key: int) -> None:
    """Uniform draws are in [0, 1), integers in [0, 2**63), for any name."""
    assert 0.0 <= streams().uniform(name, key) < 1.0
    assert 0 <= streams().integer(name, key) < 2**63


def test_uniform_draws_are_uniform() -> None:
    """The mean of 20,000 draws is within four standard errors (4 * 0.2887 / sqrt(20000) = 0.0082) of one half."""
    mean = sum(streams().uniform("mean", i) for i in range(20_000)) / 20_000
    assert abs(mean - 0.5) < 0.0082

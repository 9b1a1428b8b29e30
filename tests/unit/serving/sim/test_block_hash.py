"""Chains of block ids say exactly which prefixes agree."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.sim.block_hash import ChainInterner


def _common(a: np.ndarray, b: np.ndarray) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.lists(st.integers(0, 1), max_size=30)), min_size=2, max_size=8))
def test_chains_agree_exactly_as_far_as_tokens_do(calls: list[tuple[int, list[int]]]) -> None:
    """For every pair of calls, of one session or of two, the common chain ids are the common full blocks."""
    interner = ChainInterner(4)
    prompts = [np.array([5, *tokens], dtype=np.int64) for _, tokens in calls]
    chains = [
        interner.chain(str(session), prompt, None, 0) for (session, _), prompt in zip(calls, prompts, strict=True)
    ]
    for i in range(len(calls)):
        for j in range(i):
            common = min(_common(prompts[i], prompts[j]) // 4, len(chains[i].ids), len(chains[j].ids))
            assert _common(chains[i].ids, chains[j].ids) == common
        best = max((_common(prompts[i], prompts[j]) // 4 * 4 for j in range(i)), default=0)
        assert chains[i].num_shared_tokens == best


def test_known_completion_is_found_by_the_next_prompt() -> None:
    """A recorded reply's blocks are shared with the next prompt; an opaque reply's never are."""
    prompt, reply = np.arange(10, dtype=np.int64), np.arange(100, 110, dtype=np.int64)
    following = np.concatenate((prompt, reply, [7, 7, 7, 7]))
    interner = ChainInterner(4)
    first = interner.chain("a", prompt, reply, 10)
    assert len(first.ids) == 5
    assert interner.chain("a", following, None, 1).num_shared_tokens == 20
    opaque = ChainInterner(4)
    assert len(opaque.chain("a", prompt, None, 10).ids) == 5
    # Only the prompt's two full blocks come back: the third holds generated tokens.
    assert opaque.chain("b", following, None, 1).num_shared_tokens == 8


def test_partly_known_completion_is_opaque_from_the_first_unknown_token() -> None:
    """Ids shorter than the pinned length: full blocks of known ids are shared, the rest is fresh."""
    interner = ChainInterner(4)
    prompt = np.arange(8, dtype=np.int64)
    chain = interner.chain("a", prompt, np.array([50, 51, 52, 53, 54]), 9)
    assert len(chain.ids) == 4
    following = np.concatenate((prompt, np.arange(50, 59)))
    assert interner.chain("b", following, None, 1).num_shared_tokens == 12

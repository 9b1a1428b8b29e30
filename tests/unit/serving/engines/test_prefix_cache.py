"""The prefix cache without an engine: hits by hand, least recently used first to go, no times."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.calls import CallKind, CallRequest, CallResult, EngineTimings, FinishReason, Message, PinnedReply, Prompt
from serving.clock import VirtualClock, run_virtual
from serving.engines.prefix_cache import BlockCache, PrefixCacheEngine, PrefixCacheReplica
from serving.errors import ContextOverflow, ReplicaLost, ReplicaRejected, ServingError

SIZE = 4


def make_call(ids: list[int], *, session: str = "s", num_out: int = 1, reply: list[int] | None = None) -> CallRequest:
    """One call with the given prompt ids; `reply` are the ids of the generated tokens, None leaves them unknown."""
    pinned_ids = None if reply is None else np.array(reply, dtype=np.int64)
    return CallRequest(
        call_id="c",
        session_id=session,
        kind=CallKind.main,
        call_index=1,
        main_index=1,
        model="m",
        messages=(),
        prompt=Prompt((np.array(ids, dtype=np.int64),), len(ids), ""),
        max_completion_tokens=1000,
        pinned=PinnedReply(Message("assistant", "x"), num_out, pinned_ids),
    )


def serve(calls: list[CallRequest], **options: Any) -> list[CallResult]:
    """Serve calls one after another on one cache with blocks of four tokens."""

    async def main(clock: VirtualClock) -> list[CallResult]:
        replica = PrefixCacheReplica("r0", "m", clock, block_size=SIZE, **options)
        return [await replica.generate(call) for call in calls]

    return run_virtual(main)


def cached(results: list[CallResult]) -> list[int | None]:
    """Cached tokens by call."""
    return [result.usage.num_cached_tokens for result in results]


def test_a_longer_prompt_hits_the_whole_blocks_of_the_one_before() -> None:
    """10 tokens leave 2 full blocks of 4; the next prompt of 14 hits 8. Another prompt hits nothing."""
    results = serve([make_call(list(range(10))), make_call(list(range(14))), make_call([99, *range(13)])])
    assert cached(results) == [0, 8, 0]


def test_one_token_is_always_left_to_compute() -> None:
    """The same 8 tokens again: 2 blocks are kept, but only (8 - 1) // 4 = 1 of them can be hit."""
    assert cached(serve([make_call(list(range(8)), num_out=5), make_call(list(range(8)))])) == [0, 4]


def test_the_reply_is_hit_in_the_next_prompt_but_for_its_last_token() -> None:
    """6 + 6 tokens fill 3 blocks, of which the last holds the token that is never fed back: the next hits 2."""
    reply = [50, 51, 52, 53, 54, 55]
    first = make_call(list(range(6)), num_out=6, reply=reply)
    assert cached(serve([first, make_call([*range(6), *reply, 7, 8])])) == [0, 8]


def test_a_reply_of_unknown_ids_is_never_hit() -> None:
    """`generated=opaque`: only the prompt's own full block is shared with the next prompt."""
    first = make_call(list(range(6)), num_out=6)
    assert cached(serve([first, make_call([*range(6), 50, 51, 52, 53, 54, 55, 7])])) == [0, 4]


def test_sessions_share_their_beginning() -> None:
    """A second session with the same first 9 tokens hits 2 blocks, and the bound says so."""
    results = serve([make_call(list(range(12))), make_call([*range(9), 70, 71, 72, 73], session="t")])
    assert cached(results) == [0, 8]
    assert [result.timings.max_shared_tokens for result in results] == [0, 8]


def test_the_least_recently_used_block_goes_first_and_a_call_s_last_block_before_its_first() -> None:
    """3 blocks: a call of 2 blocks, then one of 2 others: the first call's second block is gone, its first is not."""
    a, b = list(range(9)), list(range(100, 109))
    assert cached(serve([make_call(a), make_call(b), make_call(a)], num_blocks=3)) == [0, 0, 4]


def test_no_time_is_reported() -> None:
    """All engine figures but the shared prefix are None, and the stamps are one moment."""
    (result,) = serve([make_call(list(range(5)))])
    assert result.timings == EngineTimings(max_shared_tokens=0)
    assert result.sent_s == result.first_token_s == result.last_token_s == 0.0
    assert result.finish_reason is FinishReason.stop


def test_a_prompt_over_the_limit_and_a_reply_cut_by_it() -> None:
    """max_model_len 10: a prompt of 10 overflows, one of 8 gets 2 of its 5 tokens and ends by length."""
    (result,) = serve([make_call(list(range(8)), num_out=5)], max_model_len=10)
    assert (result.usage.num_completion_tokens, result.finish_reason) == (2, FinishReason.length)
    with pytest.raises(ContextOverflow, match="prompt of 10 tokens, max_model_len is 10"):
        serve([make_call(list(range(10)))], max_model_len=10)


def test_typed_errors() -> None:
    """A call without a pinned reply, a closed cache and a setting below 1 are one line each."""

    async def closed(clock: VirtualClock) -> None:
        replica = PrefixCacheReplica("r0", "m", clock, block_size=SIZE)
        await replica.close()
        await replica.generate(make_call([1]))

    async def unpinned(clock: VirtualClock) -> None:
        call = make_call([1])
        replica = PrefixCacheReplica("r0", "m", clock, block_size=SIZE)
        await replica.generate(CallRequest(**{name: getattr(call, name) for name in call.__slots__} | {"pinned": None}))

    with pytest.raises(ReplicaLost):
        run_virtual(closed)
    with pytest.raises(ReplicaRejected, match="pinned reply"):
        run_virtual(unpinned)
    with pytest.raises(ServingError, match="engine.num_blocks=0"):
        PrefixCacheEngine(num_blocks=0)


def test_after_a_reset_nothing_is_hit() -> None:
    """The same prompt hits, and after reset_prefix_cache it does not; the counters go on."""

    async def main(clock: VirtualClock) -> tuple[list[int | None], int]:
        replica = PrefixCacheReplica("r0", "m", clock, block_size=SIZE)
        found = [(await replica.generate(make_call(list(range(9))))).usage.num_cached_tokens for _ in range(2)]
        await replica.reset_prefix_cache()
        found.append((await replica.generate(make_call(list(range(9))))).usage.num_cached_tokens)
        return found, replica.sample().prefix_hits_tokens

    assert run_virtual(main) == ([0, 8, 0], 8)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=12), min_size=1, max_size=8))
def test_without_a_limit_a_hit_is_the_longest_shared_prefix(prompts: list[list[int]]) -> None:
    """Against the definition: the longest common prefix with any earlier prompt, in whole blocks, one token left."""
    for number, result in enumerate(serve([make_call(prompt) for prompt in prompts])):
        prompt = prompts[number]
        best = 0
        for other in prompts[:number]:
            same = next(
                (i for i, (x, y) in enumerate(zip(prompt, other, strict=False)) if x != y),
                min(len(prompt), len(other)),
            )
            best = max(best, min(same, len(prompt) - 1) // SIZE * SIZE)
        assert result.usage.num_cached_tokens == best


def test_a_kept_chain_counts_as_used() -> None:
    """Two blocks kept: touching the older one makes the other the next to go."""
    cache = BlockCache(2)
    cache.keep([1])
    cache.keep([2])
    cache.keep([1])
    cache.keep([3])
    assert [cache.num_hits([block]) for block in (1, 2, 3)] == [1, 0, 1]

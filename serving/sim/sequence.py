"""One request inside the simulated engine: the mutable record that scheduler, cache manager and engine share."""

from __future__ import annotations

from enum import StrEnum

import numpy as np

from serving.sim.block_hash import ChainIds
from serving.sim.block_pool import BlockIds


class Status(StrEnum):
    """Where a sequence is; only running ones hold blocks."""

    waiting = "waiting"
    running = "running"
    preempted = "preempted"
    finished = "finished"


class Sequence:
    """A prompt and the tokens generated so far.

    Attributes:
        chain: one chain id per full block of prompt + completion, known in advance because lengths are pinned.
        num_prompt_tokens, num_tokens: prompt length; prompt + generated so far.
        final_tokens: `num_tokens` at which the sequence ends.
        num_computed: tokens whose KV exists.
        blocks, num_blocks: the attention block table; the first `num_blocks` entries are valid.
        num_cached_blocks: leading full blocks already offered to the prefix cache.
        states: block index -> one state block per state group (hybrid layouts), null positions absent.
        num_retired_blocks: state positions below this index have been given back.
        shared_prefix_tokens: prefix that other sequences cached and whose state nobody kept (a junction to pin), or 0.
        fast_until: a step that ends at or below this many computed tokens needs no block work.
        keys: `chain` as cache keys of the attention group.
    Times are seconds on the engine's clock.
    """

    __slots__ = (
        "arrival_s", "blocks", "chain", "fast_until", "final_tokens", "finish_s", "first_scheduled_s", "first_token_s",
        "keys", "last_token_s", "lost_tokens", "num_blocks", "num_cached_blocks", "num_cached_tokens", "num_computed",
        "num_preemptions", "num_prompt_tokens", "num_retired_blocks", "num_tokens", "preempted_s", "recomputed_tokens",
        "request_id", "requeue_s", "shared_prefix_tokens", "states", "status",
    )  # fmt: skip

    def __init__(self, request_id: str, chain: ChainIds, *, num_prompt_tokens: int, final_tokens: int) -> None:
        self.request_id = request_id
        self.chain = chain
        self.keys = chain
        self.num_prompt_tokens = num_prompt_tokens
        self.num_tokens = num_prompt_tokens
        self.final_tokens = final_tokens
        self.status = Status.waiting
        self.num_computed = 0
        self.blocks: BlockIds = np.empty(0, dtype=np.int32)
        self.num_blocks = 0
        self.num_cached_blocks = 0
        self.states: dict[int, list[int]] = {}
        self.num_retired_blocks = 0
        self.shared_prefix_tokens = 0
        self.fast_until = 0
        self.num_cached_tokens: int | None = None
        self.num_preemptions = 0
        self.lost_tokens = 0
        self.recomputed_tokens = 0
        self.arrival_s = 0.0
        self.first_scheduled_s: float | None = None
        self.first_token_s: float | None = None
        self.last_token_s: float | None = None
        self.preempted_s = 0.0
        self.requeue_s = 0.0
        self.finish_s: float | None = None

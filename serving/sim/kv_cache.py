"""KV-cache managers: which blocks a sequence gets, shares and gives back, for dense and hybrid models.

For `serving.sim.scheduler`. Both answer three questions, step by step as vLLM does: how much of a prompt is cached
(`find_hit`), can these tokens get their slots (`allocate`), and who gets the blocks back (`release`).

`DenseCache`: one group, every full block is cached. `HybridCache`: one attention group and several state groups
(GatedDeltaNet and the like) in one pool, vLLM's "align" mode: a state exists only at chunk ends, is kept in the
prefix cache only at the prompt's replay boundary and at junctions of shared prefixes, and a hit needs attention
blocks *and* the states of every group at its end.

Source: vLLM 0.32.0, `vllm/v1/core/{kv_cache_manager,kv_cache_coordinator,single_type_kv_cache_manager}.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import numpy as np

from serving.sim.block_pool import BlockIds, BlockPool
from serving.sim.sequence import Sequence


class GroupKind(StrEnum):
    """What the layers of one cache group keep."""

    attention = "attention"
    state = "state"


@dataclass(frozen=True, slots=True)
class CacheLayout:
    """Shape of the pool.

    Attributes:
        num_blocks: blocks in the pool, the null block included.
        block_size: tokens per block, the same for every group.
        groups: in vLLM's order, that is of the first layer of each kind; exactly one is attention.
        enable_prefix_caching: False: nothing is ever hit.
        retention_interval: which states stay cached: 0 only replay boundaries and junctions, a multiple of block_size
            one per so many tokens as well, None all that exist.
    """

    num_blocks: int
    block_size: int
    groups: tuple[GroupKind, ...] = (GroupKind.attention,)
    enable_prefix_caching: bool = True
    retention_interval: int | None = 0

    @property
    def num_state_groups(self) -> int:
        """Groups that keep a recurrent state."""
        return sum(kind is GroupKind.state for kind in self.groups)


class Hit(NamedTuple):
    """A prefix-cache hit. blocks: attention blocks; states: one block per state group at the hit's end."""

    num_tokens: int
    blocks: BlockIds
    states: tuple[int, ...] = ()


NO_HIT = Hit(0, np.empty(0, dtype=np.int32))


class DenseCache:
    """Full attention only."""

    def __init__(self, layout: CacheLayout) -> None:
        self.layout = layout
        self.block_size = layout.block_size
        self.pool = BlockPool(layout.num_blocks, enable_caching=layout.enable_prefix_caching)

    def admit_keys(self, sequence: Sequence) -> None:
        """Prepare a new sequence for this cache."""
        if len(sequence.chain):
            self.pool.ensure_keys(int(sequence.chain[-1]) + 1)
        sequence.blocks = np.empty(-(-sequence.final_tokens // self.block_size) + 1, dtype=np.int32)

    def new_step(self) -> None:
        """A scheduling step begins."""

    def find_hit(self, sequence: Sequence) -> Hit:
        """The longest cached prefix, at most num_tokens - 1 so that one token is left to compute."""
        if not self.layout.enable_prefix_caching:
            return NO_HIT
        blocks = self.cached_prefix(sequence)
        return Hit(len(blocks) * self.block_size, blocks)

    def allocate(self, sequence: Sequence, num_new: int) -> bool:
        """Slots for the next `num_new` tokens of a running sequence; False (nothing changed) when they do not fit."""
        end = sequence.num_computed + num_new
        missing = -(-end // self.block_size) - sequence.num_blocks
        if missing > 0:
            if missing > self.pool.num_free:
                return False
            self._take(sequence, missing)
        self._cache(sequence, end)
        return True

    def cached_prefix(self, sequence: Sequence) -> BlockIds:
        """Attention blocks of the longest cached prefix."""
        return self.pool.cached_prefix(sequence.keys[: (sequence.num_tokens - 1) // self.block_size])

    def fits(self, sequence: Sequence, num_new: int, hit: Hit, *, whole_sequence: bool, headroom: int) -> bool:
        """Whether a waiting sequence can be admitted now.

        Args:
            whole_sequence: only when all known tokens of the sequence fit, not just this chunk.
            headroom: blocks that must stay free besides.
        """
        evictable = len(hit.blocks) - self.pool.num_held(hit.blocks)
        end = max(hit.num_tokens + num_new, sequence.num_tokens if whole_sequence else 0)
        missing = -(-end // self.block_size) - len(hit.blocks)
        return missing + evictable + headroom <= self.pool.num_free

    def admit(self, sequence: Sequence, num_new: int, hit: Hit) -> None:
        """Adopt a hit and allocate the first chunk of a waiting sequence that fits."""
        end = hit.num_tokens + num_new
        missing = -(-end // self.block_size) - len(hit.blocks)
        num_hits = len(hit.blocks)
        if num_hits:
            self.pool.touch(hit.blocks)
            sequence.blocks[:num_hits] = hit.blocks
        sequence.num_blocks = sequence.num_cached_blocks = num_hits
        if missing > 0:
            self._take(sequence, missing)
        self._cache(sequence, end)

    def _take(self, sequence: Sequence, count: int) -> None:
        start = sequence.num_blocks
        if count == 1:
            sequence.blocks[start] = self.pool.pop_one()
        else:
            sequence.blocks[start : start + count] = self.pool.pop(count)
        sequence.num_blocks = start + count

    def _cache(self, sequence: Sequence, end: int) -> None:
        size = self.block_size
        num_full = end // size
        slots_end = sequence.num_blocks * size
        if not self.layout.enable_prefix_caching:
            sequence.fast_until = slots_end
            return
        start = sequence.num_cached_blocks
        if num_full > start:
            if num_full == start + 1:
                self.pool.insert_one(int(sequence.keys[start]), int(sequence.blocks[start]))
            else:
                self.pool.insert(sequence.keys[start:num_full], sequence.blocks[start:num_full])
            sequence.num_cached_blocks = num_full
        sequence.fast_until = min(slots_end, (max(num_full, start) + 1) * size - 1)

    def release(self, sequence: Sequence) -> None:
        """Give back all blocks, tail first."""
        if sequence.num_blocks:
            self.pool.free(sequence.blocks[: sequence.num_blocks][::-1])
        sequence.num_blocks = sequence.num_cached_blocks = 0
        sequence.fast_until = 0


class HybridCache:
    """One attention group and `layout.num_state_groups` state groups in one pool."""

    def __init__(self, layout: CacheLayout) -> None:
        self.layout = layout
        self.block_size = layout.block_size
        self.pool = BlockPool(layout.num_blocks, enable_caching=layout.enable_prefix_caching)
        self._num_groups = len(layout.groups)
        self._attention = layout.groups.index(GroupKind.attention)
        state_groups = [index for index, kind in enumerate(layout.groups) if kind is GroupKind.state]
        self._state_groups = np.array(state_groups, dtype=np.int64)
        # Keys of the states written in this step: not usable by others before the next one.
        self._states_this_step: set[int] = set()

    def admit_keys(self, sequence: Sequence) -> None:
        """Prepare a new sequence for this cache."""
        if len(sequence.chain):
            self.pool.ensure_keys((int(sequence.chain[-1]) + 1) * self._num_groups)
        sequence.keys = sequence.chain * self._num_groups + self._attention
        sequence.blocks = np.empty(-(-sequence.final_tokens // self.block_size) + 1, dtype=np.int32)

    def new_step(self) -> None:
        """A scheduling step begins."""
        self._states_this_step.clear()

    def _state_keys(self, sequence: Sequence, index: int) -> list[int]:
        base = int(sequence.chain[index]) * self._num_groups
        return [base + group for group in self._state_groups.tolist()]

    def find_hit(self, sequence: Sequence) -> Hit:
        """Longest attention prefix, then the last position in it whose states are all cached.

        Sets `shared_prefix_tokens` to the attention prefix when that is longer than the hit.
        """
        sequence.shared_prefix_tokens = 0
        if not self.layout.enable_prefix_caching:
            return NO_HIT
        blocks = self.cached_prefix(sequence)
        num_attention = len(blocks)
        if not num_attention:
            return NO_HIT
        keys = sequence.chain[:num_attention, None] * self._num_groups + self._state_groups
        states = self.pool.cached(keys)
        ends = np.flatnonzero((states >= 0).all(axis=1))
        num_hits = int(ends[-1]) + 1 if len(ends) else 0
        if num_hits < num_attention:
            sequence.shared_prefix_tokens = num_attention * self.block_size
        if not num_hits:
            return NO_HIT
        return Hit(num_hits * self.block_size, blocks[:num_hits], tuple(states[num_hits - 1].tolist()))

    def allocate(self, sequence: Sequence, num_new: int) -> bool:
        """Slots for the next `num_new` tokens of a running sequence.

        False when they do not fit; states that are no longer needed have been given back even then.
        """
        self._retire_states(sequence)
        end = sequence.num_computed + num_new
        missing = -(-end // self.block_size) - sequence.num_blocks
        if missing > 0:
            if missing + self._num_new_states(sequence) > self.pool.num_free:
                return False
            self._take(sequence, missing)
        self._cache(sequence, end)
        return True

    def cached_prefix(self, sequence: Sequence) -> BlockIds:
        """Attention blocks of the longest cached prefix."""
        return self.pool.cached_prefix(sequence.keys[: (sequence.num_tokens - 1) // self.block_size])

    def fits(self, sequence: Sequence, num_new: int, hit: Hit, *, whole_sequence: bool, headroom: int) -> bool:
        """Whether a waiting sequence can be admitted now; see `DenseCache.fits`."""
        num_hits = len(hit.blocks)
        if num_hits and not self._states_this_step.isdisjoint(self._state_keys(sequence, num_hits - 1)):
            return False  # another sequence writes that state in this very step
        shared = np.concatenate((hit.blocks, np.array(hit.states, dtype=np.int32)))
        evictable = len(shared) - self.pool.num_held(shared)
        end = max(hit.num_tokens + num_new, sequence.num_tokens if whole_sequence else 0)
        missing = -(-end // self.block_size) - num_hits
        return missing + len(self._state_groups) + evictable + headroom <= self.pool.num_free

    def admit(self, sequence: Sequence, num_new: int, hit: Hit) -> None:
        """Adopt a hit and allocate the first chunk of a waiting sequence that fits."""
        num_hits = len(hit.blocks)
        end = hit.num_tokens + num_new
        missing = -(-end // self.block_size) - num_hits
        if num_hits:
            self.pool.touch(np.concatenate((hit.blocks, np.array(hit.states, dtype=np.int32))))
            sequence.blocks[:num_hits] = hit.blocks
            sequence.states[num_hits - 1] = list(hit.states)
        sequence.num_blocks = sequence.num_cached_blocks = num_hits
        self._take(sequence, missing)
        self._cache(sequence, end)

    def _num_new_states(self, sequence: Sequence) -> int:
        # Without prefix caching one state per sequence lives as long as the sequence and is updated in place.
        if not self.layout.enable_prefix_caching and sequence.num_blocks:
            return 0
        return len(self._state_groups)

    def _take(self, sequence: Sequence, count: int) -> None:
        """`count` attention blocks and, at the new end, one state block per state group, in group order."""
        num_states = self._num_new_states(sequence)
        taken = self.pool.pop(count + num_states)
        before = min(self._attention, num_states)
        start = sequence.num_blocks
        sequence.blocks[start : start + count] = taken[before : before + count]
        sequence.num_blocks = start + count
        if num_states:
            sequence.states[sequence.num_blocks - 1] = taken[:before].tolist() + taken[before + count :].tolist()

    def _retire_states(self, sequence: Sequence) -> None:
        if not self.layout.enable_prefix_caching:
            return
        last = min((sequence.num_computed - 1) // self.block_size, sequence.num_blocks)
        if last <= sequence.num_retired_blocks:
            return
        stale = sorted((index for index in sequence.states if index < last), reverse=True)
        rows = [sequence.states.pop(index) for index in stale]
        for group in range(len(self._state_groups)):
            self.pool.free_few(row[group] for row in rows)
        sequence.num_retired_blocks = last

    def _cache(self, sequence: Sequence, end: int) -> None:
        size = self.block_size
        num_full = end // size
        start = sequence.num_cached_blocks
        if self.layout.enable_prefix_caching:
            if num_full > start:
                self.pool.insert(sequence.keys[start:num_full], sequence.blocks[start:num_full])
                for index in sorted(sequence.states):
                    if start <= index < num_full and self._is_retained(sequence, index):
                        self._cache_state(sequence, index)
                sequence.num_cached_blocks = num_full
            if num_full and num_full == (sequence.num_prompt_tokens - 1) // size and num_full - 1 in sequence.states:
                self._cache_state(sequence, num_full - 1)
        # Block work is due at the next boundary and in the step after it (the old state is given back then).
        slots_end = sequence.num_blocks * size
        if self.layout.enable_prefix_caching:
            is_stale = (end - 1) // size > sequence.num_retired_blocks
            sequence.fast_until = 0 if is_stale else min(slots_end, (max(num_full, start) + 1) * size - 1)
        else:
            sequence.fast_until = slots_end

    def _is_retained(self, sequence: Sequence, index: int) -> bool:
        size, interval = self.block_size, self.layout.retention_interval
        if interval is None or (interval and (interval <= size or (index + 1) * size % interval == 0)):
            return True
        if index == (sequence.num_prompt_tokens - 1) // size - 1:
            return True
        return bool(sequence.shared_prefix_tokens) and index == sequence.shared_prefix_tokens // size - 1

    def _cache_state(self, sequence: Sequence, index: int) -> None:
        for key, block in zip(self._state_keys(sequence, index), sequence.states[index], strict=True):
            if not self.pool.is_hashed(block):
                self.pool.insert_one(key, block)
            self._states_this_step.add(key)

    def release(self, sequence: Sequence) -> None:
        """Give back all blocks, group by group, tail first."""
        rows = [sequence.states[index] for index in sorted(sequence.states, reverse=True)]
        state_number = 0
        for kind in self.layout.groups:
            if kind is GroupKind.attention:
                self.pool.free(sequence.blocks[: sequence.num_blocks][::-1])
            else:
                self.pool.free_few([row[state_number] for row in rows])
                state_number += 1
        sequence.states = {}
        sequence.num_blocks = sequence.num_cached_blocks = sequence.num_retired_blocks = 0
        sequence.fast_until = 0


KVCache = DenseCache | HybridCache


def make_cache(layout: CacheLayout) -> KVCache:
    """The manager for a layout."""
    make: Callable[[CacheLayout], KVCache] = HybridCache if layout.num_state_groups else DenseCache
    return make(layout)

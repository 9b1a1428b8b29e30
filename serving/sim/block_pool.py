"""The pool of KV-cache blocks: free list, reference counts and prefix-cache index, in vLLM's eviction order.

For `serving.sim.kv_cache`. Block 0 is the null block and is never handed out. A cache key is a non-negative integer
(chain id times the number of groups plus the group, see `kv_cache`).

vLLM keeps a doubly linked list; here the same order is kept without one, so that whole prompts are moved in numpy:
hashed blocks wait in a queue (least recently freed first) whose entries are dropped lazily when a hit takes the block
out of the middle, and un-hashed blocks wait on a stack in front of that queue.

Invariants: a block is in use (reference count >= 1) or free, never both; `num_free` + blocks in use = num_blocks - 1;
a free hashed block is found by its key until the moment it is handed out again.
Source: vLLM 0.32.0, `vllm/v1/core/block_pool.py` and `FreeKVCacheBlockQueue` in `kv_cache_utils.py`.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

BlockIds = npt.NDArray[np.int32]
CacheKeys = npt.NDArray[np.int64]

# Below this many blocks a scalar loop is quicker than numpy's call overhead (about 8 calls of 1 microsecond).
_SCALAR_LIMIT = 6


class BlockPool:
    """Blocks 1..num_blocks-1 in eviction order, with a key -> block index.

    Args:
        num_blocks: blocks in the pool, the null block included.
        enable_caching: False: no block is ever hashed, freed blocks are reused last in, first out.
    """

    def __init__(self, num_blocks: int, *, enable_caching: bool) -> None:
        self.num_blocks = num_blocks
        self.enable_caching = enable_caching
        self.num_free = num_blocks - 1
        self._references: npt.NDArray[np.int32] = np.zeros(num_blocks, dtype=np.int32)
        self._key_of: CacheKeys = np.full(num_blocks, -1, dtype=np.int64)
        # block -> its index in `_queue`, -1 when it left the queue from the middle
        self._place: npt.NDArray[np.int64] = np.full(num_blocks, -1, dtype=np.int64)
        self._queue: BlockIds = np.zeros(4 * num_blocks + 64, dtype=np.int32)
        self._queue[: num_blocks - 1] = np.arange(1, num_blocks)
        self._place[1:] = np.arange(num_blocks - 1)
        self._head = 0
        self._tail = num_blocks - 1
        self._stack: list[int] = []
        # key -> oldest block that carries it, -1 none; further blocks of the same key in `_duplicates`
        self._block_of: BlockIds = np.full(4096, -1, dtype=np.int32)
        self._is_duplicated: npt.NDArray[np.bool_] = np.zeros(4096, dtype=np.bool_)
        self._duplicates: dict[int, list[int]] = {}

    @property
    def usage(self) -> float:
        """Share of the blocks in use, 0..1; cached blocks that nobody holds count as free."""
        return 1.0 - self.num_free / (self.num_blocks - 1)

    def ensure_keys(self, num_keys: int) -> None:
        """Make room for keys 0..num_keys-1."""
        if num_keys <= len(self._block_of):
            return
        size = max(num_keys, 2 * len(self._block_of))
        grown = np.full(size, -1, dtype=np.int32)
        grown[: len(self._block_of)] = self._block_of
        flags = np.zeros(size, dtype=np.bool_)
        flags[: len(self._is_duplicated)] = self._is_duplicated
        self._block_of, self._is_duplicated = grown, flags

    # ---- taking blocks

    def pop(self, count: int) -> BlockIds:
        """Hand out the first `count` free blocks, evicting what they cached. Needs count <= num_free."""
        if count <= _SCALAR_LIMIT:
            return np.array([self.pop_one() for _ in range(count)], dtype=np.int32)
        stacked = min(count, len(self._stack))
        if stacked:
            blocks = np.array(self._stack[: -stacked - 1 : -1], dtype=np.int32)
            del self._stack[-stacked:]
            if stacked < count:
                blocks = np.concatenate((blocks, self._pop_queue(count - stacked)))
        else:
            blocks = self._pop_queue(count)
        self.num_free -= count
        self._evict(blocks)
        self._references[blocks] = 1
        return blocks

    def pop_one(self) -> int:
        """Hand out the first free block."""
        if self._stack:
            block = self._stack.pop()
        else:
            queue, place, head = self._queue, self._place, self._head
            block = int(queue[head])
            while place[block] != head:
                head += 1
                block = int(queue[head])
            self._head = head + 1
        self.num_free -= 1
        key = int(self._key_of[block])
        if key >= 0:
            self._key_of[block] = -1
            self._forget(key, block)
        self._references[block] = 1
        return block

    def _pop_queue(self, count: int) -> BlockIds:
        parts: list[BlockIds] = []
        while count > 0:
            head = self._head
            end = min(head + count, self._tail)
            window = self._queue[head:end]
            live = window[self._place[window] == np.arange(head, end)]
            self._head = end
            count -= len(live)
            parts.append(live)
        return parts[0].copy() if len(parts) == 1 else np.concatenate(parts)

    def _evict(self, blocks: BlockIds) -> None:
        keys = self._key_of[blocks]
        hashed = keys >= 0
        if not hashed.all():
            keys, blocks = keys[hashed], blocks[hashed]
        if not len(keys):
            return
        self._key_of[blocks] = -1
        if self._duplicates:
            twins = self._is_duplicated[keys]
            if twins.any():
                for key, block in zip(keys[twins].tolist(), blocks[twins].tolist(), strict=True):
                    self._forget(key, block)
                keys = keys[~twins]
        self._block_of[keys] = -1

    def _forget(self, key: int, block: int) -> None:
        twins = self._duplicates.get(key)
        if twins is None:
            self._block_of[key] = -1
            return
        twins.remove(block)
        self._block_of[key] = twins[0]
        if len(twins) == 1:
            del self._duplicates[key]
            self._is_duplicated[key] = False

    # ---- the prefix-cache index

    def insert(self, keys: CacheKeys, blocks: BlockIds) -> None:
        """Make blocks in use findable by their keys; keys are distinct."""
        known = self._block_of[keys] >= 0
        if known.any():
            for key, block in zip(keys[known].tolist(), blocks[known].tolist(), strict=True):
                self._add_duplicate(key, block)
            self._block_of[keys[~known]] = blocks[~known]
        else:
            self._block_of[keys] = blocks
        self._key_of[blocks] = keys

    def insert_one(self, key: int, block: int) -> None:
        """`insert` for one block."""
        if self._block_of[key] >= 0:
            self._add_duplicate(key, block)
        else:
            self._block_of[key] = block
        self._key_of[block] = key

    def _add_duplicate(self, key: int, block: int) -> None:
        self._duplicates.setdefault(key, [int(self._block_of[key])]).append(block)
        self._is_duplicated[key] = True

    def is_hashed(self, block: int) -> bool:
        """Whether the block is findable by a key."""
        return bool(self._key_of[block] >= 0)

    def cached_prefix(self, keys: CacheKeys) -> BlockIds:
        """The blocks of the longest leading run of cached keys."""
        blocks = self._block_of[keys]
        missing = blocks < 0
        if len(missing) and missing[end := int(missing.argmax())]:
            return blocks[:end]
        return blocks

    def cached(self, keys: CacheKeys) -> BlockIds:
        """The oldest block of every key, -1 where nothing is cached; any shape."""
        return self._block_of[keys]

    # ---- sharing and freeing

    def num_held(self, blocks: BlockIds) -> int:
        """How many of the blocks are in use."""
        return int(np.count_nonzero(self._references[blocks]))

    def touch(self, blocks: BlockIds) -> None:
        """Add one user to each block; free ones leave the free list. Blocks are distinct."""
        references = self._references[blocks]
        free = blocks[references == 0]
        self._place[free] = -1
        self.num_free -= len(free)
        self._references[blocks] = references + 1

    def free(self, blocks: BlockIds) -> None:
        """Remove one user from each block, in eviction priority order (first = evicted first). Blocks are distinct."""
        references = self._references[blocks] - 1
        self._references[blocks] = references
        unused = references == 0
        if not unused.all():
            blocks = blocks[unused]
        self.num_free += len(blocks)
        if not self.enable_caching:
            self._stack.extend(blocks[::-1].tolist())
            return
        hashed = self._key_of[blocks] >= 0
        if not hashed.all():
            self._stack.extend(blocks[~hashed][::-1].tolist())
            blocks = blocks[hashed]
        self._append(blocks)

    def free_few(self, blocks: Iterable[int]) -> None:
        """`free` for a handful of blocks."""
        unhashed: list[int] = []
        for block in blocks:
            references = int(self._references[block]) - 1
            self._references[block] = references
            if references:
                continue
            self.num_free += 1
            if self.enable_caching and self._key_of[block] >= 0:
                if self._tail == len(self._queue):
                    self._compact()
                self._queue[self._tail] = block
                self._place[block] = self._tail
                self._tail += 1
            else:
                unhashed.append(block)
        self._stack.extend(reversed(unhashed))

    def _append(self, blocks: BlockIds) -> None:
        end = self._tail + len(blocks)
        if end > len(self._queue):
            self._compact()
            end = self._tail + len(blocks)
        self._queue[self._tail : end] = blocks
        self._place[blocks] = np.arange(self._tail, end)
        self._tail = end

    def _compact(self) -> None:
        window = self._queue[self._head : self._tail]
        live = window[self._place[window] == np.arange(self._head, self._tail)]
        self._queue[: len(live)] = live
        self._place[live] = np.arange(len(live))
        self._head, self._tail = 0, len(live)

    def free_order(self) -> list[int]:
        """Ids of the free blocks in eviction order (for comparison with the real peer)."""
        window = self._queue[self._head : self._tail]
        live = window[self._place[window] == np.arange(self._head, self._tail)]
        queued: list[int] = live.tolist()
        return self._stack[::-1] + queued

    def reset(self) -> bool:
        """Forget every cached block; refused (False) while any block is in use."""
        if self.num_free != self.num_blocks - 1:
            return False
        self._key_of[:] = -1
        self._block_of[:] = -1
        self._is_duplicated[:] = False
        self._duplicates.clear()
        return True

"""The block pool keeps vLLM's free-list order: checked against a plain list."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.sim.block_pool import BlockPool


class PlainPool:
    """The same rules, one block at a time, on Python lists (vLLM's block_pool.py in words)."""

    def __init__(self, num_blocks: int, *, enable_caching: bool) -> None:
        self.free_list = list(range(1, num_blocks))
        self.users = [0] * num_blocks
        self.key: dict[int, int] = {}
        self.blocks: dict[int, list[int]] = {}
        self.enable_caching = enable_caching

    def pop(self, count: int) -> list[int]:
        """Head of the list first; a popped block loses its key."""
        taken, self.free_list = self.free_list[:count], self.free_list[count:]
        for block in taken:
            self.users[block] = 1
            if block in self.key:
                key = self.key.pop(block)
                self.blocks[key].remove(block)
        return taken

    def insert(self, key: int, block: int) -> None:
        """One more block of this key."""
        self.key[block] = key
        self.blocks.setdefault(key, []).append(block)

    def find(self, key: int) -> int:
        """The oldest block of the key."""
        return next(iter(self.blocks.get(key, ())), -1)

    def touch(self, blocks: list[int]) -> None:
        """One more user."""
        for block in blocks:
            if not self.users[block]:
                self.free_list.remove(block)
            self.users[block] += 1

    def free(self, blocks: list[int]) -> None:
        """Un-hashed blocks to the head, in order; hashed ones to the tail."""
        head, tail = [], []
        for block in blocks:
            self.users[block] -= 1
            if not self.users[block]:
                (tail if self.enable_caching and block in self.key else head).append(block)
        self.free_list = head + self.free_list + tail


@settings(max_examples=40, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(12, 60), st.booleans())
def test_order_equals_a_plain_list(rng, num_blocks: int, enable_caching: bool) -> None:  # type: ignore[no-untyped-def]
    """After any sequence of operations the free list, the counts and every lookup agree."""
    pool, plain = (
        BlockPool(num_blocks, enable_caching=enable_caching),
        PlainPool(num_blocks, enable_caching=enable_caching),
    )
    tables: list[list[int]] = []
    for _ in range(150):
        choice = rng.random()
        if choice < 0.45 and pool.num_free:
            count = rng.randint(1, min(pool.num_free, 15))
            taken = pool.pop(count)
            assert taken.tolist() == plain.pop(count)
            keys = rng.sample(range(40), count) if count <= 40 else []
            hashed = rng.randint(0, count) if enable_caching else 0
            if hashed == 1:
                pool.insert_one(keys[0], int(taken[0]))
            elif hashed:
                pool.insert(np.array(keys[:hashed]), taken[:hashed])
            for key, block in zip(keys[:hashed], taken.tolist(), strict=False):
                plain.insert(key, block)
            tables.append(taken.tolist())
        elif choice < 0.6 and enable_caching:
            keys = rng.sample(range(40), rng.randint(1, 8))
            found = [block for block in dict.fromkeys(plain.find(key) for key in keys) if block >= 0]
            assert pool.cached(np.array(keys)).tolist() == [plain.find(key) for key in keys]
            if found:
                pool.touch(np.array(found, dtype=np.int32))
                plain.touch(found)
                tables.append(found)
        elif tables:
            blocks = tables.pop(rng.randrange(len(tables)))[::-1]
            if len(blocks) < 4:
                pool.free_few(blocks)
            else:
                pool.free(np.array(blocks, dtype=np.int32))
            plain.free(blocks)
        assert pool.free_order() == plain.free_list
        assert pool.num_free == len(plain.free_list)


def test_a_missing_block_ends_the_prefix() -> None:
    """A lookup returns the leading run of cached keys only."""
    pool = BlockPool(10, enable_caching=True)
    blocks = pool.pop(3)
    pool.insert(np.array([0, 1, 3]), blocks)
    assert pool.cached_prefix(np.array([0, 1, 2, 3])).tolist() == blocks[:2].tolist()
    assert pool.cached_prefix(np.array([0, 1, 3])).tolist() == blocks.tolist()
    assert pool.cached_prefix(np.array([2, 0])).tolist() == []


def test_reset_needs_an_idle_pool() -> None:
    """The cache is emptied only while nothing runs."""
    pool = BlockPool(10, enable_caching=True)
    blocks = pool.pop(2)
    pool.insert(np.array([0, 1]), blocks)
    assert not pool.reset()
    pool.free(blocks)
    assert pool.reset()
    assert pool.cached_prefix(np.array([0])).tolist() == []

"""From token ids to chains of block ids: which prefixes of two prompts are the same.

For `serving.sim.kv_cache`. vLLM hashes every full block together with its parent's hash; here a chain (a block and
everything before it) is interned to a small integer, so that a prompt is an array of chain ids and a prefix-cache
lookup is one gather. Two prompts share a chain id exactly when they agree on every token up to that block's end.

A session's previous prompt is kept: its next prompt is compared in one pass and only the new blocks are interned.
Source: vLLM 0.32.0, `hash_block_tokens` and `get_request_block_hasher` in `vllm/v1/core/kv_cache_utils.py`.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

TokenIds = npt.NDArray[np.int64]
ChainIds = npt.NDArray[np.int64]

_ROOT = -1
_MASK = (1 << 64) - 1
# Sessions whose last prompt is kept for the quick comparison; the others are interned from their first block again.
_MAX_SESSIONS = 4096


class Chain(NamedTuple):
    """The full blocks of one call, completion included.

    ids: one chain id per full block. num_shared_tokens: tokens of the longest prefix (whole blocks) that this call's
    prompt shares with any earlier call on this engine, completions included: an upper bound of every honest cache hit.
    """

    ids: ChainIds
    num_shared_tokens: int


class _Previous(NamedTuple):
    tokens: TokenIds
    chain: list[int]


class ChainInterner:
    """Chain ids of one engine.

    The dictionary key holds the parent's id exactly and 64 bits of the block's content hash: two blocks can only be
    confused under the same parent, with probability 2^-64 per pair of siblings.
    """

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self.num_chains = 0
        self._ids: dict[int, int] = {}
        self._sessions: OrderedDict[str, _Previous] = OrderedDict()

    def chain(
        self, session_id: str, prompt: TokenIds, completion: TokenIds | None, num_completion_tokens: int
    ) -> Chain:
        """Intern one call.

        Args:
            session_id: whose previous prompt to compare with.
            prompt: (P,) token ids.
            completion: ids of the first generated tokens, or None when nothing generated is known in advance.
            num_completion_tokens: how many tokens will be generated; those without an id get fresh, never shared ones.
        """
        size = self.block_size
        tokens = prompt if completion is None else np.concatenate((prompt, completion[:num_completion_tokens]))
        num_known = len(tokens) // size
        ids = self._common_prefix(session_id, tokens)
        first_new = self.num_chains
        num_shared = self._extend(ids, tokens, num_known, first_new)
        self._remember(session_id, _Previous(tokens, ids))
        num_full = (len(prompt) + num_completion_tokens) // size
        chain = np.empty(num_full, dtype=np.int64)
        chain[:num_known] = ids
        # Blocks with generated tokens that nobody knows: fresh ids, so that no later prompt can match them.
        chain[num_known:] = np.arange(self.num_chains, self.num_chains + num_full - num_known)
        self.num_chains += num_full - num_known
        return Chain(chain, min(num_shared, len(prompt) // size) * size)

    def _common_prefix(self, session_id: str, tokens: TokenIds) -> list[int]:
        previous = self._sessions.get(session_id)
        if previous is None:
            return []
        length = min(len(tokens), len(previous.tokens))
        differs = tokens[:length] != previous.tokens[:length]
        common = length
        if length and differs[first := int(differs.argmax())]:
            common = first
        return previous.chain[: common // self.block_size]

    def _extend(self, ids: list[int], tokens: TokenIds, num_blocks: int, first_new: int) -> int:
        """Append the chain ids of the remaining blocks; returns how many leading blocks existed before."""
        start = len(ids)
        num_shared = start
        parent = ids[-1] if ids else _ROOT
        width = self.block_size * tokens.itemsize
        raw = tokens[start * self.block_size : num_blocks * self.block_size].tobytes()
        known = self._ids
        next_id = self.num_chains
        for offset in range(0, len(raw), width):
            key = (parent << 64) | (hash(raw[offset : offset + width]) & _MASK)
            parent = known.setdefault(key, next_id)
            if parent == next_id:
                next_id += 1
            elif parent < first_new:
                num_shared += 1
            ids.append(parent)
        self.num_chains = next_id
        return num_shared

    def _remember(self, session_id: str, previous: _Previous) -> None:
        self._sessions[session_id] = previous
        self._sessions.move_to_end(session_id)
        if len(self._sessions) > _MAX_SESSIONS:
            self._sessions.popitem(last=False)

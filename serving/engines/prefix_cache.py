"""A prefix cache and nothing else: what every prompt could have hit, no time, no queue, no scheduler.

For re-rendering recorded runs (`python -m orchestrator rerender`, ReFold section 4.4). `PrefixCacheEngine` is the
configuration (`conf/engine/prefix_cache.yaml`), `PrefixCacheReplica` the cache behind `serving.interfaces.Replica`.
Calls take no time and are served one after another in the order they were made; every time, queue and preemption
figure is None.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import ClassVar

from serving.calls import CallRequest, CallResult, EngineTimings, FinishReason, ReplicaSample, TokenUsage
from serving.errors import ContextOverflow, ReplicaLost, ReplicaRejected, ServingError
from serving.interfaces import Clock
from serving.sim.block_hash import ChainInterner
from serving.sim.step_time import Hardware, ModelShape


class BlockCache:
    """Which blocks of token ids are kept, by chain id (a block and everything before it).

    Args:
        num_blocks: blocks kept at most, the least recently used go first; None keeps all.

    Of one call's blocks the last is the first to go, as in vLLM, where a request frees its blocks tail first: a block
    is of no use without those before it.
    """

    def __init__(self, num_blocks: int | None) -> None:
        self.num_blocks = num_blocks
        self._blocks: OrderedDict[int, None] = OrderedDict()

    def __len__(self) -> int:
        """Blocks kept."""
        return len(self._blocks)

    def num_hits(self, chain: list[int]) -> int:
        """How many leading blocks of `chain` are kept."""
        blocks = self._blocks
        for index, block in enumerate(chain):
            if block not in blocks:
                return index
        return len(chain)

    def keep(self, chain: list[int]) -> None:
        """Take in a call's blocks, or mark them as just used, and evict what is too much."""
        blocks = self._blocks
        if self.num_blocks is None:
            blocks.update(dict.fromkeys(chain))
            return
        for block in reversed(chain):
            blocks[block] = None
            blocks.move_to_end(block)
        while len(blocks) > self.num_blocks:
            blocks.popitem(last=False)

    def clear(self) -> None:
        """Forget everything."""
        self._blocks.clear()


@dataclass(frozen=True, slots=True)
class PrefixCacheEngine:
    """Settings of a prefix cache without an engine around it.

    Attributes:
        block_size: tokens per block; None = the model's on its hardware, as vLLM chooses it.
        num_blocks: blocks kept at most, least recently used first to go; None = no limit.
        max_model_len: longest sequence that is taken; None = no limit.

    A hybrid model's recurrent states are taken as kept at every block [choice]: the hit is what its attention blocks
    allow, an upper bound of what vLLM's cache gives.
    Source: block hashes as in vLLM 0.32.0 (see `serving.sim.block_hash`); ReFold (arXiv 2610.07863) section 4.4.
    """

    REVISION: ClassVar[int] = 1
    has_times: ClassVar[bool] = False

    block_size: int | None = None
    num_blocks: int | None = None
    max_model_len: int | None = None

    def __post_init__(self) -> None:
        for name in ("block_size", "num_blocks", "max_model_len"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ServingError(f"engine.{name}={value}: give at least 1, or null")

    def replica(self, replica_id: str, model: ModelShape, hardware: Hardware, clock: Clock) -> PrefixCacheReplica:
        """An empty cache for one model."""
        block_size = self.block_size or model.block_size(hardware.num_gpus)
        return PrefixCacheReplica(
            replica_id,
            model.name,
            clock,
            block_size=block_size,
            num_blocks=self.num_blocks,
            max_model_len=self.max_model_len,
        )


class PrefixCacheReplica:
    """One prefix cache.

    Invariants: cached tokens are a multiple of the block size and leave at least one token of the prompt to compute;
    without a limit they equal the longest prefix, in whole blocks, that any earlier call put into the cache.
    """

    def __init__(
        self,
        replica_id: str,
        model: str,
        clock: Clock,
        *,
        block_size: int,
        num_blocks: int | None = None,
        max_model_len: int | None = None,
    ) -> None:
        self.replica_id = replica_id
        self.model = model
        self._clock = clock
        self._block_size = block_size
        self._max_model_len = max_model_len
        self._interner = ChainInterner(block_size)
        self._cache = BlockCache(num_blocks)
        self._queries_tokens = 0
        self._hits_tokens = 0
        self._is_closed = False

    async def generate(self, call: CallRequest) -> CallResult:
        """Serve one call at once; see `serving.interfaces.Replica`. The stamps of the result are all the same moment.

        Raises:
            ReplicaLost: the cache is closed.
            ReplicaRejected: the call has no pinned reply.
            ContextOverflow: the prompt is not shorter than max_model_len.
        """
        await self._clock.sleep(0)
        if self._is_closed:
            raise ReplicaLost(f"replica {self.replica_id} is closed")
        if call.pinned is None:
            raise ReplicaRejected(
                f"call {call.call_id}: a prefix cache needs a pinned reply (policy replay or scripted)"
            )
        num_prompt, limit = call.prompt.num_tokens, self._max_model_len
        if limit is not None and num_prompt >= limit:
            raise ContextOverflow(f"prompt of {num_prompt} tokens, max_model_len is {limit}")
        num_wanted = max(1, min(call.pinned.num_tokens, call.max_completion_tokens))
        num_completion = num_wanted if limit is None else min(num_wanted, limit - num_prompt)
        cached, shared = self._look_up(call, num_completion)
        now_s = self._clock.now_s()
        return CallResult(
            message=call.pinned.message,
            usage=TokenUsage(num_prompt, cached, num_completion, "engine"),
            timings=EngineTimings(max_shared_tokens=shared),
            sent_s=now_s,
            first_token_s=now_s,
            last_token_s=now_s,
            finish_reason=FinishReason.length if num_completion < call.pinned.num_tokens else FinishReason.stop,
        )

    def _look_up(self, call: CallRequest, num_completion: int) -> tuple[int, int]:
        """(cached tokens, tokens shared with any earlier call); the call's own blocks are in the cache afterwards."""
        assert call.pinned is not None
        size, num_prompt = self._block_size, call.prompt.num_tokens
        chain = self._interner.chain(call.session_id, call.prompt.ids(), call.pinned.ids, num_completion)
        blocks = chain.ids.tolist()
        # One token of the prompt is always computed, to have something to sample from.
        cached = self._cache.num_hits(blocks[: (num_prompt - 1) // size]) * size
        # The last generated token is never fed back, so it has no entry in the cache.
        self._cache.keep(blocks[: (num_prompt + num_completion - 1) // size])
        self._queries_tokens += num_prompt
        self._hits_tokens += cached
        return cached, chain.num_shared_tokens

    def sample(self) -> ReplicaSample:
        """Counters now; nothing runs or waits, and a cache without limit is never full."""
        limit = self._cache.num_blocks
        usage = len(self._cache) / limit if limit else 0.0
        return ReplicaSample(
            t_s=self._clock.now_s(),
            kv_usage=usage,
            kv_usage_peak=usage,
            num_running=0,
            num_waiting=0,
            num_preemptions_total=0,
            prefix_queries_tokens=self._queries_tokens,
            prefix_hits_tokens=self._hits_tokens,
        )

    def drain_samples(self) -> list[ReplicaSample]:
        """None: load over time has no meaning without time."""
        return []

    async def reset_prefix_cache(self) -> None:
        """Empty the cache."""
        self._cache.clear()

    async def close(self) -> None:
        """Refuse further calls."""
        self._is_closed = True

"""The oracle: vLLM's own scheduler and KV-cache manager, driven without a model, a GPU or a server.

For the equality tests of `serving.sim` (fuzz, golden traces): the same requests, step by step, through
`vllm.v1.core.sched.scheduler.Scheduler` with a runner that returns made-up tokens. vLLM is imported inside functions,
so that this module can be imported where vllm is absent. The classes used are private to vLLM: pin its version.
Source: vLLM 0.32.0; the construction follows its own `tests/v1/core/utils.py`.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from serving.sim.block_hash import TokenIds
from serving.sim.kv_cache import CacheLayout, GroupKind
from serving.sim.scheduler import SchedulerLimits
from serving.sim.trace import StepRecord

# Any shape that vLLM accepts: the scheduler never looks at it, its KV layout comes from `CacheLayout`.
_MODEL_SHAPE = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "vocab_size": 32000,
    "max_position_embeddings": 1_000_000,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "torch_dtype": "float32",
}


class VllmScheduler:
    """One engine's real scheduler.

    Args:
        limits, layout: as for `serving.sim.scheduler.Scheduler`.
    Raises:
        ImportError: vllm is not installed in this environment.
    """

    def __init__(self, limits: SchedulerLimits, layout: CacheLayout) -> None:
        for name, value in (("VLLM_LOGGING_LEVEL", "ERROR"), ("HF_HUB_OFFLINE", "1"), ("VLLM_NO_USAGE_STATS", "1")):
            os.environ.setdefault(name, value)
        from vllm.utils.hashing import get_hash_fn_by_name
        from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash

        self.layout = layout
        self._completions: dict[str, TokenIds] = {}
        hash_function = get_hash_fn_by_name("sha256")
        init_none_hash(hash_function)
        caching = layout.enable_prefix_caching
        self._hasher = get_request_block_hasher(layout.block_size, hash_function) if caching else None
        self.scheduler = _build(limits, layout)

    def add(self, request_id: str, session_id: str, prompt: TokenIds, completion: TokenIds) -> None:
        """Queue a request that will generate exactly `completion`."""
        from vllm.sampling_params import SamplingParams
        from vllm.v1.request import Request

        params = SamplingParams(max_tokens=len(completion), ignore_eos=True)
        params.update_from_generation_config({}, None)
        request = Request(
            request_id=request_id,
            prompt_token_ids=prompt.tolist(),
            sampling_params=params,
            pooling_params=None,
            block_hasher=self._hasher,
        )
        self._completions[request_id] = completion
        self.scheduler.add_request(request)

    def abort(self, request_ids: Iterable[str]) -> None:
        """Drop requests between steps."""
        from vllm.v1.request import RequestStatus

        # One by one: vLLM turns a list into a set, whose order (and so the free list) differs between processes.
        for request_id in request_ids:
            self.scheduler.finish_requests(request_id, RequestStatus.FINISHED_ABORTED)

    @property
    def has_work(self) -> bool:
        """Whether anything waits or runs."""
        return bool(self.scheduler.has_unfinished_requests())

    def step(self) -> StepRecord:
        """Schedule one step, let the made-up runner answer, process its tokens."""
        from vllm.v1.outputs import ModelRunnerOutput

        output = self.scheduler.schedule()
        scheduled: dict[str, int] = dict(output.num_scheduled_tokens)
        admitted = {new.req_id: new.num_computed_tokens for new in output.scheduled_new_reqs}
        resumed = output.scheduled_cached_reqs
        for request_id, computed in zip(resumed.req_ids, resumed.num_computed_tokens, strict=True):
            if request_id in resumed.resumed_req_ids:
                admitted[request_id] = computed
        num_free = self.scheduler.kv_cache_manager.block_pool.get_num_free_blocks()
        ids = list(scheduled)
        tokens = [self._sample(request_id) for request_id in ids]
        index = {request_id: position for position, request_id in enumerate(ids)}
        answer = ModelRunnerOutput(req_ids=ids, req_id_to_index=index, sampled_token_ids=tokens)
        outputs = self.scheduler.update_from_output(output, answer)
        finished = [
            item.request_id for per in outputs.values() for item in per.outputs if item.finish_reason is not None
        ]
        preempted = frozenset(output.preempted_req_ids or ())
        return StepRecord(scheduled, admitted, preempted, tuple(finished), num_free)

    def _sample(self, request_id: str) -> list[int]:
        request = self.scheduler.requests[request_id]
        if request.is_prefill_chunk:
            return []
        return [int(self._completions[request_id][request.num_output_tokens])]

    def num_free_blocks(self) -> int:
        """Free blocks now."""
        return int(self.scheduler.kv_cache_manager.block_pool.get_num_free_blocks())

    def free_blocks(self) -> list[int]:
        """Ids of the free blocks in eviction order."""
        queue = self.scheduler.kv_cache_manager.block_pool.free_block_queue
        return [block.block_id for block in queue.get_all_free_blocks()]


def _build(limits: SchedulerLimits, layout: CacheLayout) -> Any:
    from vllm.config import CacheConfig, DeviceConfig, ModelConfig, SchedulerConfig, VllmConfig
    from vllm.v1.core.sched.scheduler import Scheduler
    from vllm.v1.structured_output import StructuredOutputManager

    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps(_MODEL_SHAPE))
        model = ModelConfig(
            model=folder, skip_tokenizer_init=True, dtype="float32", max_model_len=limits.max_model_len, seed=0
        )
    scheduling = SchedulerConfig(
        max_num_seqs=limits.max_num_seqs,
        max_num_batched_tokens=limits.max_num_batched_tokens,
        max_model_len=limits.max_model_len,
        long_prefill_token_threshold=limits.long_prefill_token_threshold,
        scheduler_reserve_full_isl=limits.reserve_full_sequence,
        watermark=limits.watermark,
        enable_chunked_prefill=True,
        is_encoder_decoder=False,
        async_scheduling=False,
    )
    cache = CacheConfig(block_size=layout.block_size, enable_prefix_caching=layout.enable_prefix_caching)
    config = VllmConfig(
        model_config=model, scheduler_config=scheduling, cache_config=cache, device_config=DeviceConfig("cpu")
    )
    # After VllmConfig's own checks, which would adapt both to the stand-in model.
    config.cache_config.num_gpu_blocks = layout.num_blocks
    config.cache_config.block_size = layout.block_size
    config.scheduler_config.max_num_batched_tokens = limits.max_num_batched_tokens
    if layout.num_state_groups:
        config.cache_config.mamba_cache_mode = "align" if layout.enable_prefix_caching else "none"
    return Scheduler(
        vllm_config=config,
        kv_cache_config=_kv_cache_config(limits, layout),
        structured_output_manager=StructuredOutputManager(config),
        block_size=layout.block_size if layout.enable_prefix_caching else _lcm_block_size(limits, layout),
        hash_block_size=layout.block_size if layout.enable_prefix_caching else _lcm_block_size(limits, layout),
        log_stats=True,
    )


def _state_block_size(limits: SchedulerLimits, layout: CacheLayout) -> int:
    # Without prefix caching vLLM gives a state block the whole model length: one per sequence.
    if layout.enable_prefix_caching:
        return layout.block_size
    return -(-limits.max_model_len // layout.block_size) * layout.block_size


def _lcm_block_size(limits: SchedulerLimits, layout: CacheLayout) -> int:
    return _state_block_size(limits, layout) if layout.num_state_groups else layout.block_size


def _kv_cache_config(limits: SchedulerLimits, layout: CacheLayout) -> Any:
    import torch
    from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec, MambaSpec

    attention = FullAttentionSpec(block_size=layout.block_size, num_kv_heads=1, head_size=8, dtype=torch.float32)
    state = MambaSpec(
        shapes=((8, 8),),
        dtypes=(torch.float32,),
        block_size=_state_block_size(limits, layout),
        page_size_padded=attention.page_size_bytes,
        mamba_cache_mode="align" if layout.enable_prefix_caching else "none",
    )
    groups = [
        KVCacheGroupSpec([f"layer.{index}"], attention if kind is GroupKind.attention else state)
        for index, kind in enumerate(layout.groups)
    ]
    interval = layout.retention_interval if layout.num_state_groups and layout.enable_prefix_caching else 0
    return KVCacheConfig(
        num_blocks=layout.num_blocks,
        kv_cache_tensors=[],
        kv_cache_groups=groups,
        prefix_cache_retention_interval=interval,
    )

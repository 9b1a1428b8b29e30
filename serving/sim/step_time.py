"""How long one engine step takes, and how many KV blocks fit: roofline arithmetic over a model shape and a GPU.

For `serving.sim.engine` and the dry run. Decisions are vLLM's (see `scheduler`); only time is a model, and this one is
arithmetic over data-sheet figures, not a measurement: every efficiency is an assumption written down in conf/hardware.
Source: roofline terms as in BLIS (inference-sim, `sim/latency`): weights, attention, states, collectives, overheads;
block size and page sizes: vLLM 0.32.0, `platforms/interface.py`, `kv_cache_utils.py`; defaults: `engine/arg_utils.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol

from serving.sim.kv_cache import GroupKind

_GIB = 1024**3
_BF16_BYTES = 2
_FP32_BYTES = 4


class StepBatch(NamedTuple):
    """What one step computes.

    num_prefill_tokens: tokens of chunks longer than one. prefill_pairs: sum over those tokens of the positions each one
    attends to. num_decodes: sequences that compute one token; decode_context_tokens: sum of their lengths.
    num_prefills: sequences with a chunk.
    """

    num_prefill_tokens: int
    prefill_pairs: int
    num_prefills: int
    num_decodes: int
    decode_context_tokens: int


class StepTimeModel(Protocol):
    """Seconds of one step; a pure function of the batch."""

    def step_time_s(self, batch: StepBatch) -> float:
        """Seconds this batch takes, > 0."""
        ...


@dataclass(frozen=True, slots=True)
class ModelShape:
    """Sizes of a model, bf16 weights and KV. Parameters are counts, not bytes.

    Attributes:
        num_core_parameters: weights read for every token batch, experts, embedding and head excluded.
        num_expert_parameters: all routed experts together (0: dense); num_experts_per_token of num_experts are used.
        num_head_parameters, num_embedding_parameters: output head; input embedding (looked up, not read as a whole).
        num_extra_parameters: loaded but not used by text (vision tower).
        num_linear_layers: recurrent layers (GatedDeltaNet); their state is fp32, their convolution state bf16.
        usd_per_mtok_...: list prices per million tokens; they change no result and are no part of a cell's identity.
    """

    name: str
    num_attention_layers: int
    num_linear_layers: int
    hidden_size: int
    num_attention_heads: int
    num_kv_heads: int
    head_dim: int
    num_core_parameters: int
    num_head_parameters: int
    num_embedding_parameters: int
    num_extra_parameters: int = 0
    num_expert_parameters: int = 0
    num_experts: int = 1
    num_experts_per_token: int = 0
    linear_num_key_heads: int = 0
    linear_num_value_heads: int = 0
    linear_head_dim: int = 0
    linear_conv_width: int = 0
    max_position_tokens: int = 262144
    usd_per_mtok_uncached: float | None = None
    usd_per_mtok_cached: float | None = None
    usd_per_mtok_completion: float | None = None

    PROVENANCE: ClassVar[frozenset[str]] = frozenset(
        {"usd_per_mtok_uncached", "usd_per_mtok_cached", "usd_per_mtok_completion"}
    )

    def prices_usd_per_mtok(self) -> dict[str, float] | None:
        """Prices per million tokens as the attempt's snapshot holds them; None when the model has none."""
        prices = (self.usd_per_mtok_uncached, self.usd_per_mtok_cached, self.usd_per_mtok_completion)
        if any(price is None for price in prices):
            return None
        return {
            name: price
            for name, price in zip(("uncached", "cached", "completion"), prices, strict=True)
            if price is not None
        }

    def cache_sizes(self) -> dict[str, int]:
        """kappa and s of the whole model (ReFold A.3): KV bytes per token, state bytes per sequence, all GPUs."""
        return {
            "bytes_per_token": self.kv_bytes_per_token_and_layer(1) * self.num_attention_layers,
            "state_bytes": self.state_bytes_per_layer(1) * self.num_linear_layers,
        }

    @property
    def num_layers(self) -> int:
        """All layers."""
        return self.num_attention_layers + self.num_linear_layers

    def kv_bytes_per_token_and_layer(self, tensor_parallel: int) -> int:
        """Keys and values of one token in one attention layer on one GPU."""
        return max(1, self.num_kv_heads // tensor_parallel) * self.head_dim * 2 * _BF16_BYTES

    def state_bytes_per_layer(self, tensor_parallel: int) -> int:
        """Recurrent and convolution state of one sequence in one linear layer on one GPU."""
        recurrent = self.linear_num_value_heads * self.linear_head_dim**2 * _FP32_BYTES
        channels = (2 * self.linear_num_key_heads + self.linear_num_value_heads) * self.linear_head_dim
        convolution = channels * max(0, self.linear_conv_width - 1) * _BF16_BYTES
        return (recurrent + convolution) // tensor_parallel

    def weight_bytes(self, tensor_parallel: int) -> int:
        """Weights on one GPU."""
        parameters = (
            self.num_core_parameters
            + self.num_expert_parameters
            + self.num_head_parameters
            + self.num_embedding_parameters
            + self.num_extra_parameters
        )
        return parameters * _BF16_BYTES // tensor_parallel

    def block_size(self, tensor_parallel: int, granularity: int = 16) -> int:
        """Tokens per KV block: 16, or for a hybrid the smallest multiple whose page holds one layer's state."""
        if not self.num_linear_layers:
            return granularity
        page = granularity * self.kv_bytes_per_token_and_layer(tensor_parallel)
        return granularity * -(-self.state_bytes_per_layer(tensor_parallel) // page)

    def groups(self) -> tuple[GroupKind, ...]:
        """vLLM's cache groups, in the order of the first layer of each kind: equal numbers of layers per group."""
        if not self.num_linear_layers:
            return (GroupKind.attention,)
        num_state_groups = -(-self.num_linear_layers // self.num_attention_layers)
        return (GroupKind.state,) * num_state_groups + (GroupKind.attention,)

    def block_bytes(self, tensor_parallel: int) -> int:
        """One pool block on one GPU: one page for each layer of a group."""
        page = self.block_size(tensor_parallel) * self.kv_bytes_per_token_and_layer(tensor_parallel)
        return page * self.num_attention_layers


@dataclass(frozen=True, slots=True)
class Hardware:
    """One replica's GPUs, all in one tensor-parallel group. Data-sheet figures and assumed efficiencies.

    Attributes:
        memory_bytes: what the driver reports per GPU.
        peak_flops: dense bf16 per GPU; prefill_efficiency is the share of it that prefill reaches.
        bandwidth_efficiency: share of the memory bandwidth that decode reaches.
        allreduce_latency_s, allreduce_bytes_s: one all-reduce costs latency + bytes / rate; two per layer.
        step_overhead_s, sequence_overhead_s: host work per step and per sequence in it.
        uses_small_batches: vLLM's A100 exception (budget 2,048 in spite of 80 GB).
    """

    name: str
    num_gpus: int
    memory_bytes: int
    memory_bytes_s: float
    peak_flops: float
    bandwidth_efficiency: float
    prefill_efficiency: float
    allreduce_latency_s: float
    allreduce_bytes_s: float
    step_overhead_s: float = 126e-6
    sequence_overhead_s: float = 4e-6
    uses_small_batches: bool = False

    def default_max_num_batched_tokens(self) -> int:
        """vLLM's default token budget of the API server on this GPU."""
        if self.memory_bytes >= 160 * _GIB:
            return 16384
        return 8192 if self.memory_bytes >= 70 * _GIB and not self.uses_small_batches else 2048

    def default_max_num_seqs(self) -> int:
        """vLLM's default for `max_num_seqs` on this GPU."""
        return 256 if self.default_max_num_batched_tokens() == 2048 else 1024


def num_kv_blocks(model: ModelShape, hardware: Hardware, *, utilization: float, reserved_bytes: int) -> int:
    """Blocks of the KV pool: what utilisation leaves after weights and the reserve, per GPU; may be <= 0.

    Args:
        utilization: gpu_memory_utilization, 0..1.
        reserved_bytes: activations, CUDA graphs, collectives and runtime per GPU (an assumption).
    """
    left = int(hardware.memory_bytes * utilization) - model.weight_bytes(hardware.num_gpus) - reserved_bytes
    return left // model.block_bytes(hardware.num_gpus)


class Roofline:
    """Step time from a model shape and hardware.

    seconds = max(weights / bandwidth, matrix FLOPs / compute) + attention + states + collectives + overheads.
    """

    def __init__(self, model: ModelShape, hardware: Hardware) -> None:
        gpus = hardware.num_gpus
        bandwidth = hardware.memory_bytes_s * hardware.bandwidth_efficiency
        compute = hardware.peak_flops * hardware.prefill_efficiency
        active = model.num_core_parameters
        if model.num_expert_parameters:
            active += model.num_expert_parameters * model.num_experts_per_token // model.num_experts
        self._token_s = 2 * active / gpus / compute
        self._sample_s = 2 * model.num_head_parameters / gpus / compute
        dense = model.num_core_parameters + model.num_head_parameters
        self._weights_s = dense * _BF16_BYTES / gpus / bandwidth
        self._experts_s = model.num_expert_parameters * _BF16_BYTES / gpus / bandwidth
        self._expert_miss = 1.0 - model.num_experts_per_token / model.num_experts
        heads = model.num_attention_heads * model.head_dim * model.num_attention_layers
        self._pair_s = 4 * heads / gpus / compute
        self._context_s = model.kv_bytes_per_token_and_layer(gpus) * model.num_attention_layers / bandwidth
        state_bytes = model.state_bytes_per_layer(gpus) * model.num_linear_layers
        self._sequence_s = 2 * state_bytes / bandwidth + hardware.sequence_overhead_s
        collectives = 2 * model.num_layers if gpus > 1 else 0
        self._fixed_s = hardware.step_overhead_s + collectives * hardware.allreduce_latency_s
        self._token_comm_s = collectives * model.hidden_size * _BF16_BYTES / hardware.allreduce_bytes_s

    def step_time_s(self, batch: StepBatch) -> float:
        """Seconds this batch takes."""
        num_prefill, pairs, num_prefills, num_decodes, context = batch
        num_tokens = num_prefill + num_decodes
        num_sequences = num_prefills + num_decodes
        weights_s = self._weights_s
        if self._experts_s:
            weights_s += self._experts_s * (1.0 - self._expert_miss**num_tokens)
        matrix_s = num_tokens * self._token_s + num_sequences * self._sample_s
        return (
            (weights_s if weights_s > matrix_s else matrix_s)
            + pairs * self._pair_s
            + context * self._context_s
            + num_sequences * self._sequence_s
            + num_tokens * self._token_comm_s
            + self._fixed_s
        )

"""Block sizes, pool size and step times against vLLM's rule and the hand-calculated roofline."""

from __future__ import annotations

from pathlib import Path

import pytest
from omegaconf import OmegaConf

from serving.engines.simulated import EngineSettingError, SimulatedEngine
from serving.sim.step_time import Hardware, ModelShape, Roofline, StepBatch

_CONF = Path(__file__).resolve().parents[4] / "conf"


def load_model(name: str) -> ModelShape:
    """A model of conf/model."""
    node = OmegaConf.to_container(OmegaConf.load(_CONF / "model" / f"{name}.yaml"))
    assert isinstance(node, dict)
    assert node.pop("_target_") == "serving.sim.step_time.ModelShape"
    return ModelShape(**{str(key): value for key, value in node.items()})


def load_hardware(name: str) -> Hardware:
    """Hardware of conf/hardware."""
    node = OmegaConf.to_container(OmegaConf.load(_CONF / "hardware" / f"{name}.yaml"))
    assert isinstance(node, dict)
    assert node.pop("_target_") == "serving.sim.step_time.Hardware"
    return Hardware(**{str(key): value for key, value in node.items()})


@pytest.mark.parametrize(
    ("model", "gpus", "block_size", "state_bytes"),
    [
        ("qwen3_6_27b", 1, 784, 3_207_168),
        ("qwen3_6_27b", 2, 784, 1_603_584),
        ("qwen3_6_35b_a3b", 2, 1056, 1_073_152),
        ("qwen3_8b", 1, 16, 0),
    ],
)
def test_block_size_follows_vllms_rule(model: str, gpus: int, block_size: int, state_bytes: int) -> None:
    """The attention page is raised to the state page in steps of 16 tokens; 784 is what vLLM reports (vllm#54607)."""
    shape = load_model(model)
    assert shape.block_size(gpus) == block_size
    assert shape.state_bytes_per_layer(gpus) == state_bytes


def test_pool_block_of_the_27b() -> None:
    """One pool block = 16 layers x 784 tokens x 2 KiB = 25.7 MB per GPU with two GPUs, in 1 + 3 groups."""
    shape = load_model("qwen3_6_27b")
    assert shape.block_bytes(2) == 16 * 784 * 2048
    assert [kind.value for kind in shape.groups()] == ["state", "state", "state", "attention"]


def test_pool_size_on_two_rtx_6000_ada() -> None:
    """13.6 to 15.5 GB of KV per GPU, 530 to 600 blocks of 784 tokens."""
    plan = SimulatedEngine().plan(load_model("qwen3_6_27b"), load_hardware("rtx6000ada_x2"))
    described = plan.describe()
    assert 530 <= plan.layout.num_blocks <= 600
    assert 13.6 <= float(described["kv_pool_gb_per_gpu"]) <= 15.5
    assert (described["max_num_batched_tokens"], described["max_num_seqs"]) == (2048, 256)


@pytest.mark.parametrize(
    ("hardware", "tokens", "seqs"), [("rtx6000ada_x2", 2048, 256), ("h200", 8192, 1024), ("a100", 2048, 256)]
)
def test_default_batch_limits(hardware: str, tokens: int, seqs: int) -> None:
    """vLLM's API-server defaults by GPU memory; the A100 keeps the small ones."""
    gpu = load_hardware(hardware)
    assert (gpu.default_max_num_batched_tokens(), gpu.default_max_num_seqs()) == (tokens, seqs)


@pytest.mark.parametrize(
    ("num_decodes", "context", "low_ms", "high_ms"),
    [(1, 16384, 34, 37), (8, 16384, 41, 44), (16, 20480, 51, 54), (32, 12288, 58, 61)],
)
def test_decode_step_of_the_27b(num_decodes: int, context: int, low_ms: float, high_ms: float) -> None:
    """Decode steps on two RTX 6000 Ada, hand-calculated: weights 31.4 ms, 32 KiB of KV per token, 77 MB of state."""
    roofline = Roofline(load_model("qwen3_6_27b"), load_hardware("rtx6000ada_x2"))
    step_ms = 1e3 * roofline.step_time_s(StepBatch(0, 0, 0, num_decodes, num_decodes * context))
    assert low_ms <= step_ms <= high_ms


@pytest.mark.parametrize(("context", "low", "high"), [(16384, 4300, 5200), (60000, 3500, 4300)])
def test_prefill_rate_of_the_27b(context: int, low: float, high: float) -> None:
    """A chunk of 2,048 tokens after `context`: tokens per second between the hand-calculated bounds."""
    roofline = Roofline(load_model("qwen3_6_27b"), load_hardware("rtx6000ada_x2"))
    pairs = 2048 * context + 2048 * 2049 // 2
    assert low <= 2048 / roofline.step_time_s(StepBatch(2048, pairs, 1, 0, 0)) <= high


def test_experts_are_read_as_the_batch_reaches_them() -> None:
    """One token reads 8 of 256 experts, many tokens read nearly all: a batch costs more than its weights suggest."""
    roofline = Roofline(load_model("qwen3_6_35b_a3b"), load_hardware("h200"))
    one, many = (roofline.step_time_s(StepBatch(0, 0, 0, size, 0)) for size in (1, 256))
    # 2 bytes of 32.2e9 x 31/32 parameters more at 4.8 TB/s x 0.85 = 15.3 ms; states and overheads on top.
    assert 0.0153 < many - one < 0.035


def test_impossible_settings_are_one_clear_line() -> None:
    """A model that does not fit, or a sequence longer than the pool, names the value and the remedy."""
    model, gpu = load_model("qwen3_6_27b"), load_hardware("rtx6000ada_x2")
    with pytest.raises(EngineSettingError, match="gpu_memory_utilization"):
        SimulatedEngine(gpu_memory_utilization=0.5).plan(model, gpu)
    with pytest.raises(EngineSettingError, match="max_model_len=200000"):
        SimulatedEngine(num_kv_blocks=100, max_model_len=200_000).plan(model, gpu)
    with pytest.raises(EngineSettingError, match="prefix_cache_retention_interval"):
        SimulatedEngine(prefix_cache_retention_interval=1000).plan(model, gpu)

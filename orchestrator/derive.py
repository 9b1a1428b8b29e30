"""Figures a cell's settings come to: KV pool, engine limits, step times, prices, cache sizes.

For the dry run, for the snapshot stored with every attempt and for the tables, which compute cost and KV from `prices`
and `kv` at query time. All of it is provenance: what it is derived from is identity already.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from orchestrator.cells import TypedConfig
from orchestrator.errors import ConfigError
from serving.errors import ServingError
from serving.sim.step_time import Hardware, ModelShape, Roofline, StepBatch

# Batches whose modelled time the plan shows: name -> (decoding sequences as a share of w, context, prefill tokens).
_DECODE_CONTEXT_TOKENS = 16_384
_PREFILL_CHUNK_TOKENS = 2_048


def derived_figures(typed: TypedConfig, made: Mapping[str, Any], *, budget_tokens: int) -> dict[str, Any]:
    """Engine figures per model name, or nothing for an engine whose figures are its server's own.

    Raises:
        ConfigError: no engine could start with these settings.
    """
    engine, hardware, config = made["engine"], made["hardware"], typed.config
    if typed.components["engine"].kind != "simulated":
        return {}
    if config["context_budget_tokens"] is not None and engine.max_model_len is None:
        # As the attempt does: a capped budget also caps the engine (orchestrator.attempt.engine_of).
        engine = replace(engine, max_model_len=budget_tokens + config["limits"]["max_completion_tokens"])
    figures = {}
    for model in (made["model"], made.get("second_model")):
        if model is not None:
            try:
                described = engine.plan(model, hardware).describe()
            except (ServingError, ValueError) as exc:
                raise ConfigError(f"engine: {exc}") from exc
            figures[model.name] = {**described, **step_times(model, hardware, num_workers=config["num_workers"])}
    return figures


def step_times(model: ModelShape, hardware: Hardware, *, num_workers: int) -> dict[str, float]:
    """Modelled milliseconds of three steps: one decode, w decodes, one prefill chunk."""
    roofline = Roofline(model, hardware)
    context, chunk = _DECODE_CONTEXT_TOKENS, _PREFILL_CHUNK_TOKENS
    batches = {
        "step_ms_one_decode_16k": StepBatch(0, 0, 0, 1, context),
        "step_ms_w_decodes_16k": StepBatch(0, 0, 0, num_workers, num_workers * context),
        "step_ms_prefill_2k": StepBatch(chunk, chunk * (chunk + 1) // 2, 1, 0, 0),
    }
    return {name: round(roofline.step_time_s(batch) * 1e3, 3) for name, batch in batches.items()}


def model_facts(made: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """`prices` (USD per million tokens) and `kv` (cache sizes) by model name, as `Attempt.config_json` holds them.

    A model without prices has no entry in `prices`: its cost is unknown, never 0.
    """
    models = [model for model in (made["model"], made.get("second_model")) if model is not None]
    prices = {model.name: model.prices_usd_per_mtok() for model in models}
    return {
        "prices": {name: price for name, price in prices.items() if price is not None},
        "kv": {model.name: model.cache_sizes() for model in models},
    }

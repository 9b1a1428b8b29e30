"""The simulated engine's core: vLLM's scheduler and KV cache re-implemented for speed, and a model of step time.

    block_hash -> block_pool -> kv_cache -> scheduler -> stretch -> engine;  step_time: seconds and pool sizes

Nothing here knows asyncio or a clock. `trace` holds what the equality tests against the real scheduler share.
"""

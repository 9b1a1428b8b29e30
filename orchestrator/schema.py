"""The typed root of the configuration: scalars, limits, trust thresholds and one node per component group.

Group nodes are `Any` here; `orchestrator.build` types each by the class its `_target_` names. Every field is classified
as identity (part of the cell key) or provenance (stored, never part of the key); a golden test holds the
classification.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from omegaconf import MISSING

# Groups whose node is a component object, in the order the configuration shows them.
COMPONENT_GROUPS = (
    "model",
    "hardware",
    "engine",
    "router",
    "renderer",
    "harness",
    "policy",
    "environment",
    "benchmark",
    "tokens",
    "executor",
)
# Groups of plain settings.
SETTING_GROUPS = ("cluster", "db")
# Root nodes that take an option of another group: node -> group.
EXTRA_NODES = {"second_model": "model"}


@dataclass
class LimitsConfig:
    """When a session is stopped; see `workers.limits`. Source: ReFold section 4.1, Table 5."""

    max_steps: int = 250
    max_completion_tokens: int = 16_384
    idle_timeout_s: float = 600.0
    max_format_errors: int = 3


@dataclass
class TrustConfig:
    """Thresholds beyond which a cell is tainted. They are ours; the papers do not state any.

    Attributes:
        min_concurrency_share: time-weighted sessions in flight / w while unstarted tasks remain.
        max_loop_lag_ms: lateness of the worker's event loop, wall clock only.
        max_lost_calls: calls a session counted that have no row.
        max_negative_s: how far an interval may be below 0 (rounding of a clock), seconds.
    """

    min_concurrency_share: float = 0.95
    max_loop_lag_ms: float = 250.0
    max_lost_calls: int = 0
    max_negative_s: float = 1e-6


@dataclass
class RootConfig:
    """One cell's configuration, and how to run it."""

    model: Any = MISSING
    second_model: Any = None
    hardware: Any = MISSING
    engine: Any = MISSING
    router: Any = MISSING
    renderer: Any = MISSING
    harness: Any = MISSING
    policy: Any = MISSING
    environment: Any = MISSING
    benchmark: Any = MISSING
    tokens: Any = MISSING
    executor: Any = MISSING
    cluster: Any = MISSING
    db: Any = MISSING

    num_workers: int = 8
    replicas_per_model: int = 1
    context_budget_tokens: int | None = None
    temperature: float = 0.0
    seed: int = 0
    replicate: int = 1
    limits: LimitsConfig = field(default_factory=LimitsConfig)

    deadline_s: float = 86_400.0
    lease_s: float = 60.0
    trust: TrustConfig = field(default_factory=TrustConfig)
    rerun: Any = None
    dry_run: bool = False


# Root fields that are not component nodes. A field in neither set fails `cells.classify`.
IDENTITY_FIELDS = frozenset(
    {
        "num_workers",
        "replicas_per_model",
        "context_budget_tokens",
        "temperature",
        "seed",
        "replicate",
        "limits",
    }
)
PROVENANCE_FIELDS = frozenset({"cluster", "db", "deadline_s", "lease_s", "trust", "rerun", "dry_run"})

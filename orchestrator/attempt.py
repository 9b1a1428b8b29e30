"""An attempt put together from its plan: components, tasks, engines and the sessions' shared world.

Used in the process that runs the attempt (a Ray task in virtual time, each actor on wall-clock time). Nothing here
imports Ray, Hydra or SQLAlchemy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from orchestrator.build import build
from orchestrator.interfaces import AttemptPlan
from serving.calls import ReplicaView
from serving.interfaces import Clock, Replica, Router, TokenCounter
from workers.interfaces import Benchmark, EnvironmentLauncher, Harness, RowSink, Task
from workers.limits import Limits
from workers.session import SessionParts, SessionWorld
from workers.streams import SeededStreams


@dataclass(frozen=True)
class AttemptSetup:
    """The components of one attempt; make one per process and attempt."""

    plan: AttemptPlan
    benchmark: Benchmark
    harness: Harness
    launcher: EnvironmentLauncher
    router: Router
    counter: TokenCounter
    limits: Limits
    tasks: Sequence[Task]

    @property
    def config(self) -> Mapping[str, Any]:
        """The cell's configuration."""
        return self.plan.config

    @property
    def num_workers(self) -> int:
        """w."""
        return int(self.config["num_workers"])

    def parts(self, task: Task, ordinal: int, worker: str) -> SessionParts:
        """A fresh renderer, policy and streams for one session."""
        config = self.config
        return SessionParts(
            task=task,
            ordinal=ordinal,
            worker=worker,
            renderer=build(config["renderer"]),
            policy=build(config["policy"]),
            streams=SeededStreams(
                seed=int(config["seed"]),
                replicate=int(config["replicate"]),
                benchmark=str(config["benchmark"]["_target_"]),
                task_id=task.task_id,
            ),
        )

    def world(
        self, *, replicas: Mapping[str, Replica], views: Sequence[ReplicaView], clock: Clock, sink: RowSink
    ) -> SessionWorld:
        """What this attempt's sessions share in this process."""
        return SessionWorld(
            attempt_id=self.plan.attempt_id,
            benchmark=self.benchmark,
            harness=self.harness,
            launcher=self.launcher,
            router=self.router,
            replicas=replicas,
            views=lambda: views,
            model=build(self.config["model"]).name,
            clock=clock,
            counter=self.counter,
            sink=sink,
            limits=self.limits,
        )


def prepare(plan: AttemptPlan, *, with_tasks: bool = True) -> AttemptSetup:
    """Build an attempt's components and load its tasks.

    Args:
        with_tasks: False leaves `tasks` empty, for a process that is handed its tasks one by one.
    """
    config = plan.config
    benchmark: Benchmark = build(config["benchmark"])
    return AttemptSetup(
        plan=plan,
        benchmark=benchmark,
        harness=build(config["harness"]),
        launcher=build(config["environment"]),
        router=build(config["router"]),
        counter=build(config["tokens"]),
        limits=limits_of(config),
        tasks=benchmark.tasks() if with_tasks else (),
    )


def limits_of(config: Mapping[str, Any]) -> Limits:
    """The session limits of a configuration; without a budget the model's usable window is B."""
    budget, reserve = config["context_budget_tokens"], int(config["limits"]["max_completion_tokens"])
    return Limits(
        budget_tokens=int(budget) if budget is not None else build(config["model"]).max_position_tokens - reserve,
        max_steps=int(config["limits"]["max_steps"]),
        max_completion_tokens=reserve,
        idle_timeout_s=float(config["limits"]["idle_timeout_s"]),
        max_format_errors=int(config["limits"]["max_format_errors"]),
    )


@dataclass(frozen=True, slots=True)
class ReplicaPlan:
    """One replica of an attempt: its id and the configuration of the model it serves."""

    replica_id: str
    model_node: Mapping[str, Any]


def replica_plans(config: Mapping[str, Any]) -> tuple[ReplicaPlan, ...]:
    """`replicas_per_model` replicas of the model, then of the second model, in fixed order."""
    nodes = [config["model"], *([config["second_model"]] if config.get("second_model") else [])]
    count = int(config["replicas_per_model"])
    return tuple(ReplicaPlan(f"{build(node).name}/{index}", node) for node in nodes for index in range(count))


def engine_of(setup: AttemptSetup) -> Any:
    """The engine's settings; with a capped budget max_model_len is B + the reserve for generation unless set (A.3)."""
    engine = build(setup.config["engine"])
    if setup.config["context_budget_tokens"] is not None and engine.max_model_len is None:
        return replace(engine, max_model_len=setup.limits.budget_tokens + setup.limits.max_completion_tokens)
    return engine


def launch_replica(setup: AttemptSetup, plan: ReplicaPlan, clock: Clock) -> Replica:
    """Start one simulated replica in this process's running loop."""
    replica: Replica = engine_of(setup).replica(
        plan.replica_id, build(plan.model_node), build(setup.config["hardware"]), clock
    )
    return replica


def view_of(plan: ReplicaPlan) -> ReplicaView:
    """What routers see of a replica when no load is polled."""
    return ReplicaView(plan.replica_id, build(plan.model_node).name)

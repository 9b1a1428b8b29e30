"""The rows of the results database: one frozen dataclass per table, no SQLAlchemy.

`None` means "not reported", never 0. `_utc_s` are epoch seconds on the wall clock; other `_s` stamps are seconds on
the attempt's clock (virtual in a simulated cell), 0 at its start. `_json` columns hold canonical JSON text (`to_json`).
Every row passes `db.gate.row_values` before it is stored.

Where prices and cache sizes live: `Attempt.config_json` holds
`"prices": {model: {"uncached": usd, "cached": usd, "completion": usd}}` per million tokens and
`"kv": {model: {"bytes_per_token": kappa, "state_bytes": s}}`. They are provenance, not identity; cost and KV are
computed when a table is read.

Source: the record fields that ReFold's Table 5 and appendix A.3 need, and architecture section 7.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, ClassVar

from db.errors import RowRefused
from db.gate import Row, row_values, to_json

__all__ = [
    "CALL_STATES",
    "TERMINAL_STATES",
    "WALL_CLOCK_COLUMNS",
    "Attempt",
    "AttemptEnd",
    "Call",
    "Cell",
    "Event",
    "Grade",
    "Judgement",
    "ServerSample",
    "Session",
    "SessionGrade",
    "Sweep",
    "SweepCell",
    "ToolExecution",
    "attempt_id_of",
    "row_values",
    "stable_fields",
    "to_json",
]

TERMINAL_STATES = frozenset({"complete", "tainted", "failed", "lost"})
CALL_STATES = frozenset({"ok", "exhausted", "timeout", "error"})

# Columns that may differ between two runs of one simulated cell. Everything else must be identical.
WALL_CLOCK_COLUMNS = frozenset(
    {
        "created_utc_s",
        "started_utc_s",
        "finished_utc_s",
        "lease_until_utc_s",
        "lease_epoch",
        "lease_owner",
        "owner",
        "latest_attempt",
        "attempt_id",
        "number",
        "versions_json",
        "git_sha",
        "wall_s",
        "render_ms",
        "own_ms",
        "loop_lag_ms",
        "record_wait_ms",
        "worker",
        "traceback",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """A named study: axes and their product, as it was asked for."""

    TABLE: ClassVar[str] = "sweep"
    KEY: ClassVar[tuple[str, ...]] = ("name",)

    name: str
    spec_json: str  # axes, named arms, base configuration
    created_utc_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One combination of configuration over its task list; the unit of rerun.

    Invariants: `lease_epoch` only grows; a state in TERMINAL_STATES has no live lease.
    """

    TABLE: ClassVar[str] = "cell"
    KEY: ClassVar[tuple[str, ...]] = ("cell_key",)

    cell_key: str  # versioned hash of the canonical spec
    spec_json: str  # the identity document the key was made of
    arm: str  # label of the named renderer side; a sweep may use another (SweepCell.arm)
    num_workers: int  # w, sessions open at once
    renderer: str
    router: str
    model: str  # joined by "+" when calls alternate between models
    engine: str  # engine kind: simulated, vllm_server, ...
    executor: str  # virtual | ray_actors
    benchmark: str
    context_budget_tokens: int | None  # B, usable context; None = full window
    seed: int
    replicate: int
    state: str = "planned"  # planned | running | complete | tainted | failed | lost
    lease_owner: str | None = None
    lease_epoch: int = 0  # +1 at every claim
    lease_until_utc_s: float | None = None
    latest_attempt: int | None = None  # number of the newest attempt
    created_utc_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepCell:
    """That a sweep holds a cell, where, and under which names."""

    TABLE: ClassVar[str] = "sweep_cell"
    KEY: ClassVar[tuple[str, ...]] = ("sweep", "cell_key")

    sweep: str  # Sweep.name
    cell_key: str
    ordinal: int  # position in the sweep's grid, from 0
    arm: str  # arm label in this sweep
    axis_labels_json: str = "{}"  # {axis: label}


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One try at a cell. Earlier ones are kept; readers use the latest complete one.

    The fields from `state` on that have defaults are filled by `finish_attempt`.
    """

    TABLE: ClassVar[str] = "attempt"
    KEY: ClassVar[tuple[str, ...]] = ("attempt_id",)

    attempt_id: str  # `attempt_id_of(cell_key, number)`
    cell_key: str
    number: int  # from 1, unique per cell
    lease_epoch: int  # the claim this attempt writes under
    owner: str
    started_utc_s: float
    num_tasks: int
    engine_kind: str  # simulated | vllm_modelled | live (vllm_server, openai_endpoint): what made the times
    policy_kind: str  # chat | replay | scripted
    benchmark_source: str  # synthetic | recorded | live
    signals_source: str | None = None  # live | recorded | hindsight | none: where stale labels came from
    stale_coverage: float | None = None  # share of stale turns that get labelled, 0..1
    generated: str | None = None  # recorded | opaque, see policy.generated
    versions_json: str = "{}"  # {package: version}
    config_json: str = "{}"  # full config snapshot; "prices" and "kv" live here
    thresholds_json: str = "{}"  # the trust thresholds used
    git_sha: str | None = None
    state: str = "running"  # running | complete | tainted | failed | lost
    exit_class: str | None = None  # exception class name when failed or lost
    message: str | None = None
    traceback: str | None = None
    taint_reasons_json: str | None = None  # ["client lag 80 ms > 50 ms", ...]
    time_weighted_in_flight: float | None = None  # mean sessions open while unstarted tasks remained
    share_full_w: float | None = None  # share of that time with w sessions open, 0..1
    finished_utc_s: float | None = None
    wall_s: float | None = None
    sim_s: float | None = None  # length on the attempt's clock


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptEnd:
    """What `finish_attempt` writes onto its Attempt and, in the same transaction, onto the cell's state."""

    attempt_id: str
    state: str  # one of TERMINAL_STATES
    finished_utc_s: float
    exit_class: str | None = None
    message: str | None = None
    traceback: str | None = None
    taint_reasons_json: str | None = None
    time_weighted_in_flight: float | None = None
    share_full_w: float | None = None
    wall_s: float | None = None
    sim_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One agent on one task, written once, when it has ended."""

    TABLE: ClassVar[str] = "session"
    KEY: ClassVar[tuple[str, ...]] = ("attempt_id", "session_id")

    attempt_id: str
    session_id: str  # unique in the attempt, made from content (usually the task id)
    task_id: str
    ordinal: int  # position of the task in the cell's list, from 0
    worker: str
    exit_status: str  # name of the SessionEnd class
    is_timed_out: bool  # ended by a call that streamed no token (StreamTimeout)
    is_exhausted: bool  # a prompt was longer than the usable context B
    num_steps: int  # main-loop calls
    num_main_calls: int
    num_auxiliary_calls: int
    started_s: float  # handed to a worker
    finished_s: float
    first_request_s: float | None = None  # None: no call was made
    last_response_s: float | None = None
    num_compactions: int | None = None
    num_restores: int | None = None
    num_recalls: int | None = None
    num_reruns: int | None = None  # commands run again because their output was folded
    num_metadata_misses: int | None = None  # replies without the asked-for signals
    num_rejected_stale_labels: int | None = None
    peak_prompt_tokens: int | None = None  # over all calls, from the server's counts
    submission: str | None = None  # the patch or answer text itself
    submission_ref: str | None = None  # or a path relative to the transcript folder
    message: str | None = None  # detail of the exit, one line
    traceback: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request to a replica; every try of the client is a row.

    Invariants: num_cached_tokens <= num_prompt_tokens (cached is part of prompt); due <= sent <= first <= last;
    queue_delay_s >= 0; state `exhausted` = not sent, the estimate is in num_estimated_prompt_tokens.
    """

    TABLE: ClassVar[str] = "call"
    KEY: ClassVar[tuple[str, ...]] = ("attempt_id", "session_id", "call_index", "try_index")

    attempt_id: str
    session_id: str
    call_index: int  # from 1 over all calls of the session, main and auxiliary
    try_index: int = 1  # from 1; the client's retries of one call
    kind: str  # main | summary | rewrite | scorer | judge | ...
    state: str  # ok | exhausted | timeout | error
    num_prompt_tokens: int | None = None  # p, as the server counts
    num_cached_tokens: int | None = None  # c
    num_completion_tokens: int | None = None  # g
    queue_delay_s: float | None = None  # first scheduled - arrival, on the engine's clock
    num_preemptions: int | None = None
    model: str
    is_priced_uncached: bool = False  # the paper prices this call's whole prompt at the uncached rate (AgentDiet)
    step: int | None = None  # main-loop step the call belongs to, from 1
    replica: str | None = None  # None: not sent
    route_reason: str | None = None
    num_estimated_prompt_tokens: int | None = None  # the client's count before the call
    usage_source: str | None = None  # server | client | simulated
    aux_source: str | None = None  # model | seeded | stand_in; None for main calls
    due_s: float | None = None  # when the loop wanted to send
    sent_s: float | None = None
    first_token_s: float | None = None
    last_token_s: float | None = None
    tool_result_s: float | None = None  # when the tool result before this call arrived
    requeue_s: float | None = None  # waiting again after preemptions
    prefill_s: float | None = None
    decode_s: float | None = None
    recomputed_tokens: int | None = None  # computed again after preemptions
    render_ms: float | None = None
    own_ms: float | None = None  # measured: the strategy's own work besides rendering
    own_s_modelled: float | None = None  # declared constant that entered virtual time
    boundary: int | None = None  # b_t
    num_folded: int | None = None
    num_stubs: int | None = None
    num_exempt: int | None = None
    system_task_tokens: int | None = None  # the prompt's tokens by part
    agent_tokens: int | None = None
    observation_tokens: int | None = None
    removed_recoverable_tokens: int | None = None  # observation tokens missing from this prompt, by fate
    removed_reproducible_tokens: int | None = None
    removed_irrecoverable_tokens: int | None = None
    shared_prefix_tokens: int | None = None  # best possible hit; of call 1: with any prompt of the replica
    prompt_digest: str | None = None
    finish_reason: str | None = None  # stop | length | ...
    is_adopted: bool | None = None  # auxiliary: whether its result was used
    error: str | None = None  # class name and one line
    loop_lag_ms: float | None = None
    record_wait_ms: float | None = None

    def __post_init__(self) -> None:
        """Refuse what no server can have reported, before it spoils a mean."""
        cached, prompt = self.num_cached_tokens, self.num_prompt_tokens
        if cached is not None and (prompt is None or not 0 <= cached <= prompt):
            raise RowRefused(f"Call: {cached} cached tokens of {prompt} prompt tokens; cached is part of prompt")
        if self.queue_delay_s is not None and self.queue_delay_s < 0:
            raise RowRefused(f"Call: queue_delay_s is {self.queue_delay_s}; first scheduled is before arrival")
        if self.state not in CALL_STATES:
            raise RowRefused(f"Call: state {self.state!r} is none of {', '.join(sorted(CALL_STATES))}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolExecution:
    """One action executed by an environment."""

    TABLE: ClassVar[str] = "tool_execution"
    KEY: ClassVar[tuple[str, ...]] = ("attempt_id", "session_id", "turn")

    attempt_id: str
    session_id: str
    turn: int  # z_i, from 1
    started_s: float
    finished_s: float
    return_code: int | None = None  # None: timed out, or not a command
    is_timed_out: bool = False
    is_intercepted: bool = False  # answered by the renderer (restore), not by the environment
    is_rerun: bool = False  # re-execution of a command whose output was no longer visible
    num_output_bytes: int | None = None  # before truncation
    is_truncated: bool = False
    command: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSample:
    """One reading of one replica; counters are totals since the attempt began."""

    TABLE: ClassVar[str] = "server_sample"
    KEY: ClassVar[tuple[str, ...]] = ("attempt_id", "replica", "t_s")

    attempt_id: str
    replica: str
    t_s: float
    kv_usage: float | None = None  # u/U now, 0..1
    kv_usage_peak: float | None = None  # largest u/U at any step since the last sample
    num_running: int | None = None
    num_waiting: int | None = None
    num_preemptions_total: int | None = None
    prefix_queries_tokens: int | None = None
    prefix_hits_tokens: int | None = None
    num_prompt_tokens_total: int | None = None
    num_generation_tokens_total: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Grade:
    """The official evaluator's word on one submission; shared by all sessions that made the same patch."""

    TABLE: ClassVar[str] = "grade"
    KEY: ClassVar[tuple[str, ...]] = ("task_id", "patch_hash", "image_digest", "harness_version")

    task_id: str
    patch_hash: str
    image_digest: str
    harness_version: str
    status: str  # resolved | unresolved | empty | grade_error
    score: float | None = None
    log_ref: str | None = None
    message: str | None = None
    graded_utc_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionGrade:
    """Which grade belongs to a session (several sessions may share one)."""

    TABLE: ClassVar[str] = "session_grade"
    KEY: ClassVar[tuple[str, ...]] = ("attempt_id", "session_id")

    attempt_id: str
    session_id: str
    task_id: str
    patch_hash: str
    image_digest: str
    harness_version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """One 0/1 verdict of a judge model on one turn of a session."""

    TABLE: ClassVar[str] = "judgement"
    KEY: ClassVar[tuple[str, ...]] = ("attempt_id", "session_id", "turn", "metric", "judge")

    attempt_id: str
    session_id: str
    turn: int
    metric: str  # state_fidelity | state_sufficiency | routing_correctness | trajectory_coherence
    judge: str  # model and prompt revision
    verdict: int | None = None  # 0 | 1; None: the judge gave no usable answer
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something worth keeping that is no measurement: retries, restarts, notices of Ray, taints."""

    TABLE: ClassVar[str] = "event"
    KEY: ClassVar[tuple[str, ...]] = ("attempt_id", "source", "sequence")

    attempt_id: str  # or `owner:<lease owner>` for what belongs to no attempt (a cluster's start, a reaper's work)
    source: str  # driver, worker or replica name
    sequence: int  # counted by the source
    kind: str
    t_s: float | None = None
    created_utc_s: float | None = None  # wall clock
    session_id: str | None = None
    detail_json: str = "{}"


def stable_fields(row: Row) -> dict[str, Any]:
    """The fields that two runs of one simulated cell must agree on: all but WALL_CLOCK_COLUMNS."""
    return {f.name: getattr(row, f.name) for f in fields(row) if f.name not in WALL_CLOCK_COLUMNS}


def attempt_id_of(cell_key: str, number: int) -> str:
    """The id of a cell's attempt: `<cell_key>.<number>`, made from content, never random."""
    return f"{cell_key}.{number}"

"""First schema: the tables of architecture section 7 and the views that readers use.

A revision is frozen: it spells out its DDL and imports nothing of `db`, so that it still runs when the records change.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_AXES = (
    "cell.cell_key, cell.arm, cell.num_workers, cell.renderer, cell.router, cell.engine, cell.executor, cell.benchmark,"
    " cell.context_budget_tokens, cell.seed, cell.replicate"
)
_LABELS = (
    "attempt.number AS attempt_number, attempt.state AS attempt_state, attempt.engine_kind, attempt.policy_kind,"
    " attempt.benchmark_source, attempt.signals_source, attempt.stale_coverage, attempt.generated"
)
# The attempt of a cell that readers use: its latest complete one; in the second form else its latest tainted one.
_SHOWN = {
    "": "SELECT cell_key, max(CASE WHEN state = 'complete' THEN number END) AS number FROM attempt GROUP BY cell_key",
    "_with_tainted": (
        "SELECT cell_key, coalesce(max(CASE WHEN state = 'complete' THEN number END),"
        " max(CASE WHEN state = 'tainted' THEN number END)) AS number FROM attempt GROUP BY cell_key"
    ),
}


def _create_views() -> None:
    for suffix, shown in _SHOWN.items():
        source = (
            f"FROM ({shown}) AS shown JOIN attempt ON attempt.cell_key = shown.cell_key"
            " AND attempt.number = shown.number JOIN cell ON cell.cell_key = attempt.cell_key"
        )
        op.execute(
            f"CREATE VIEW v_cells{suffix} AS SELECT {_AXES}, cell.model, cell.state AS cell_state, {_LABELS},"
            " attempt.attempt_id, attempt.num_tasks, attempt.started_utc_s, attempt.finished_utc_s, attempt.wall_s,"
            " attempt.sim_s, attempt.time_weighted_in_flight, attempt.share_full_w, attempt.taint_reasons_json,"
            " attempt.thresholds_json, attempt.versions_json, attempt.config_json, attempt.git_sha, cell.spec_json"
            f" {source}"
        )
        op.execute(
            f"CREATE VIEW v_sessions{suffix} AS SELECT {_AXES}, cell.model, {_LABELS}, session.* {source}"
            " JOIN session ON session.attempt_id = attempt.attempt_id"
        )
        op.execute(
            f"CREATE VIEW v_calls{suffix} AS SELECT {_AXES}, cell.model AS cell_model, {_LABELS}, call.* {source}"
            " JOIN call ON call.attempt_id = attempt.attempt_id"
        )


def upgrade() -> None:
    """Create tables, then views."""
    _create_tables()
    _create_views()


def downgrade() -> None:
    """Refused: results are never dropped by a migration."""
    raise NotImplementedError("results are never dropped; delete the database file by hand")


def _create_tables() -> None:
    op.create_table(
        "cell",
        sa.Column("cell_key", sa.Text(), nullable=False),
        sa.Column("spec_json", sa.Text(), nullable=False),
        sa.Column("arm", sa.Text(), nullable=False),
        sa.Column("num_workers", sa.BigInteger(), nullable=False),
        sa.Column("renderer", sa.Text(), nullable=False),
        sa.Column("router", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("engine", sa.Text(), nullable=False),
        sa.Column("executor", sa.Text(), nullable=False),
        sa.Column("benchmark", sa.Text(), nullable=False),
        sa.Column("context_budget_tokens", sa.BigInteger(), nullable=True),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.Column("replicate", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("lease_owner", sa.Text(), nullable=True),
        sa.Column("lease_epoch", sa.BigInteger(), nullable=False),
        sa.Column("lease_until_utc_s", sa.Double(), nullable=True),
        sa.Column("latest_attempt", sa.BigInteger(), nullable=True),
        sa.Column("created_utc_s", sa.Double(), nullable=False),
        sa.CheckConstraint("state <> 'running' OR lease_owner IS NOT NULL", name=op.f("ck_cell_running_is_leased")),
        sa.CheckConstraint(
            "state IN ('complete', 'failed', 'lost', 'planned', 'running', 'tainted')", name=op.f("ck_cell_state_known")
        ),
        sa.CheckConstraint("num_workers >= 1", name=op.f("ck_cell_num_workers_positive")),
        sa.PrimaryKeyConstraint("cell_key", name=op.f("pk_cell")),
    )
    op.create_index(op.f("ix_cell_state"), "cell", ["state"], unique=False)
    op.create_table(
        "event",
        sa.Column("attempt_id", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("t_s", sa.Double(), nullable=True),
        sa.Column("created_utc_s", sa.Double(), nullable=True),
        sa.Column("session_id", sa.Text(), nullable=True),
        sa.Column("detail_json", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("attempt_id", "source", "sequence", name=op.f("pk_event")),
    )
    op.create_table(
        "grade",
        sa.Column("task_id", sa.Text(), nullable=False),
        sa.Column("patch_hash", sa.Text(), nullable=False),
        sa.Column("image_digest", sa.Text(), nullable=False),
        sa.Column("harness_version", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("score", sa.Double(), nullable=True),
        sa.Column("log_ref", sa.Text(), nullable=True),
        sa.Column("message", sa.Text(), nullable=True),
        sa.Column("graded_utc_s", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("task_id", "patch_hash", "image_digest", "harness_version", name=op.f("pk_grade")),
    )
    op.create_table(
        "sweep",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("spec_json", sa.Text(), nullable=False),
        sa.Column("created_utc_s", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_sweep")),
    )
    op.create_table(
        "attempt",
        sa.Column("attempt_id", sa.Text(), nullable=False),
        sa.Column("cell_key", sa.Text(), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("lease_epoch", sa.BigInteger(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("started_utc_s", sa.Double(), nullable=False),
        sa.Column("num_tasks", sa.BigInteger(), nullable=False),
        sa.Column("engine_kind", sa.Text(), nullable=False),
        sa.Column("policy_kind", sa.Text(), nullable=False),
        sa.Column("benchmark_source", sa.Text(), nullable=False),
        sa.Column("signals_source", sa.Text(), nullable=True),
        sa.Column("stale_coverage", sa.Double(), nullable=True),
        sa.Column("generated", sa.Text(), nullable=True),
        sa.Column("versions_json", sa.Text(), nullable=False),
        sa.Column("config_json", sa.Text(), nullable=False),
        sa.Column("thresholds_json", sa.Text(), nullable=False),
        sa.Column("git_sha", sa.Text(), nullable=True),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("exit_class", sa.Text(), nullable=True),
        sa.Column("message", sa.Text(), nullable=True),
        sa.Column("traceback", sa.Text(), nullable=True),
        sa.Column("taint_reasons_json", sa.Text(), nullable=True),
        sa.Column("time_weighted_in_flight", sa.Double(), nullable=True),
        sa.Column("share_full_w", sa.Double(), nullable=True),
        sa.Column("finished_utc_s", sa.Double(), nullable=True),
        sa.Column("wall_s", sa.Double(), nullable=True),
        sa.Column("sim_s", sa.Double(), nullable=True),
        sa.CheckConstraint(
            "state IN ('complete', 'failed', 'lost', 'running', 'tainted')", name=op.f("ck_attempt_state_known")
        ),
        sa.CheckConstraint("number >= 1", name=op.f("ck_attempt_number_from_one")),
        sa.ForeignKeyConstraint(["cell_key"], ["cell.cell_key"], name=op.f("fk_attempt_cell_key_cell")),
        sa.PrimaryKeyConstraint("attempt_id", name=op.f("pk_attempt")),
        sa.UniqueConstraint("cell_key", "number", name=op.f("uq_attempt_cell_key_number")),
    )
    op.create_table(
        "sweep_cell",
        sa.Column("sweep", sa.Text(), nullable=False),
        sa.Column("cell_key", sa.Text(), nullable=False),
        sa.Column("ordinal", sa.BigInteger(), nullable=False),
        sa.Column("arm", sa.Text(), nullable=False),
        sa.Column("axis_labels_json", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["cell_key"], ["cell.cell_key"], name=op.f("fk_sweep_cell_cell_key_cell")),
        sa.ForeignKeyConstraint(["sweep"], ["sweep.name"], name=op.f("fk_sweep_cell_sweep_sweep")),
        sa.PrimaryKeyConstraint("sweep", "cell_key", name=op.f("pk_sweep_cell")),
    )
    op.create_index(op.f("ix_sweep_cell_cell_key"), "sweep_cell", ["cell_key"], unique=False)
    op.create_table(
        "call",
        sa.Column("attempt_id", sa.Text(), nullable=False),
        sa.Column("session_id", sa.Text(), nullable=False),
        sa.Column("call_index", sa.BigInteger(), nullable=False),
        sa.Column("try_index", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("num_prompt_tokens", sa.BigInteger(), nullable=True),
        sa.Column("num_cached_tokens", sa.BigInteger(), nullable=True),
        sa.Column("num_completion_tokens", sa.BigInteger(), nullable=True),
        sa.Column("queue_delay_s", sa.Double(), nullable=True),
        sa.Column("num_preemptions", sa.BigInteger(), nullable=True),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("is_priced_uncached", sa.Boolean(), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=True),
        sa.Column("replica", sa.Text(), nullable=True),
        sa.Column("route_reason", sa.Text(), nullable=True),
        sa.Column("num_estimated_prompt_tokens", sa.BigInteger(), nullable=True),
        sa.Column("usage_source", sa.Text(), nullable=True),
        sa.Column("aux_source", sa.Text(), nullable=True),
        sa.Column("due_s", sa.Double(), nullable=True),
        sa.Column("sent_s", sa.Double(), nullable=True),
        sa.Column("first_token_s", sa.Double(), nullable=True),
        sa.Column("last_token_s", sa.Double(), nullable=True),
        sa.Column("tool_result_s", sa.Double(), nullable=True),
        sa.Column("requeue_s", sa.Double(), nullable=True),
        sa.Column("prefill_s", sa.Double(), nullable=True),
        sa.Column("decode_s", sa.Double(), nullable=True),
        sa.Column("recomputed_tokens", sa.BigInteger(), nullable=True),
        sa.Column("render_ms", sa.Double(), nullable=True),
        sa.Column("own_ms", sa.Double(), nullable=True),
        sa.Column("own_s_modelled", sa.Double(), nullable=True),
        sa.Column("boundary", sa.BigInteger(), nullable=True),
        sa.Column("num_folded", sa.BigInteger(), nullable=True),
        sa.Column("num_stubs", sa.BigInteger(), nullable=True),
        sa.Column("num_exempt", sa.BigInteger(), nullable=True),
        sa.Column("system_task_tokens", sa.BigInteger(), nullable=True),
        sa.Column("agent_tokens", sa.BigInteger(), nullable=True),
        sa.Column("observation_tokens", sa.BigInteger(), nullable=True),
        sa.Column("removed_recoverable_tokens", sa.BigInteger(), nullable=True),
        sa.Column("removed_reproducible_tokens", sa.BigInteger(), nullable=True),
        sa.Column("removed_irrecoverable_tokens", sa.BigInteger(), nullable=True),
        sa.Column("shared_prefix_tokens", sa.BigInteger(), nullable=True),
        sa.Column("prompt_digest", sa.Text(), nullable=True),
        sa.Column("finish_reason", sa.Text(), nullable=True),
        sa.Column("is_adopted", sa.Boolean(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("loop_lag_ms", sa.Double(), nullable=True),
        sa.Column("record_wait_ms", sa.Double(), nullable=True),
        sa.CheckConstraint("state IN ('error', 'exhausted', 'ok', 'timeout')", name=op.f("ck_call_state_known")),
        sa.CheckConstraint("num_cached_tokens <= num_prompt_tokens", name=op.f("ck_call_cached_within_prompt")),
        sa.CheckConstraint("queue_delay_s >= 0", name=op.f("ck_call_queue_delay_not_negative")),
        sa.ForeignKeyConstraint(["attempt_id"], ["attempt.attempt_id"], name=op.f("fk_call_attempt_id_attempt")),
        sa.PrimaryKeyConstraint("attempt_id", "session_id", "call_index", "try_index", name=op.f("pk_call")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "judgement",
        sa.Column("attempt_id", sa.Text(), nullable=False),
        sa.Column("session_id", sa.Text(), nullable=False),
        sa.Column("turn", sa.BigInteger(), nullable=False),
        sa.Column("metric", sa.Text(), nullable=False),
        sa.Column("judge", sa.Text(), nullable=False),
        sa.Column("verdict", sa.BigInteger(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["attempt_id"], ["attempt.attempt_id"], name=op.f("fk_judgement_attempt_id_attempt")),
        sa.PrimaryKeyConstraint("attempt_id", "session_id", "turn", "metric", "judge", name=op.f("pk_judgement")),
    )
    op.create_table(
        "server_sample",
        sa.Column("attempt_id", sa.Text(), nullable=False),
        sa.Column("replica", sa.Text(), nullable=False),
        sa.Column("t_s", sa.Double(), nullable=False),
        sa.Column("kv_usage", sa.Double(), nullable=True),
        sa.Column("kv_usage_peak", sa.Double(), nullable=True),
        sa.Column("num_running", sa.BigInteger(), nullable=True),
        sa.Column("num_waiting", sa.BigInteger(), nullable=True),
        sa.Column("num_preemptions_total", sa.BigInteger(), nullable=True),
        sa.Column("prefix_queries_tokens", sa.BigInteger(), nullable=True),
        sa.Column("prefix_hits_tokens", sa.BigInteger(), nullable=True),
        sa.Column("num_prompt_tokens_total", sa.BigInteger(), nullable=True),
        sa.Column("num_generation_tokens_total", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(
            ["attempt_id"], ["attempt.attempt_id"], name=op.f("fk_server_sample_attempt_id_attempt")
        ),
        sa.PrimaryKeyConstraint("attempt_id", "replica", "t_s", name=op.f("pk_server_sample")),
    )
    op.create_table(
        "session",
        sa.Column("attempt_id", sa.Text(), nullable=False),
        sa.Column("session_id", sa.Text(), nullable=False),
        sa.Column("task_id", sa.Text(), nullable=False),
        sa.Column("ordinal", sa.BigInteger(), nullable=False),
        sa.Column("worker", sa.Text(), nullable=False),
        sa.Column("exit_status", sa.Text(), nullable=False),
        sa.Column("is_timed_out", sa.Boolean(), nullable=False),
        sa.Column("is_exhausted", sa.Boolean(), nullable=False),
        sa.Column("num_steps", sa.BigInteger(), nullable=False),
        sa.Column("num_main_calls", sa.BigInteger(), nullable=False),
        sa.Column("num_auxiliary_calls", sa.BigInteger(), nullable=False),
        sa.Column("started_s", sa.Double(), nullable=False),
        sa.Column("finished_s", sa.Double(), nullable=False),
        sa.Column("first_request_s", sa.Double(), nullable=True),
        sa.Column("last_response_s", sa.Double(), nullable=True),
        sa.Column("num_compactions", sa.BigInteger(), nullable=True),
        sa.Column("num_restores", sa.BigInteger(), nullable=True),
        sa.Column("num_recalls", sa.BigInteger(), nullable=True),
        sa.Column("num_reruns", sa.BigInteger(), nullable=True),
        sa.Column("num_metadata_misses", sa.BigInteger(), nullable=True),
        sa.Column("num_rejected_stale_labels", sa.BigInteger(), nullable=True),
        sa.Column("peak_prompt_tokens", sa.BigInteger(), nullable=True),
        sa.Column("submission", sa.Text(), nullable=True),
        sa.Column("submission_ref", sa.Text(), nullable=True),
        sa.Column("message", sa.Text(), nullable=True),
        sa.Column("traceback", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["attempt_id"], ["attempt.attempt_id"], name=op.f("fk_session_attempt_id_attempt")),
        sa.PrimaryKeyConstraint("attempt_id", "session_id", name=op.f("pk_session")),
    )
    op.create_table(
        "session_grade",
        sa.Column("attempt_id", sa.Text(), nullable=False),
        sa.Column("session_id", sa.Text(), nullable=False),
        sa.Column("task_id", sa.Text(), nullable=False),
        sa.Column("patch_hash", sa.Text(), nullable=False),
        sa.Column("image_digest", sa.Text(), nullable=False),
        sa.Column("harness_version", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["attempt_id"], ["attempt.attempt_id"], name=op.f("fk_session_grade_attempt_id_attempt")
        ),
        sa.PrimaryKeyConstraint("attempt_id", "session_id", name=op.f("pk_session_grade")),
    )
    op.create_table(
        "tool_execution",
        sa.Column("attempt_id", sa.Text(), nullable=False),
        sa.Column("session_id", sa.Text(), nullable=False),
        sa.Column("turn", sa.BigInteger(), nullable=False),
        sa.Column("started_s", sa.Double(), nullable=False),
        sa.Column("finished_s", sa.Double(), nullable=False),
        sa.Column("return_code", sa.BigInteger(), nullable=True),
        sa.Column("is_timed_out", sa.Boolean(), nullable=False),
        sa.Column("is_intercepted", sa.Boolean(), nullable=False),
        sa.Column("is_rerun", sa.Boolean(), nullable=False),
        sa.Column("num_output_bytes", sa.BigInteger(), nullable=True),
        sa.Column("is_truncated", sa.Boolean(), nullable=False),
        sa.Column("command", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["attempt_id"], ["attempt.attempt_id"], name=op.f("fk_tool_execution_attempt_id_attempt")
        ),
        sa.PrimaryKeyConstraint("attempt_id", "session_id", "turn", name=op.f("pk_tool_execution")),
    )

"""Alembic's entry: migrate the connection that `db.migrations.upgrade` hands over."""

from __future__ import annotations

from alembic import context

from db.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    render_as_batch=True,  # SQLite cannot alter a column; alembic copies the table instead
    transactional_ddl=True,
)
context.run_migrations()

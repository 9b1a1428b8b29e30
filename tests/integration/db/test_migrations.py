"""The schema in the migrations is the schema in the records, and it can be built from nothing."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path

from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import inspect

from db.engine import REVISIONS, connect, migrate, open_engine
from db.migrations import config_for
from db.reader import VIEWS
from db.store import Store
from db.tables import RECORDS, metadata


def test_migrations_and_records_agree(location: str) -> None:
    """After migrating, nothing differs between the database and the tables made from the records."""
    engine = open_engine(location, read_only=True)
    with connect(engine) as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, metadata) == []
    engine.dispose()


def test_a_blank_database_gets_every_table_and_view(blank_location: str) -> None:
    """`migrate` works from nothing and is idempotent."""
    assert migrate(blank_location) == (None, REVISIONS[-1])
    assert migrate(blank_location) == (REVISIONS[-1], REVISIONS[-1])
    engine = open_engine(blank_location, read_only=True)
    with connect(engine) as connection:
        found = inspect(connection)
        assert {record.TABLE for record in RECORDS} <= set(found.get_table_names())
        assert set(VIEWS) <= set(found.get_view_names())
    engine.dispose()


def test_the_listed_revisions_are_the_scripts(location: str) -> None:
    """REVISIONS names every migration script, oldest first."""
    engine = open_engine(location, read_only=True)
    with connect(engine) as connection:
        scripts = ScriptDirectory.from_config(config_for(connection))
        assert tuple(script.revision for script in reversed(list(scripts.walk_revisions()))) == REVISIONS
    engine.dispose()


def test_two_drivers_may_start_on_one_blank_database(blank_location: str) -> None:
    """Both find the schema, made once."""
    failures: list[Exception] = []

    def start() -> None:
        try:
            Store.open(blank_location).close()
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=start) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_calls_are_clustered_by_key(prepared_sqlite: Path) -> None:
    """The call table is stored in key order on SQLite; a large table would be slow without."""
    with sqlite3.connect(prepared_sqlite) as connection:
        (ddl,) = connection.execute("SELECT sql FROM sqlite_master WHERE name = 'call'").fetchone()
    connection.close()
    assert ddl.rstrip().endswith("WITHOUT ROWID")

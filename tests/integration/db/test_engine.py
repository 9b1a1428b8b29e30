"""Opening a database: what works, and one clear line for everything that does not."""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import db
from db.engine import begin, connect, open_engine
from db.errors import DbError, DbReadOnly, DbUnavailable, SchemaNewer, SchemaOlder
from db.store import Store


def one_line(error: pytest.ExceptionInfo[DbError]) -> str:
    """The message, checked to be a single line."""
    text = str(error.value)
    assert "\n" not in text
    return text


def set_revision(location: str, revision: str) -> None:
    """Pretend that another version wrote the schema."""
    engine = open_engine(location, read_only=False)
    with begin(engine) as connection:
        connection.exec_driver_sql(f"UPDATE alembic_version SET version_num = '{revision}'")
    engine.dispose()


def test_sqlite_writers_use_wal_full_sync_and_foreign_keys(prepared_sqlite: Path) -> None:
    """The settings that make acknowledged rows durable and readers harmless."""
    engine = open_engine(prepared_sqlite, read_only=False)
    with connect(engine) as connection:
        pragmas = ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
        values = [connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in pragmas]
    engine.dispose()
    assert values == ["wal", 2, 1, 30000]


def test_a_reader_cannot_write(location: str) -> None:
    """The read-only connection itself refuses, whatever the statement."""
    with db.open(location) as reader, pytest.raises(DbReadOnly) as error, begin(reader.engine) as connection:
        connection.exec_driver_sql("DELETE FROM cell")
    one_line(error)


def test_a_readers_transaction_sees_one_state(store: Store, location: str, study: Any) -> None:
    """Two queries of one transaction agree, whatever is committed in between."""
    with db.open(location) as reader, reader.connection() as connection:
        before = connection.exec_driver_sql("SELECT count(*) FROM cell").scalar()
        study.register(store, study.cell())
        assert connection.exec_driver_sql("SELECT count(*) FROM cell").scalar() == before == 0


def test_a_missing_file_says_what_to_do(tmp_path: Path) -> None:
    """Reading a database that is not there names the path and creates nothing."""
    path = tmp_path / "none.db"
    with pytest.raises(DbUnavailable, match="no results database at .*none.db; run a study first") as error:
        db.open(path)
    one_line(error)
    assert not path.exists()


def test_a_folder_and_a_missing_folder_are_named(tmp_path: Path) -> None:
    """Neither a folder nor a file in a folder that does not exist can be a database."""
    with pytest.raises(DbUnavailable, match="is a folder; name a file in it"):
        Store.open(tmp_path)
    with pytest.raises(DbUnavailable, match="the folder .*nowhere does not exist"):
        Store.open(tmp_path / "nowhere" / "results.db")


def test_a_foreign_file_is_refused_and_left_alone(tmp_path: Path) -> None:
    """A text file and another program's database are not ours to change."""
    text = tmp_path / "notes.txt"
    text.write_text("not a database, but long enough to be mistaken for one" * 100)
    with pytest.raises(DbUnavailable, match=r"notes.txt is not a SQLite database"):
        Store.open(text)
    other = tmp_path / "other.db"
    with sqlite3.connect(other) as connection:
        connection.execute("CREATE TABLE photos (id INTEGER)")
    connection.close()
    with pytest.raises(DbUnavailable, match=r"not a results database \(it holds photos\)"):
        Store.open(other)


@pytest.mark.parametrize("location", ["mysql://x/y", "postgresql://x:y:z/"])
def test_a_wrong_url_is_one_line(location: str) -> None:
    """Unsupported databases and broken URLs are named."""
    with pytest.raises(DbUnavailable) as error:
        Store.open(location)
    one_line(error)


def test_memory_is_refused() -> None:
    """A database nobody else can see is no place for results."""
    with pytest.raises(DbUnavailable, match="must be a file"):
        Store.open(":memory:")


def test_an_unreachable_server_is_one_line_without_the_password() -> None:
    """No server at the port: the address is named, the password is not."""
    with pytest.raises(DbUnavailable) as error:
        Store.open("postgresql://me:secret@127.0.0.1:9/results")
    assert "127.0.0.1:9" in one_line(error)
    assert "secret" not in str(error.value)


def test_an_older_schema_offers_the_migration(location: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both readers and writers refuse an older schema and name the command."""
    monkeypatch.setattr("db.engine.REVISIONS", ("0001", "0002"))
    for read_only in (True, False):
        with pytest.raises(SchemaOlder, match="older schema 0001, needed is 0002; run: python -m db migrate") as error:
            open_engine(location, read_only=read_only)
        one_line(error)


def test_a_newer_schema_asks_for_an_upgrade(location: str) -> None:
    """A database of a later version is refused, by readers, writers and migrate."""
    set_revision(location, "9999")
    for read_only in (True, False):
        with pytest.raises(SchemaNewer, match="newer version .*9999") as error:
            open_engine(location, read_only=read_only)
        one_line(error)


def test_an_empty_database_is_named_by_readers(blank_location: str) -> None:
    """A blank database holds no results yet."""
    if not blank_location.startswith("postgresql"):
        sqlite3.connect(blank_location).execute("PRAGMA user_version = 1").connection.close()
    with pytest.raises(DbUnavailable, match="is empty; run a study first"):
        db.open(blank_location)


@pytest.fixture
def public_folder() -> Iterator[Path]:
    """A folder that other users may read (pytest's own is private)."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        path.chmod(0o755)
        yield path


def as_nobody(work: Callable[[], object]) -> str:
    """What `work` returns, or the message of its DbReadOnly, in a child process without root's rights."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if os.getuid() == 0:
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
            text = str(work())
        except DbReadOnly as error:
            text = f"DbReadOnly: {error}"
        except BaseException as error:
            text = repr(error)
        os.write(writing, text.encode())
        os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with os.fdopen(reading) as pipe:
        return pipe.read()


def test_results_on_a_read_only_place_can_be_read_but_not_written(public_folder: Path, prepared_sqlite: Path) -> None:
    """Without write permission readers work (no -wal or -shm file can be made beside it) and writers get one line."""
    path = public_folder / "results.db"
    path.write_bytes(prepared_sqlite.read_bytes())
    path.chmod(0o444)
    public_folder.chmod(0o555)
    assert as_nobody(lambda: len(db.open(path).cells())) == "0"
    assert as_nobody(lambda: Store.open(path)).startswith(f"DbReadOnly: the folder {public_folder} cannot be written")
    public_folder.chmod(0o777)
    assert as_nobody(lambda: Store.open(path)).startswith(
        f"DbReadOnly: {path} cannot be written; change its permissions"
    )


@pytest.mark.postgres
def test_a_read_only_server_is_one_line(postgres_server: str, prepared_postgres: str) -> None:
    """A standby or a read-only role is found at start, not at the first row."""
    import psycopg

    with psycopg.connect(f"{postgres_server}/postgres", autocommit=True) as connection:
        connection.execute("CREATE DATABASE standby TEMPLATE prepared")
        connection.execute("ALTER DATABASE standby SET default_transaction_read_only = on")
    with pytest.raises(DbReadOnly, match="accepts no writes") as error:
        Store.open(f"{postgres_server}/standby")
    one_line(error)


def test_a_network_mount_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite on NFS loses rows; the message offers PostgreSQL."""
    monkeypatch.setattr("db.engine._file_system_of", lambda folder: "nfs4")
    with pytest.raises(DbUnavailable, match="nfs4 mount.*PostgreSQL"):
        Store.open(tmp_path / "results.db")

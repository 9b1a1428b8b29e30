"""From a URL or a path to an engine that is safe to use, with every failure as one line.

SQLite: WAL (readers and the writer do not wait for each other), foreign keys, a busy timeout, synchronous=FULL
(acknowledged means on disk) and BEGIN IMMEDIATE for writers, because two deferred transactions that both want to
write end in "database is locked" at once. Readers open the file read-only, so that looking at results can never
disturb a run.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy
from sqlalchemy import Connection, Engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError

from db.errors import DbError, DbReadOnly, DbUnavailable, SchemaNewer, SchemaOlder
from db.failures import in_one_line

__all__ = ["REVISIONS", "begin", "connect", "display_name", "open_engine"]

# Schema revisions, oldest first; a test compares them with db/migrations/versions.
REVISIONS = ("0001",)

_BUSY_TIMEOUT_MS = 30_000
_NETWORK_FILE_SYSTEMS = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs", "lustre", "gpfs", "beegfs", "afs", "ceph"})


def open_engine(location: str | Path, *, read_only: bool) -> Engine:
    """Connect to a results database and check its schema; a writer creates a missing one.

    Args:
        location: a path (SQLite) or a URL (`sqlite:///...`, `postgresql://...`).
        read_only: readers get a connection that cannot write.

    Raises:
        DbUnavailable, DbReadOnly, SchemaOlder, SchemaNewer: one line each.
    """
    url = _url_of(location)
    engine = _sqlite_engine(url, read_only) if url.get_backend_name() == "sqlite" else _server_engine(url, read_only)
    try:
        if read_only:
            with connect(engine) as connection:
                _check_revision(engine, _revision(connection))
        else:
            _prepare_schema(engine)
    except BaseException:
        engine.dispose()
        raise
    return engine


def display_name(engine: Engine) -> str:
    """The database as messages name it: a path, or a URL without its password."""
    if engine.dialect.name == "sqlite":
        return str(engine.get_execution_options().get("convoy_path"))
    return engine.url.set(drivername="postgresql").render_as_string(hide_password=True)


@contextmanager
def begin(engine: Engine) -> Iterator[Connection]:
    """One transaction; database errors leave it as one-line `DbError`s."""
    try:
        with engine.begin() as connection:
            yield connection
    except SQLAlchemyError as error:
        raise in_one_line(error, display_name(engine)) from error


@contextmanager
def connect(engine: Engine) -> Iterator[Connection]:
    """One connection for reading; database errors leave it as one-line `DbError`s."""
    try:
        with engine.connect() as connection:
            yield connection
    except SQLAlchemyError as error:
        raise in_one_line(error, display_name(engine)) from error


def _url_of(location: str | Path) -> URL:
    text = str(location)
    if "://" not in text:
        return URL.create("sqlite", database=text)
    try:
        url = make_url(text)
    except (ArgumentError, ValueError) as error:
        raise DbUnavailable(f"{text!r} is not a database URL; use a path or postgresql://user@host/name") from error
    if url.drivername in ("postgresql", "postgres"):
        url = url.set(drivername="postgresql+psycopg")
    if url.drivername not in ("sqlite", "postgresql+psycopg"):
        raise DbUnavailable(f"database {url.drivername!r} is not supported; use sqlite or postgresql")
    return url


def _sqlite_engine(url: URL, read_only: bool) -> Engine:
    if not url.database or url.database == ":memory:":
        raise DbUnavailable("the results database must be a file, so that other processes see it")
    path = Path(url.database).absolute()
    _require_usable_path(path, read_only)
    uri = _sqlite_uri(path, read_only)
    engine = sqlalchemy.create_engine(
        URL.create("sqlite", database=uri, query={"uri": "true"}),
        connect_args={"timeout": _BUSY_TIMEOUT_MS / 1000, "check_same_thread": False},
        execution_options={"convoy_path": path},
    )

    @event.listens_for(engine, "connect")
    def _configure(dbapi_connection: Any, _record: Any) -> None:
        dbapi_connection.isolation_level = None  # this module begins transactions, not the driver
        pragmas = ["foreign_keys=ON", f"busy_timeout={_BUSY_TIMEOUT_MS}", "cache_size=-65536"]
        if not read_only:
            pragmas += ["journal_mode=WAL", "synchronous=FULL"]
        for pragma in pragmas:
            dbapi_connection.execute(f"PRAGMA {pragma}").close()

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN" if read_only else "BEGIN IMMEDIATE")

    return engine


def _sqlite_uri(path: Path, read_only: bool) -> str:
    if not read_only:
        return f"{path.as_uri()}?mode=rwc"
    # A WAL database in a folder that cannot be written opens only when it is declared unchanging, which holds while no
    # writer has left its -wal file beside it.
    is_frozen = not os.access(path.parent, os.W_OK) and not Path(f"{path}-wal").exists()
    return f"{path.as_uri()}?{'immutable=1' if is_frozen else 'mode=ro'}"


def _require_usable_path(path: Path, read_only: bool) -> None:
    if path.is_dir():
        raise DbUnavailable(f"{path} is a folder; name a file in it, for example {path / 'results.db'}")
    if read_only:
        if not path.exists():
            raise DbUnavailable(f"no results database at {path}; run a study first, or name one with --db")
        return
    if not path.parent.is_dir():
        raise DbUnavailable(f"the folder {path.parent} does not exist; create it or choose another path")
    if not os.access(path.parent, os.W_OK):
        raise DbReadOnly(f"the folder {path.parent} cannot be written; SQLite needs to create files beside {path.name}")
    if path.exists() and not os.access(path, os.W_OK):
        raise DbReadOnly(f"{path} cannot be written; change its permissions or choose another database")
    kind = _file_system_of(path.parent)
    if kind in _NETWORK_FILE_SYSTEMS:
        raise DbUnavailable(f"{path.parent} is a {kind} mount, where SQLite loses rows; use a local path or PostgreSQL")


def _file_system_of(folder: Path) -> str | None:
    mounts = Path("/proc/self/mounts")
    if not mounts.exists():
        return None
    found: dict[int, str] = {}
    for line in mounts.read_text(encoding="utf-8", errors="replace").splitlines():
        _device, mount_point, kind, *_rest = line.split(" ")
        if folder.is_relative_to(mount_point.replace("\\040", " ")):
            found[len(mount_point)] = kind
    return found[max(found)] if found else None


def _server_engine(url: URL, read_only: bool) -> Engine:
    # A reader sees one state of the database in all queries of a transaction, as SQLite gives it anyway.
    reading = "-c default_transaction_read_only=on -c default_transaction_isolation=repeatable\\ read"
    try:
        return sqlalchemy.create_engine(
            url,
            pool_pre_ping=True,
            connect_args={"connect_timeout": 10, "options": reading if read_only else "", "application_name": "convoy"},
        )
    except (NoSuchModuleError, ModuleNotFoundError) as error:
        raise DbUnavailable("PostgreSQL needs the psycopg package: pip install 'psycopg[binary]'") from error


def _revision(connection: Connection) -> str | None:
    """The stored schema revision; None when the database is blank. Refuses a database that is not ours."""
    tables = set(sqlalchemy.inspect(connection).get_table_names())
    if "alembic_version" in tables and "cell" in tables:
        revision: str | None = connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()
        return revision
    if tables:
        listed = ", ".join(sorted(tables)[:3])
        raise DbUnavailable(
            f"{display_name(connection.engine)} is not a results database (it holds {listed}); "
            "name another (--db, or db.url= for a study)"
        )
    return None


def _check_revision(engine: Engine, revision: str | None) -> None:
    name = display_name(engine)
    if revision is None:
        raise DbUnavailable(f"{name} is empty; run a study first, or name another database with --db")
    if revision not in REVISIONS:
        raise SchemaNewer(f"{name} was written by a newer version (schema {revision}, known {REVISIONS[-1]}); upgrade")
    if revision != REVISIONS[-1]:
        raise SchemaOlder(
            f"{name} has the older schema {revision}, needed is {REVISIONS[-1]}; run: python -m db migrate --db {name}"
        )


def _prepare_schema(engine: Engine) -> None:
    with begin(engine) as connection:
        revision = _revision(connection)
        if revision is None:
            from db.migrations import upgrade  # alembic is only needed to create or change a schema

            if engine.dialect.name == "postgresql":  # two drivers may start on one blank database
                connection.exec_driver_sql("SELECT pg_advisory_xact_lock(7105112)")
                revision = _revision(connection)
            if revision is None:
                upgrade(connection)
            revision = _revision(connection)
        _check_revision(engine, revision)
        if (
            engine.dialect.name == "postgresql"
            and connection.exec_driver_sql("SHOW transaction_read_only").scalar() == "on"
        ):
            raise DbReadOnly(f"{display_name(engine)} accepts no writes (read-only server or role)")


def migrate(location: str | Path) -> tuple[str | None, str]:
    """Bring a database to the newest schema; returns (revision before, revision after).

    Raises:
        SchemaNewer: the database is newer than this program.
    """
    from db.migrations import upgrade

    url = _url_of(location)
    engine = _sqlite_engine(url, False) if url.get_backend_name() == "sqlite" else _server_engine(url, False)
    try:
        with begin(engine) as connection:
            before = _revision(connection)
            if before is not None and before not in REVISIONS:
                _check_revision(engine, before)
            upgrade(connection)
            after = _revision(connection)
    finally:
        engine.dispose()
    if after is None:
        raise DbError(f"{location}: migration left no schema")
    return before, after

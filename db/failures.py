"""Foreign database errors to our one-line errors: the one place that knows SQLite's and PostgreSQL's codes."""

from __future__ import annotations

import sqlite3

from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from db.errors import DbError, DbReadOnly, DbUnavailable, StorageFull

__all__ = ["in_one_line"]

_SQLITE = {
    sqlite3.SQLITE_FULL: (StorageFull, "{name}: the disk is full; free space and run again (committed rows are kept)"),
    sqlite3.SQLITE_READONLY: (DbReadOnly, "{name} cannot be written (read-only file or file system)"),
    sqlite3.SQLITE_CANTOPEN: (DbUnavailable, "{name} cannot be opened: {detail}"),
    sqlite3.SQLITE_NOTADB: (
        DbUnavailable,
        "{name} is not a SQLite database; name another (--db, or db.url= for a study)",
    ),
    sqlite3.SQLITE_CORRUPT: (DbUnavailable, "{name} is damaged ({detail}); restore a copy"),
    sqlite3.SQLITE_BUSY: (DbUnavailable, "{name} was locked by another writer for 30 s; end it and run again"),
    sqlite3.SQLITE_IOERR: (DbUnavailable, "{name}: the disk failed or is full ({detail})"),
}

# SQLSTATE (or its class, two characters) -> error
_POSTGRESQL = {
    "53100": (StorageFull, "{name}: the server's disk is full; free space and run again (committed rows are kept)"),
    "25006": (DbReadOnly, "{name} accepts no writes (read-only server, role or connection)"),
    "42501": (DbReadOnly, "{name}: no permission: {detail}"),
    "3D000": (DbUnavailable, "{name}: no such database; create it with createdb"),
    "28": (DbUnavailable, "{name}: the server refused the login: {detail}"),
    "08": (DbUnavailable, "{name}: the connection broke: {detail}"),
    "57": (DbUnavailable, "{name}: the server ended the query: {detail}"),
}


def in_one_line(error: SQLAlchemyError, name: str) -> DbError:
    """The `DbError` that says what happened to database `name`, in one line."""
    original = error.orig if isinstance(error, DBAPIError) else error
    detail = " ".join(str(original).split())
    kind, text = DbError, "{name}: {detail}"
    if isinstance(original, sqlite3.Error):
        code = getattr(original, "sqlite_errorcode", None)
        if code is not None:
            kind, text = _SQLITE.get(code & 0xFF, (kind, text))
    else:
        state = getattr(original, "sqlstate", None)
        if state is not None:
            kind, text = _POSTGRESQL.get(state, _POSTGRESQL.get(state[:2], (kind, text)))
        elif "connection" in detail:
            kind, text = DbUnavailable, "{name}: no connection: {detail}"
    return kind(text.format(name=name, detail=detail))

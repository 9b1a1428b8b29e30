"""Errors of the results database.

DbError                 one line, shown to the user as it is
|- DbUnavailable        no such file or server, no permission, not a results database
|- DbReadOnly           the file, its folder or the connection cannot be written
|- StorageFull          the disk or the database is full; what was acknowledged is kept
|- SchemaOlder          written by an older version: `python -m db migrate`
|- SchemaNewer          written by a newer version: upgrade this program
|- LeaseLost            the attempt no longer owns its cell: stop writing
|- UnknownName          a sweep, table or cell that does not exist
|- DataRefused          a table that would silently mix or drop rows
|- RecorderMisuse       rows for an attempt that was not started, or has ended
|- RowRefused           a value a database would distort (NaN, infinity, wrong type)
|- QueryFailed          the user's own SQL is wrong, too slow or not read-only
"""

from __future__ import annotations

__all__ = [
    "DataRefused",
    "DbError",
    "DbReadOnly",
    "DbUnavailable",
    "LeaseLost",
    "QueryFailed",
    "RecorderMisuse",
    "RowRefused",
    "SchemaNewer",
    "SchemaOlder",
    "StorageFull",
    "UnknownName",
]


class DbError(Exception):
    """Any failure of the results database; `str()` is one line that says what to do."""


class DbUnavailable(DbError):
    """The database cannot be reached, or is not one of ours."""


class DbReadOnly(DbError):
    """The database cannot be written (file, folder or connection is read-only)."""


class StorageFull(DbError):
    """No space is left. Rows not yet acknowledged stay with the recorder and may be flushed again."""


class SchemaOlder(DbError):
    """The schema was written by an older version and must be migrated."""


class SchemaNewer(DbError):
    """The schema was written by a newer version of this program."""


class LeaseLost(DbError):
    """Another owner holds the cell; nothing of this attempt is written any more."""


class UnknownName(DbError):
    """A name that is not in the database; the message lists what exists."""


class DataRefused(DbError):
    """A table was refused because its rows would mislead (tainted cells, mixed versions)."""


class RowRefused(DbError):
    """A record holds a value that a database would change, drop or refuse."""


class QueryFailed(DbError):
    """The user's SQL failed, ran too long or tried to write."""


class RecorderMisuse(DbError):
    """A recorder verb was called for an attempt that was not started with it, or has ended."""

"""Schema revisions, run from code: `upgrade` brings an open connection's database to the newest one."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection

__all__ = ["config_for", "upgrade"]


def config_for(connection: Connection) -> Config:
    """An alembic configuration without a file, bound to an open connection."""
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    return config


def upgrade(connection: Connection, revision: str = "head") -> None:
    """Run the missing revisions inside the connection's transaction."""
    command.upgrade(config_for(connection), revision)

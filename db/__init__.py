"""Results: rows in, answers out.

`records` and `recorder` are what a writer needs, `store` what a driver needs, `queries`, `tables_paper` and
`python -m db` what a reader needs. Nothing here imports the rooms above (`orchestrator`, `workers`, `serving`), and
importing `db` itself loads no SQLAlchemy.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from db.reader import Reader

__all__ = ["open"]


def open(location: str | Path = "results.db") -> Reader:  # noqa: A001  (used as `db.open`)
    """Open a results database for reading.

    Args:
        location: a path or URL.

    Raises:
        DbError: one line that says why it cannot be read.
    """
    from db.reader import Reader

    return Reader(location)

"""The entry point of `python -m orchestrator` and `convoy`: check that no folder hides our packages, then run.

The check comes before any other room is imported: a user's own folder `serving` would otherwise end in a traceback.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from orchestrator.errors import UserError, fail
from orchestrator.home import require_one_home


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line and return the exit code (see `orchestrator.command_line`)."""
    try:
        require_one_home()
    except UserError as exc:
        return fail(str(exc), 2)
    from orchestrator.command_line import run_command

    return run_command(sys.argv[1:] if argv is None else argv)

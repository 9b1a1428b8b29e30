"""Errors of the orchestrator. `str(error)` is one line for people.

OrchestratorError
├── UserError               a mistake in the command or a configuration: exit code 2, nothing was started
│   ├── ConfigError         unknown name, misspelt key, wrong type: names the value and what exists
│   └── SweepError          a sweep file or an axis that cannot be expanded
└── ComponentBug            one of our component classes breaks a rule of the house (an unclassified field, ...)

The executors' ClusterError lives beside them (`orchestrator.executors.errors`).
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterable


class OrchestratorError(Exception):
    """Root of everything this room raises on purpose."""


class UserError(OrchestratorError):
    """The user's mistake: one line that names the value and the remedy."""


class ConfigError(UserError):
    """A configuration that names something that does not exist or has the wrong type."""


class SweepError(UserError):
    """A sweep that cannot be expanded."""


class ComponentBug(OrchestratorError):
    """A component class breaks a rule of the house; ours to repair, not the user's."""


def unknown(what: str, value: str, known: Iterable[str]) -> str:
    """One line for a name that does not exist: the closest match and what exists.

    Args:
        what: what kind of name it is, `renderer`, `key`, ...
    """
    names = sorted(known)
    close = difflib.get_close_matches(value, names, n=1, cutoff=0.5)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"unknown {what} {value!r}; {hint}there are: {', '.join(names) or 'none'}"


def fail(message: str, code: int) -> int:
    """Say it in one line on stderr and return the exit code."""
    print(f"error: {' '.join(message.split())}", file=sys.stderr, flush=True)
    return code

"""How a session ends. The class name is the stored exit status (architecture, section 6).

SessionEnd                      is_own_result  invalidates the cell
├── Submitted                   yes            no
├── StepLimit, TokenLimit, WallLimit
│                               yes            no
├── ContextExhausted, FormatLoop
│                               yes            no
├── StreamTimeout              yes            no     (no token for the idle limit; raises the timeout alarm)
├── EnvironmentStartFailed, EnvironmentDied
│                               no             yes
├── ReplicaLost, ReplicaRejected
│                               no             yes
├── WorkerLost, RecorderLost, Cancelled
│                               no             yes
└── Bug                         no             yes

ConfigurationError              a user's mistake in a component's settings or data: one line, exit code 2
└── BenchmarkError              tasks cannot be loaded: foreign or torn files, an empty folder
AuxiliaryError                  an auxiliary call failed or came back empty; the renderer decides what it does then
"""

from __future__ import annotations

from typing import ClassVar


class SessionEnd(Exception):
    """Ends a session. `str(end)` is one line for people."""

    is_own_result: ClassVar[bool] = False
    invalidates_cell: ClassVar[bool] = True

    @property
    def status(self) -> str:
        """The stored exit status."""
        return type(self).__name__


class OwnResult(SessionEnd):
    """An end that is the session's own doing and counts as its result."""

    is_own_result = True
    invalidates_cell = False


class Submitted(OwnResult):
    """The agent submitted; `submission` is its text (a patch), maybe empty."""

    def __init__(self, submission: str = "") -> None:
        super().__init__("submitted")
        self.submission = submission


class StepLimit(OwnResult):
    """The step limit was reached."""


class TokenLimit(OwnResult):
    """The token limit was reached."""


class WallLimit(OwnResult):
    """The session's own time limit was reached."""


class ContextExhausted(OwnResult):
    """A prompt is longer than the usable context B."""


class FormatLoop(OwnResult):
    """Too many replies in a row without a valid action."""


class StreamTimeout(OwnResult):
    """No token arrived for the idle limit."""


class EnvironmentStartFailed(SessionEnd):
    """The environment could not be opened."""


class EnvironmentDied(SessionEnd):
    """The environment died under the session; never shown to the agent as output."""


class ReplicaLost(SessionEnd):
    """The engine died or became unreachable."""


class ReplicaRejected(SessionEnd):
    """The engine refused to serve."""


class WorkerLost(SessionEnd):
    """The worker process died."""


class RecorderLost(SessionEnd):
    """Rows could not be written, or the attempt's lease is gone."""


class Cancelled(SessionEnd):
    """Stopped from outside: signal, deadline, or another session invalidated the cell."""


class Bug(SessionEnd):
    """Our own error; the traceback is in the event row."""


class ConfigurationError(Exception):
    """A user's mistake in a component's settings or data: one line that names the value and the remedy."""


class BenchmarkError(ConfigurationError):
    """A benchmark's tasks cannot be loaded."""


class AuxiliaryError(Exception):
    """An auxiliary call failed or returned nothing."""

"""Errors of the serving room.

ServingError
├── NoReplicaError          no replica serves the model asked for (configuration)
├── TokenCounterError       a token counter's settings or tokenizer file are unusable (configuration)
├── ContextOverflow         the engine refuses a prompt as too long: a result of the renderer, never retried
├── CallTimeout
│   ├── ConnectTimeout      no connection
│   └── StreamTimeout       no token for the idle timeout, queue included
├── ReplicaRejected         the engine answered 5xx / 503, or refused the request
├── ReplicaLost             the engine died or is unreachable
└── ForeignWakeUp           something outside the virtual clock woke the virtual loop
"""


class ServingError(Exception):
    """Root of everything this room raises on purpose."""


class NoReplicaError(ServingError):
    """No replica serves the model asked for."""


class TokenCounterError(ServingError):
    """A token counter cannot be built: a setting out of range, no tokenizer file, the package is not installed."""


class ContextOverflow(ServingError):
    """The prompt does not fit the engine's max_model_len."""


class CallTimeout(ServingError):
    """A call ran into one of the client's time limits."""


class ConnectTimeout(CallTimeout):
    """No connection within the limit."""


class StreamTimeout(CallTimeout):
    """No token arrived within the idle limit (time in the queue counts)."""


class ReplicaRejected(ServingError):
    """The replica answered that it will not serve the call."""


class ReplicaLost(ServingError):
    """The replica is gone."""


class ForeignWakeUp(ServingError):
    """A thread, socket or Ray reference woke the virtual loop outside `clock.outside()`."""

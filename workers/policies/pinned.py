"""What policies with pinned replies share: the state of one session outside the dataclass fields."""

from __future__ import annotations

from typing import Any


class SessionState:
    """Holds what `start` made for one session.

    A plain class, not generic, so that the dataclass machinery and OmegaConf see settings only.
    """

    _state: Any

    def _begin(self, state: object) -> None:
        object.__setattr__(self, "_state", state)

    def _started(self) -> Any:
        """What `start` made; RuntimeError before it."""
        try:
            return self._state
        except AttributeError:
            raise RuntimeError(f"{type(self).__name__} is used before start()") from None

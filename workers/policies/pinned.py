"""What policies with pinned replies share: the state of one session outside the dataclass fields."""

from __future__ import annotations

from typing import Generic, TypeVar

StateT = TypeVar("StateT")


class SessionState(Generic[StateT]):
    """Holds what `start` made for one session.

    A plain class, so that the dataclass machinery (and OmegaConf) sees settings only.
    """

    _state: StateT | None

    def _begin(self, state: StateT) -> None:
        object.__setattr__(self, "_state", state)

    @property
    def _session(self) -> StateT:
        state: StateT | None = getattr(self, "_state", None)
        if state is None:
            raise RuntimeError(f"{type(self).__name__} is used before start()")
        return state

"""base: the whole history at every step, the control arm of every comparison (ReFold appendix B.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from serving.interfaces import TokenCounter
from workers.history import History, Rendered
from workers.renderers.common import Quiet, Rows, Session


@dataclass(frozen=True)
class Base(Quiet, Session):
    """Render every turn in full.

    Invariants: the prompt of step t+1 starts with the prompt of step t.
    Source: ReFold (arXiv 2610.07863) section 3.1 and appendix B.1.
    """

    REVISION: ClassVar[int] = 1

    def start(self, *, counter: TokenCounter, budget_tokens: int, path: str) -> None:
        """Begin a session; needs neither counter nor budget."""
        self._begin(Rows())

    def render(self, history: History, visible_from: int = 1) -> Rendered:
        """Opening and turns `visible_from`..t in full."""
        rows: Rows = self._cache
        return Rendered(tuple(rows.opening(history) + rows.between(history, visible_from, len(history))))

"""sm_only: ARSM's state machine over generic turn summaries in place of HAR records (Table 6, C.4).

Replies carry a one-sentence summary of the last turn instead of aim and reflection. [choice] the raw window is HAR
memory (D.1) and goes too: only the newest turns needed to act stay in full.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from workers.errors import ConfigurationError
from workers.renderers.arsm_records import Record, generic_line
from workers.renderers.arsm_renderer import StateMachineRenderer


@dataclass(frozen=True)
class SmOnly(StateMachineRenderer):
    """Show the newest turn and the state block; its path lines are generic summaries.

    Attributes:
        keep_recent: turns shown in full; all other settings as in `Arsm`.
    Source: ARSM (arXiv 2609.32852) Table 6 and appendix C.4.
    """

    keep_recent: int = 1

    REVISION: ClassVar[int] = 2
    name: ClassVar[str] = "sm_only"
    is_generic: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.keep_recent < 1:
            raise ConfigurationError(f"renderer sm_only: keep_recent={self.keep_recent}; give at least 1")

    @property
    def num_raw(self) -> int:
        """The newest `keep_recent` turns."""
        return self.keep_recent

    def line_of(self, record: Record) -> str:
        """Action, outcome, summary."""
        return generic_line(record)

"""clip: cut observations that are no longer recent to a fixed number of characters (ReFold appendix B.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from serving.interfaces import TokenCounter
from workers.errors import ConfigurationError
from workers.history import Form, History, Rendered, Segment, Turn, observation_segment
from workers.renderers.common import Quiet, Session, TwoZones


def clipped(text: str, cap_chars: int) -> str:
    """The first two thirds and the last third of the cap, around a marker; `text` itself when that is not shorter.

    The cap counts the characters that are kept: head floor(2C/3), tail C - floor(2C/3); the marker comes on top
    (methods 1A.15, row 14).
    """
    num_head = 2 * cap_chars // 3
    num_tail = cap_chars - num_head
    marker = f"\n[... {len(text) - cap_chars} characters clipped ...]\n"
    if len(text) <= cap_chars + len(marker):
        return text
    return text[:num_head] + marker + text[len(text) - num_tail :]


@dataclass(frozen=True)
class Clip(Quiet, Session):
    """Cut every observation older than the `keep_recent` newest to `cap_chars` characters, frame included.

    Attributes:
        cap_chars: kept characters C of a cut observation; the paper compares three caps, 1,000 is the tightest.
        keep_recent: number of newest turns whose observations stay whole.
    Source: ReFold (arXiv 2610.07863) appendix B.1, Table 8.
    """

    cap_chars: int = 1000
    keep_recent: int = 3

    REVISION: ClassVar[int] = 1

    def __post_init__(self) -> None:
        if self.cap_chars < 3 or self.keep_recent < 0:
            raise ConfigurationError(
                f"renderer clip: cap_chars={self.cap_chars}, keep_recent={self.keep_recent}; "
                "give cap_chars >= 3 and keep_recent >= 0"
            )

    def start(self, *, counter: TokenCounter, budget_tokens: int, path: str) -> None:
        """Begin a session; needs neither counter nor budget."""
        self._begin(TwoZones(self._shorten))

    def render(self, history: History, visible_from: int = 1) -> Rendered:
        """Turns up to t - keep_recent with cut observations, the others in full."""
        boundary = max(0, len(history) - self.keep_recent)
        zones: TwoZones = self._cache
        return zones.render(history, boundary=boundary, visible_from=visible_from)

    def _shorten(self, turn: Turn) -> Segment:
        shown = [observation.shown for observation in turn.observations]
        texts = [clipped(text, self.cap_chars) for text in shown]
        return observation_segment(turn, texts, Form.full if texts == shown else Form.stub)

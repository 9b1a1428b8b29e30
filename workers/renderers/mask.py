"""mask: replace old observations by a one-line placeholder, sliding or in chunks of `polling` steps.

The sliding form rewrites the prompt N turns back at every step and so loses the prefix cache; the chunked form moves
only every `polling` steps. Source: ReFold appendix B.1 (observation masking, Lindenbauer et al. 2025).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from serving.interfaces import TokenCounter
from workers.errors import ConfigurationError
from workers.history import Form, History, Observation, Rendered, Segment, Turn, observation_segment
from workers.renderers.common import Quiet, Session, TwoZones, num_lines


def placeholder(observation: Observation) -> str:
    """One line in place of an observation, or the observation when it is not longer than that line."""
    count = num_lines(observation.body)
    unit = "line" if count == 1 else "lines"
    line = f"[old output omitted: {count} {unit}, {len(observation.body)} characters]"
    return line if len(line) < len(observation.shown) else observation.shown


@dataclass(frozen=True)
class Mask(Quiet, Session):
    """Keep the `keep_recent` newest observations, placeholders for older ones; replies stay in place.

    Attributes:
        keep_recent: N, observations that always stay; the paper compares three, 10 is the tightest.
        polling: p, steps between two moves of the boundary; N to N + p - 1 observations stay. 1 = sliding.
    Source: ReFold (arXiv 2610.07863) appendix B.1, Table 8; `polling` after the observation-masking baseline
        (methods part 2).
    """

    keep_recent: int = 10
    polling: int = 1

    REVISION: ClassVar[int] = 1

    def __post_init__(self) -> None:
        if self.keep_recent < 0 or self.polling < 1:
            raise ConfigurationError(
                f"renderer mask: keep_recent={self.keep_recent}, polling={self.polling}; "
                "give keep_recent >= 0 and polling >= 1"
            )

    def start(self, *, counter: TokenCounter, budget_tokens: int, path: str) -> None:
        """Begin a session; needs neither counter nor budget."""
        self._begin(TwoZones(_masked))

    def render(self, history: History, visible_from: int = 1) -> Rendered:
        """Turns up to p * floor((t - N) / p) with placeholders, the others in full."""
        boundary = max(0, len(history) - self.keep_recent) // self.polling * self.polling
        zones: TwoZones = self._cache
        return zones.render(history, boundary=boundary, visible_from=visible_from)


def _masked(turn: Turn) -> Segment:
    texts = [placeholder(observation) for observation in turn.observations]
    kept = all(text == observation.shown for text, observation in zip(texts, turn.observations, strict=True))
    return observation_segment(turn, texts, Form.full if kept else Form.stub)

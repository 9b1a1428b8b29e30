"""The tokens of a prompt by part: system and task, the agent's messages, observations (ReFold Figure 2b)."""

from __future__ import annotations

from typing import NamedTuple

from serving.calls import Prompt
from workers.history import Part, Rendered


class PartTokens(NamedTuple):
    """Tokens by part; notes, summaries and memory blocks count as the agent's side of neither and are left out."""

    opening: int
    agent: int
    observation: int


def tokens_by_part(rendered: Rendered, prompt: Prompt) -> PartTokens:
    """Sum the prompt's pieces (one per message, in order) by the part of their segment."""
    sums = dict.fromkeys(Part, 0)
    pieces = iter(prompt.pieces)
    for segment in rendered.segments:
        for _ in segment.messages:
            sums[segment.part] += next(pieces).size
    return PartTokens(sums[Part.opening], sums[Part.agent], sums[Part.observation])


def shared_tokens(previous: Prompt | None, prompt: Prompt) -> int:
    """Length of the longest common prefix of two prompts, in tokens.

    Pieces of equal messages are the same cached array, so most comparisons are by identity.
    """
    if previous is None:
        return 0
    shared = 0
    for before, now in zip(previous.pieces, prompt.pieces, strict=False):
        if before is now:
            shared += before.size
            continue
        length = min(before.size, now.size)
        differs = (before[:length] != now[:length]).nonzero()[0]
        if differs.size:
            return shared + int(differs[0])
        shared += length
        if before.size != now.size:
            # The shorter piece ended inside the longer one: what follows it is compared no further.
            return shared
    return shared

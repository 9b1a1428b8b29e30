"""Length-only traces as runs: placeholder text with the recorded token counts and prefix sharing.

Such traces (Weka, Mooncake) hold token counts and the ids of prompt blocks, no text. The opening is made block by
block from the ids, so that sessions which shared a prefix share it here; replies and observations are made from the
session and step. One placeholder word is one token for the splitter counter and for common BPE vocabularies. The
counter's own opening overhead (tool definitions) comes on top. The runs have `has_text` False: every renderer but base
would cut or compare text that means nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from serving.calls import Message
from workers.history import Action, Observation
from workers.interfaces import RecordedRun, RecordedStep

FRAME_TOKENS: Final = 4  # what a chat template puts around a message (start, role, line end, end)
GENERATION_TOKENS: Final = 3  # the generation prompt
# 256 short English words, one a byte.
_WORDS: Final = tuple(
    """
    the of and to in is you that it he was for on are as with his they at be this have from or one had by word
    but not what all were we when your can said there use an each which she do how their if will up other about
    out many then them these so some her would make like him into time has look two more write go see number no
    way could people my than first water been call who oil its now find long down day did get come made may part
    over new sound take only little work know place year live me back give most very after thing our just name
    good man think say great where help through much before line right too mean old any same tell boy follow
    came want show also around form three small set put end does another well large must big even such because
    turn here why ask went men read need land home us move try kind hand picture again change off play air away
    animal house point page letter mother answer found study still learn should world high every near add food
    between own below country plant last school father keep tree never start city earth eye light thought head
    under story saw left few while along might close seem next hard open example begin life always those both
    paper together got group often run until children side feet car mile night walk white sea began grow took
    river
    """.split()
)


@dataclass(frozen=True, slots=True)
class Request:
    """One model call of a length-only trace. `pause_s` is the time before it that was not the model's."""

    num_prompt_tokens: int
    num_completion_tokens: int
    block_ids: tuple[int, ...]
    pause_s: float | None = None


def placeholder(seed: str, num_tokens: int) -> str:
    """`num_tokens` words that depend on `seed` alone; a shorter text is a prefix of a longer one."""
    return " ".join(_words(seed, num_tokens))


def opening_text(scope: str, block_ids: Sequence[int], *, block_tokens: int, num_tokens: int) -> str:
    """The first prompt, block by block: equal ids in one scope give equal text."""
    words: list[str] = []
    for block in block_ids:
        words.extend(_words(f"{scope}\x1fblock\x1f{block}", block_tokens))
    if len(words) < num_tokens:
        words.extend(_words(f"{scope}\x1frest\x1f{block_ids[-1:]}", num_tokens - len(words)))
    return " ".join(words[:num_tokens])


def chains(requests: Sequence[Request], *, must_share_blocks: bool) -> Iterator[list[Request]]:
    """Cut a session's requests where a prompt does not continue the one before (compaction, a new conversation).

    With `must_share_blocks`, all but the last two blocks of a prompt must open the next one.
    """
    chain: list[Request] = []
    for request in requests:
        if chain and not _continues(chain[-1], request, must_share_blocks):
            yield chain
            chain = []
        chain.append(request)
    if chain:
        yield chain


def run_of(chain: Sequence[Request], *, scope: str, session: str, block_tokens: int, source_format: str) -> RecordedRun:
    """One chain of growing prompts as a run.

    Args:
        scope: where block ids mean the same text (the file's trace, or the whole file).
        session: names the chain; replies and observations differ between sessions.
        block_tokens: tokens per block id.
    """
    first = chain[0]
    num_opening = max(1, first.num_prompt_tokens - FRAME_TOKENS - GENERATION_TOKENS)
    opening = opening_text(scope, first.block_ids, block_tokens=block_tokens, num_tokens=num_opening)
    steps = [
        _step(request, chain[index + 1] if index + 1 < len(chain) else None, f"{scope}\x1f{session}\x1f{index}", index)
        for index, request in enumerate(chain)
    ]
    return RecordedRun((Message("user", opening),), tuple(steps), source_format, has_text=False)


def _step(request: Request, following: Request | None, seed: str, index: int) -> RecordedStep:
    """A reply and an observation that together make up the growth of the next prompt.

    Where the next prompt grew by less than was generated (dropped reasoning), the reply in the history is shorter.
    """
    num_reply, num_shown = request.num_completion_tokens, 0
    if following is not None:
        growth = following.num_prompt_tokens - request.num_prompt_tokens - 2 * FRAME_TOKENS
        num_reply = max(1, min(request.num_completion_tokens, growth - 1))
        num_shown = max(1, growth - num_reply)
    return RecordedStep(
        assistant=Message("assistant", placeholder(f"{seed}\x1freply", num_reply)),
        actions=(Action(f"request {index + 1}"),),
        observations=(Observation(placeholder(f"{seed}\x1fshown", num_shown)),),
        tool_s=following.pause_s if following is not None else 0.0,
        num_prompt_tokens=request.num_prompt_tokens,
        num_completion_tokens=request.num_completion_tokens,
    )


def _continues(before: Request, after: Request, must_share_blocks: bool) -> bool:
    if after.num_prompt_tokens <= before.num_prompt_tokens:
        return False
    kept = max(0, len(before.block_ids) - 2)
    return not must_share_blocks or after.block_ids[:kept] == before.block_ids[:kept]


def _words(seed: str, number: int) -> list[str]:
    words: list[str] = []
    for start in range(0, number, hashlib.blake2b.MAX_DIGEST_SIZE):
        words.extend(_WORDS[byte] for byte in hashlib.blake2b(f"{seed}\x1f{start}".encode()).digest())
    return words[:number]

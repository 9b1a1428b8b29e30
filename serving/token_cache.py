"""The process-wide cache of tokenized messages, so that a prompt of n known messages costs n dictionary look-ups.

For `serving.tokens`. Found by identity first (a renderer returns the same `Message` objects again and again), then by
content. A cache never decides a result: an entry is a pure function of the message and of the counter's name.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, cast

from serving.calls import Message, TokenIds

MAX_BYTES: Final = 128 * 2**20
_MAX_IDENTITIES: Final = 100_000
_ENTRY_BYTES: Final = 600  # the objects around the ids of one entry


@dataclass(frozen=True, slots=True, eq=False)
class Encoded:
    """One tokenized message. `message` is held so that its address stays its own while it is a key."""

    message: Message
    ids: TokenIds
    num_tokens: int
    digest: bytes


def message_digest(message: Message) -> bytes:
    """16 bytes that depend on every field of a message and on nothing else."""
    fields = [
        message.role,
        message.content,
        message.reasoning,
        [[call.id, call.name, call.arguments] for call in message.tool_calls],
        message.tool_call_id,
    ]
    return hashlib.blake2b(json.dumps(fields).encode("ascii"), digest_size=16).digest()


def prompt_digest(digests: Sequence[bytes]) -> str:
    """32 hex characters for a prompt, from the digests of its messages in order."""
    return hashlib.blake2b(b"".join(digests), digest_size=16).hexdigest()


class MessageCache:
    """Tokenized messages by identity and by content, bounded in bytes.

    Content entries live in two generations: when the young one is full it becomes the old one, and an old entry that
    is asked for again becomes young. So nothing has to be moved on a hit, and at most `max_bytes` are held.
    """

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes // 2
        self._young: dict[Message, Encoded] = {}
        self._old: dict[Message, Encoded] = {}
        self._young_bytes = 0
        self._by_identity: dict[int, Encoded] = {}

    def get(self, message: Message, encode: Callable[[Message], TokenIds]) -> Encoded:
        """The entry of one message, tokenized with `encode` when it is new."""
        found = self._by_identity.get(id(message))
        return found if found is not None else self._by_content(message, encode)

    def get_all(self, messages: Sequence[Message], encode: Callable[[Message], TokenIds]) -> list[Encoded]:
        """The entries of a prompt's messages, in order."""
        found = list(map(self._by_identity.get, map(id, messages)))
        if None not in found:
            return cast("list[Encoded]", found)
        return [self.get(message, encode) for message in messages]

    def _by_content(self, message: Message, encode: Callable[[Message], TokenIds]) -> Encoded:
        entry = self._young.get(message)
        if entry is None:
            entry = self._old.get(message)
            if entry is None:
                ids = encode(message)
                ids.flags.writeable = False  # shared between prompts
                entry = Encoded(message, ids, len(ids), message_digest(message))
            self._add(entry)
        if len(self._by_identity) >= _MAX_IDENTITIES:
            self._by_identity.clear()
        # Under its own address the entry must hold this very object, or the address could be used again.
        self._by_identity[id(message)] = (
            entry if entry.message is message else Encoded(message, entry.ids, entry.num_tokens, entry.digest)
        )
        return entry

    def _add(self, entry: Encoded) -> None:
        size = _ENTRY_BYTES + entry.ids.nbytes + len(entry.message.content)
        if self._young and self._young_bytes + size > self._max_bytes:
            self._old, self._young, self._young_bytes = self._young, {}, 0
            self._by_identity.clear()
        self._young[entry.message] = entry
        self._young_bytes += size


@lru_cache(maxsize=8)
def shared_cache(name: str) -> MessageCache:
    """The cache of the counter called `name`; the cells that a process runs share it."""
    return MessageCache()

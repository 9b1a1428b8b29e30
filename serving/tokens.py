"""Token counters: messages to token ids, without any network.

For the session loop, the renderers' budgets and the simulated engines. Both counters frame a message in the same way,
so that the ids of a prompt are a prefix of the ids of the next prompt:

    opening overhead | start(role) content tool-calls end | ... | start(assistant)      <- a prompt
                                                                | content tool-calls end  <- `reply_ids`

`name` contains a digest of everything that decides an id; it is identity. Paths are not.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from serving.calls import Message, Prompt, TokenIds
from serving.errors import TokenCounterError
from serving.token_cache import MessageCache, prompt_digest, shared_cache
from serving.token_splitter import MAX_RUN, SplitRules, count_pieces, piece_ids

REVISION = 1


class FramedCounter(ABC):
    """What the counters share: the frame around a message, the cache, and prompts.

    Invariants: `prompt(m).ids()` followed by `reply_ids(a)` is a prefix of `prompt((*m, a, ...)).ids()`;
    `prompt(m).num_tokens` is the opening overhead + the sum of `count` over m + the generation prompt.
    """

    REVISION: ClassVar[int] = REVISION

    @property
    @abstractmethod
    def name(self) -> str:
        """Identity."""

    @abstractmethod
    def count_text(self, text: str) -> int:
        """Tokens of a bare text without a role frame."""

    @abstractmethod
    def _opening_ids(self) -> TokenIds:
        """What stands before the first message (tool definitions)."""

    @abstractmethod
    def _start_ids(self, role: str) -> TokenIds:
        """What opens a message of `role`; for `assistant` it is the generation prompt."""

    @abstractmethod
    def _body_ids(self, message: Message) -> list[TokenIds]:
        """Content, tool calls and the end of a message."""

    def encode(self, message: Message) -> TokenIds:
        """Ids of one message with its role frame, (n,) int64, read-only; cached by content."""
        return self._cache.get(message, self._encode).ids

    def count(self, message: Message) -> int:
        """Length of `encode(message)`."""
        return self._cache.get(message, self._encode).num_tokens

    def reply_ids(self, message: Message) -> TokenIds:
        """Ids an assistant message adds after the generation prompt.

        Raises:
            ValueError: another role than assistant.
        """
        if message.role != "assistant":
            raise ValueError(f"a reply has the role assistant, not {message.role!r}")
        return self.encode(message)[len(self._generation_ids) :]

    def prompt(self, messages: Sequence[Message]) -> Prompt:
        """Ids of a whole prompt, ending with the generation prompt.

        The first piece also holds the opening overhead; without messages it stands before the generation prompt.
        """
        entries = self._cache.get_all(messages, self._encode)
        pieces = [entry.ids for entry in entries]
        pieces.append(self._generation_ids)
        if len(self._opening):
            pieces[0] = np.concatenate((self._opening, pieces[0]))
        return Prompt(
            pieces=tuple(pieces),
            num_tokens=sum([entry.num_tokens for entry in entries]) + len(self._opening) + len(self._generation_ids),
            digest=prompt_digest([entry.digest for entry in entries]),
        )

    def _encode(self, message: Message) -> TokenIds:
        return np.concatenate([self._start_ids(message.role), *self._body_ids(message)])

    @cached_property
    def _cache(self) -> MessageCache:
        return shared_cache(self.name)

    @cached_property
    def _opening(self) -> TokenIds:
        return self._opening_ids()

    @cached_property
    def _generation_ids(self) -> TokenIds:
        return self._start_ids("assistant")

    def __getstate__(self) -> dict[str, Any]:
        """Settings only: the shared cache stays in its process."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}  # type: ignore[arg-type]


def _settings_digest(counter: Any) -> str:
    settings = {key: value for key, value in dataclasses.asdict(counter).items() if key != "path"}
    text = json.dumps([settings, REVISION], sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=4).hexdigest()


@dataclass(frozen=True)
class SplitterCounter(FramedCounter):
    """Counts pieces of text instead of a vocabulary's tokens; needs no file and is the same everywhere.

    The defaults are calibrated on 58 recorded DeepSeek runs (4,510 calls, about 3.4 characters per prompt token):
    replaying base gives their recorded prompt tokens with a bias below 1 % and a median error below 5 %
    (`python -m scripts.bench_tokens`).

    Attributes:
        seed: changes every id, no count.
        vocab_size: number of different ids; frame ids lie above it.
        letters, digits, spaces, tabs, newlines, punctuation, broad, joining: see `SplitRules`.
        message_start_tokens, message_end_tokens: frame of every message; the first is also the generation prompt.
        tool_call_tokens: frame of one tool call, its name and arguments not included.
        tool_result_tokens: what a message of role `tool` has beyond the frame.
        opening_overhead_tokens: what stands before the first message (tool definitions, template).

    Source: ReFold appendix B.1 counts with the served model's tokenizer, which needs a download; this is our
    stand-in, calibrated on public DeepSeek runs (usage reported by the provider).
    """

    seed: int = 0
    vocab_size: int = 2_000_000_000
    letters: int = 8
    digits: int = 3
    spaces: int = 32
    tabs: int = 4
    newlines: int = 1
    punctuation: int = 4
    broad: int = 2
    joining: str = "_.("
    message_start_tokens: int = 3
    message_end_tokens: int = 1
    tool_call_tokens: int = 29
    tool_result_tokens: int = 6
    opening_overhead_tokens: int = 231

    def __post_init__(self) -> None:
        """Refuse settings that cannot split."""
        for name in ("letters", "digits", "spaces", "tabs", "newlines", "punctuation", "broad"):
            value = getattr(self, name)
            if not 1 <= value <= MAX_RUN:
                raise TokenCounterError(f"{name}={value}: a run is cut every 1 to {MAX_RUN} characters")
        if self.message_start_tokens < 1 or self.message_end_tokens < 1:
            raise TokenCounterError("message_start_tokens and message_end_tokens must be at least 1")
        if min(self.tool_call_tokens, self.tool_result_tokens, self.opening_overhead_tokens) < 0:
            raise TokenCounterError("a number of frame tokens is negative; use 0 or more")
        if not 2 <= self.vocab_size <= 2**62:
            raise TokenCounterError(f"vocab_size={self.vocab_size}: must be from 2 to 2**62")

    @cached_property
    def name(self) -> str:
        """`splitter-` and a digest of all settings."""
        return f"splitter-{_settings_digest(self)}"

    @cached_property
    def _rules(self) -> SplitRules:
        return SplitRules(
            letters=self.letters,
            digits=self.digits,
            spaces=self.spaces,
            tabs=self.tabs,
            newlines=self.newlines,
            punctuation=self.punctuation,
            broad=self.broad,
            joining=self.joining,
        )

    def count_text(self, text: str) -> int:
        """Pieces of a bare text without a role frame."""
        return count_pieces(text, self._rules)

    def _text_ids(self, text: str) -> TokenIds:
        return piece_ids(text, self._rules, seed=self.seed, vocab_size=self.vocab_size)

    def _frame_ids(self, what: str, length: int) -> TokenIds:
        """`length` ids above the vocabulary that depend on `what` only, so that no text has them."""
        first = int.from_bytes(hashlib.blake2b(what.encode(), digest_size=2).digest(), "big")
        return self.vocab_size + 1024 * first + np.arange(length, dtype=np.int64)

    def _opening_ids(self) -> TokenIds:
        return self._frame_ids("opening", self.opening_overhead_tokens)

    def _start_ids(self, role: str) -> TokenIds:
        return self._frame_ids(f"start {role}", self.message_start_tokens)

    def _body_ids(self, message: Message) -> list[TokenIds]:
        parts = [self._text_ids(message.reasoning)] if message.reasoning else []
        if message.role == "tool":
            parts.append(self._frame_ids("tool result", self.tool_result_tokens))
        parts.append(self._text_ids(message.content))
        for call in message.tool_calls:
            parts += [
                self._frame_ids("tool call", self.tool_call_tokens),
                self._text_ids(call.name),
                self._text_ids(call.arguments),
            ]
        parts.append(self._frame_ids("end", self.message_end_tokens))
        return parts


@dataclass(frozen=True)
class TokenizerFileCounter(FramedCounter):
    """Counts with a real tokenizer read from a `tokenizer.json` on disk; needs the package `tokenizers`.

    Parts of a message are tokenized one by one, so the frame's special tokens never merge with the content. A prefix
    of a text is *not* exactly a prefix of the ids here: BPE merges look ahead to the end of a word.

    Attributes:
        path: the tokenizer.json file; not identity, its content is.
        content_digest: first 16 hex digits of the file's SHA-256. Must be given, so that a cell's identity names the
            tokenizer and another file at the same path is refused; the message of an empty one says the value.
        message_start, message_end: the chat frame; `{role}` is replaced. The default is ChatML.
        tool_call: text of one tool call; `{name}` and `{arguments}` are replaced.
        opening_overhead_tokens: what stands before the first message (tool definitions), as opaque ids.

    Source: ReFold appendix B.1 (the served model's own tokenizer).
    """

    path: str = ""
    content_digest: str = ""
    message_start: str = "<|im_start|>{role}\n"
    message_end: str = "<|im_end|>\n"
    tool_call: str = '<tool_call>\n{"name": "{name}", "arguments": {arguments}}\n</tool_call>'
    opening_overhead_tokens: int = 0

    def __post_init__(self) -> None:
        """Refuse a missing file at once, not at the first call."""
        if not self.path:
            raise TokenCounterError("path is empty: give the path of a tokenizer.json file")
        if not Path(self.path).is_file():
            raise TokenCounterError(f"path={self.path}: no such file; give the path of a tokenizer.json file")
        found = hashlib.sha256(Path(self.path).read_bytes()).hexdigest()[:16]
        if self.content_digest != found:
            asked = f"is not {self.content_digest}" if self.content_digest else "must be given, it is identity"
            raise TokenCounterError(f"content_digest of {self.path} {asked}: set content_digest={found}")
        if self.opening_overhead_tokens < 0:
            raise TokenCounterError(f"opening_overhead_tokens={self.opening_overhead_tokens}: use 0 or more")

    @cached_property
    def name(self) -> str:
        """`tokenizer-` and a digest of the file's content and the settings."""
        return f"tokenizer-{self.content_digest}-{_settings_digest(self)}"

    @cached_property
    def _tokenizer(self) -> Any:
        try:
            from tokenizers import Tokenizer
        except ImportError as error:
            raise TokenCounterError(
                "tokens=tokenizer_file needs the package `tokenizers`: pip install 'convoy[tokenizer]'"
            ) from error
        try:
            return Tokenizer.from_file(self.path)
        except Exception as error:  # noqa: BLE001 - the library raises bare Exception for a file it cannot read
            raise TokenCounterError(f"{self.path}: not a tokenizer.json file ({error})") from error

    def count_text(self, text: str) -> int:
        """Tokens of a bare text without a role frame."""
        return len(self._text_ids(text))

    def _text_ids(self, text: str) -> TokenIds:
        # Lone surrogates cannot be written as UTF-8, which the library needs.
        clean = text.encode("utf-8", "replace").decode("utf-8")
        return np.array(self._tokenizer.encode(clean, add_special_tokens=False).ids, dtype=np.int64)

    def _opening_ids(self) -> TokenIds:
        size: int = self._tokenizer.get_vocab_size(with_added_tokens=True)
        return size + np.arange(self.opening_overhead_tokens, dtype=np.int64)

    def _start_ids(self, role: str) -> TokenIds:
        return self._text_ids(self.message_start.replace("{role}", role))

    def _body_ids(self, message: Message) -> list[TokenIds]:
        parts = [self._text_ids(message.reasoning)] if message.reasoning else []
        parts.append(self._text_ids(message.content))
        parts += [
            self._text_ids(self.tool_call.replace("{name}", call.name).replace("{arguments}", call.arguments))
            for call in message.tool_calls
        ]
        parts.append(self._text_ids(self.message_end))
        return parts

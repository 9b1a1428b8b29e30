"""memory: retrieve chunks of earlier outputs by BM25 and show them at the end of the prompt (ReFold appendix F.3).

The block is transient: it is made anew for every prompt, so that everything before it stays in the prefix cache. It
is a function of the turns alone and needs no memo. Composes over any renderer.
"""

from __future__ import annotations

from dataclasses import InitVar, dataclass, replace
from typing import ClassVar

from serving.calls import Message
from serving.interfaces import TokenCounter
from workers.history import Form, History, Part, Rendered, Segment, Turn
from workers.interfaces import HarnessTemplate, Renderer
from workers.renderers.composing import BlockRole, Composed, check_least, chosen, one_line
from workers.renderers.memory_index import Chunk, ChunkIndex
from workers.renderers.prompt_layers import with_paragraph

HEADING = "[memory] Parts of earlier tool outputs that may bear on your next step:"
MAX_COMMAND_CHARS = 200  # of the command in a label, [choice]
_LAYER = (
    "Memory: the last message may end with a `[memory]` block of parts of earlier tool outputs, each under the command "
    "that produced it. It is not a new output; what it shows may have changed since."
)


@dataclass(frozen=True)
class Memory(Composed):
    """Append the `num_chunks` chunks of earlier outputs that match the newest reply best.

    Query: the newest reply, its reasoning, text and command. Corpus: chunks of all tool outputs before the newest one,
    visible or not (methods 1A.15 row 13). Chunks that share no word with the query are left out.

    Attributes:
        num_chunks: most chunks shown.
        chunk_lines: lines of a chunk.
        max_chars: longest block, heading and labels included; the last chunk that fits in part is cut at a line.
        block_role: user gives the block a message of its own; merge_previous adds it to the newest observation, for
            chat templates that want roles to alternate (outer estimates then miss the block once).
        inner: the renderer beneath.
    Invariants: the prompt up to the block is the inner renderer's.
    Source: ReFold (arXiv 2610.07863) appendix F.3.
    """

    num_chunks: int = 3
    chunk_lines: int = 40
    max_chars: int = 6000
    block_role: BlockRole = BlockRole.user
    inner: InitVar[Renderer | None] = None

    REVISION: ClassVar[int] = 1

    def __post_init__(self, inner: Renderer | None) -> None:
        for key, least in (("num_chunks", 1), ("chunk_lines", 1), ("max_chars", 500)):
            check_least("memory", key, getattr(self, key), least)
        object.__setattr__(self, "block_role", chosen("memory", "block_role", self.block_role, BlockRole))
        self._hold(inner)

    def start(self, *, counter: TokenCounter, budget_tokens: int, path: str) -> None:
        """Begin a session; needs neither counter nor budget itself."""
        self._start_inner(counter=counter, budget_tokens=budget_tokens, path=path)
        self._begin(MemoryCache(self.num_chunks, self.chunk_lines, self.max_chars))

    def prompt_layer(self, template: HarnessTemplate) -> HarnessTemplate:
        """The inner layer, and a paragraph on the block in the system prompt."""
        return with_paragraph(self._inner.prompt_layer(template), _LAYER)

    def render(self, history: History, visible_from: int = 1) -> Rendered:
        """The inner render and the block."""
        inner = self._inner.render(history, visible_from)
        cache: MemoryCache = self._cache
        text = cache.block(history)
        if not text:
            return inner
        *others, last = inner.segments
        newest = len(history)
        if self.block_role is BlockRole.merge_previous and last.messages:
            *before, host = last.messages
            merged = replace(host, content=f"{host.content}\n\n{text}")
            return replace(inner, segments=(*others, replace(last, messages=(*before, merged))))
        block = Segment((Message("user", text),), newest, newest, Form.memory, Part.note)
        return replace(inner, segments=(*inner.segments, block))


def query_of(turn: Turn) -> str:
    """What is searched for: the reply's reasoning and content, and commands that are not part of the content."""
    commands = [action.command for action in turn.actions if action.tool_call_id is not None]
    return "\n".join([turn.assistant.reasoning or "", turn.assistant.content, *commands])


def block_text(chunks: list[Chunk], max_chars: int) -> str:
    """The block of these chunks, best first; a first line that does not fit is cut where it is the block's only one."""
    parts, used = [HEADING], len(HEADING)
    for chunk in chunks:
        last = chunk.first_line + len(chunk.lines) - 1
        label = f"[{one_line(chunk.command, MAX_COMMAND_CHARS)}] step {chunk.label}, lines {chunk.first_line}-{last}:"
        room = max_chars - used - len(label) - 1
        lines = list[str]()
        for line in chunk.lines:
            if len(line) + 1 > room:
                break
            lines.append(line)
            room -= len(line) + 1
        if not lines and len(parts) == 1 and room > 1:
            lines = [chunk.lines[0][: room - 1]]
        if not lines:
            break
        parts.append("\n".join([label, *lines]))
        used += len(parts[-1]) + 1
    return "\n".join(parts) if len(parts) > 1 else ""


class MemoryCache:
    """The index of one session and the newest block."""

    def __init__(self, num_chunks: int, chunk_lines: int, max_chars: int) -> None:
        self._num_chunks = num_chunks
        self._chunk_lines = chunk_lines
        self._max_chars = max_chars
        self._begin(None)

    def _begin(self, history: History | None) -> None:
        self._history = history
        self._index = ChunkIndex(self._chunk_lines)
        self._num_turns = 0  # turns in the index
        self._block = (0, "")  # number of turns, text

    def block(self, history: History) -> str:
        """The block for the prompt after the newest turn."""
        num_turns = len(history)
        if history is not self._history or num_turns <= self._num_turns:
            self._begin(history)
        if self._block[0] != num_turns:
            for index in range(self._num_turns + 1, num_turns):
                self._index.add(history.turn(index))
                self._num_turns = index
            found = self._index.best(query_of(history.turn(num_turns)), self._num_chunks)
            self._block = num_turns, block_text(found, self._max_chars)
        return self._block[1]

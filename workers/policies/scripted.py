"""`policy=scripted`: replies given inline, for tests and demos; no recording and no model."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from serving.calls import CallResult, Message, PinnedReply
from serving.interfaces import TokenCounter
from workers.actions import fenced_commands
from workers.errors import ConfigurationError, StepLimit
from workers.history import Action, History, Rendered
from workers.interfaces import Proposal, Reply, SignalRequest, Streams, Task
from workers.policies.pinned import SessionState

NO_COMMAND = "Format error: give exactly one command in a ```bash block."


@dataclass(frozen=True)
class Scripted(SessionState):
    """Give the replies of a list, one per step, whatever the prompt is; the session ends when they are used up.

    Attributes:
        replies: assistant texts with one ```` ```bash ```` block each; a reply without a block is a format error.
        max_completion_tokens: limit per reply.
    Source: this project; the scripted model of mini-swe-agent's tests is the pattern.
    """

    REVISION: ClassVar[int] = 1

    replies: list[str] = field(default_factory=list)
    max_completion_tokens: int = 16384

    @property
    def is_pinned(self) -> bool:
        """Replies do not depend on the prompt."""
        return True

    @property
    def signals_source(self) -> str:
        """The script's own lines, if it has any."""
        return "recorded"

    def start(self, *, task: Task, signals: SignalRequest | None, counter: TokenCounter, streams: Streams) -> None:
        """Begin the script.

        Raises:
            ConfigurationError: there are no replies.
        """
        if not self.replies:
            raise ConfigurationError('policy=scripted needs policy.replies=["...", ...]: the list is empty')
        self._begin(counter)

    def propose(self, history: History, rendered: Rendered) -> Proposal:
        """Pin the next reply of the list.

        Raises:
            StepLimit: the list is used up.
        """
        if len(history) >= len(self.replies):
            raise StepLimit(f"the script has {len(self.replies)} replies")
        message = Message("assistant", self.replies[len(history)])
        counter: TokenCounter = self._started()
        ids = counter.reply_ids(message)
        return Proposal(max_completion_tokens=self.max_completion_tokens, pinned=PinnedReply(message, len(ids), ids))

    def interpret(self, history: History, result: CallResult) -> Reply:
        """Read the one command of the reply."""
        commands = fenced_commands(result.message.content)
        if len(commands) == 1:
            return Reply(result.message, (Action(commands[0]),))
        return Reply(result.message, (), NO_COMMAND)

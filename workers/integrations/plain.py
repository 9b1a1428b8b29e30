"""Our renderers in anybody's loop: `render(messages, renderer)`, OpenAI-style message dicts in and out.

    messages = [system, task, reply, output, ...]      # the loop's own list; it only ever grows
    reply = client.chat.completions.create(messages=render(messages, "refold"), ...)
    answer = restore(messages, "refold", command)      # None: run the command as always

`Conversation` does the same step by step without reading the list again, and can lend a model to renderers that ask
one themselves (`ask`). The renderer's changes to the prompt (ReFold's
protocol) are part of what comes back; the loop's list stays as it is.
"""

from __future__ import annotations

from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from serving.calls import Message
from serving.interfaces import TokenCounter
from serving.tokens import SplitterCounter
from workers.benchmarks.formats.common import FORMAT_LIST_ITEM
from workers.errors import ConfigurationError
from workers.history import (
    NO_SIGNALS,
    Action,
    History,
    Observation,
    Part,
    Rendered,
    Turn,
    TurnKind,
    observation_messages,
)
from workers.integrations.asking import Ask, AskedCall, Asker
from workers.integrations.openai_messages import (
    Exchange,
    MessageDict,
    actions_of,
    dict_of,
    dropped_reply,
    message_of,
    observation_of,
    taken_apart,
)
from workers.integrations.renderer_choice import Choice, renderer_of
from workers.interfaces import HarnessTemplate, Renderer

BUDGET_TOKENS = 245_760  # a window of 256 k with 16 k reserved for generation (ReFold section 4.1)


def render(
    messages: Sequence[MessageDict],
    renderer: Choice,
    *,
    counter: TokenCounter | None = None,
    budget_tokens: int = BUDGET_TOKENS,
) -> list[dict[str, Any]]:
    """What to send to the model in place of `messages`.

    Args:
        messages: the whole conversation so far, chat completions shape; never changed.
        renderer: a name, a mapping with `name` and settings, or a renderer object (it is started again).
        counter: counts tokens for renderers with a budget; the default needs no vocabulary.
        budget_tokens: usable context B of those renderers.
    Raises:
        ConfigurationError: one line; unknown renderer or setting, a message that is not text, a renderer that would
            ask a model of its own.
    """
    return Conversation(renderer, counter=counter, budget_tokens=budget_tokens).render(messages)


def restore(messages: Sequence[MessageDict], renderer: Choice, command: str) -> str | None:
    """The text with which a renderer answers a command itself (`restore 3`); None when the command is to be run.

    Args:
        messages: the conversation up to the reply with this command, without or with that reply.
    """
    conversation = Conversation(renderer)
    conversation.render(messages)
    answer = conversation.answer(Action(command))
    return None if answer is None else answer.shown


@dataclass(frozen=True, slots=True)
class RenderRecord:
    """What one render did, for the loop's own log. Counts as in `Rendered`; characters are those of contents.

    `asked_calls` are the calls the renderer made itself since the render before.
    """

    num_turns: int
    boundary: int
    num_folded: int
    num_stubs: int
    num_exempt: int
    num_messages: int
    num_chars: int
    num_chars_unrendered: int
    asked_calls: tuple[AskedCall, ...] = ()


class Conversation:
    """One agent's conversation, rendered again before every call.

    Args:
        ask: answers the calls that the renderer makes itself: chat messages and the most tokens to generate, to text.
    Invariants: the given list grows from call to call (else it is read again from its beginning); message dicts that a
    renderer leaves alone come back with every key they had; a tool call and its outputs come and go together.
    """

    def __init__(
        self,
        renderer: Choice,
        *,
        counter: TokenCounter | None = None,
        budget_tokens: int = BUDGET_TOKENS,
        ask: Ask | None = None,
    ) -> None:
        self.renderer: Renderer = renderer_of(renderer)
        self.record: RenderRecord | None = None
        self._counter: TokenCounter = counter or SplitterCounter()
        self._budget_tokens = budget_tokens
        self._asker = Asker(ask, self._counter)
        self._exchanges: list[Exchange] = []
        self._seen = Rendered(())
        self._begin((), False)

    def render(self, messages: Sequence[MessageDict]) -> list[dict[str, Any]]:
        """See the function `render`."""
        opening, exchanges, tail, has_tools = taken_apart(messages)
        if not self._continues(opening, exchanges, has_tools):
            self._begin(opening, has_tools)
        for exchange in exchanges[len(self._exchanges) :]:
            self._append(exchange)
        self._exchanges = list(exchanges)
        result = self._given_back(self._seen)
        result += [dict(message) for message in tail]
        self._note(messages, result)
        return result

    def answer(self, action: Action) -> Observation | None:
        """The renderer's own answer to an action after the messages rendered last; None passes the action on."""
        return self.renderer.intercept(self._history, action)

    def _begin(self, opening: Sequence[MessageDict], has_tools: bool) -> None:
        self.renderer.start(counter=self._counter, budget_tokens=self._budget_tokens, path="renderer")
        self._opening = tuple(opening)
        self._has_tools = has_tools
        self._exchanges = []
        self._dropped: set[int] = set()
        self._origin: dict[Message, MessageDict] = {}
        for message in opening:
            self._origin.setdefault(message_of(message), message)
        self._history = History(self._layered())
        self._seen = self.renderer.render(self._history)

    def _continues(self, opening: Sequence[MessageDict], exchanges: Sequence[Exchange], has_tools: bool) -> bool:
        """Whether the list given now begins with what was read before (messages after an output may still come)."""
        known = self._exchanges
        return (
            self._opening == tuple(opening)
            and (self._has_tools == has_tools or not known)
            and len(exchanges) >= len(known)
            and all(
                old.reply == new.reply and old.outputs == new.outputs
                for old, new in zip(known, exchanges, strict=False)
            )
        )

    def _layered(self) -> tuple[Message, ...]:
        """The opening with the renderer's prompt layer on its first system and last user message."""
        messages = [message_of(message) for message in self._opening]
        users = [i for i, message in enumerate(messages) if message.role == "user"]
        systems = [i for i, message in enumerate(messages) if message.role in ("system", "developer")]
        if not users:
            return tuple(messages)
        system = messages[systems[0]].content if systems else ""
        task = messages[users[-1]].content
        layered = self.renderer.prompt_layer(
            HarnessTemplate(system, task, _format_item(task), "tool" if self._has_tools else "user")
        )
        messages[users[-1]] = replace(messages[users[-1]], content=layered.task)
        if systems:
            messages[systems[0]] = replace(messages[systems[0]], content=layered.system)
        elif layered.system:
            messages.insert(0, Message("system", layered.system))
        return tuple(messages)

    def _append(self, exchange: Exchange) -> None:
        """Let the renderer see one more turn, as the session loop does."""
        turn = self._turn(exchange)
        self._history.append(turn)
        memos = _finished(self.renderer.observe(self._history, self._seen, self._asker))
        self._history.extend(memos)
        self._seen = self.renderer.render(self._history)

    def _turn(self, exchange: Exchange) -> Turn:
        reply = exchange.reply
        read: Message | None
        if reply is None:
            read = dropped_reply(exchange.outputs[0])
            assistant = read or Message("assistant", "")
            self._dropped.add(id(assistant))
        else:
            read = assistant = message_of(reply)
            self._origin.setdefault(assistant, reply)
        actions = actions_of(reply)
        observations = tuple(observation_of(output) for output in exchange.outputs)
        turn = Turn(
            index=len(self._history) + 1,
            assistant=assistant,
            actions=actions,
            observations=observations,
            kind=self._kind(actions),
            signals=self.renderer.read_reply(read) if read is not None and self.renderer.signals else NO_SIGNALS,
        )
        shown = observation_messages(turn, [observation.shown for observation in observations])
        for message, output in zip(shown, exchange.outputs, strict=True):
            self._origin.setdefault(message, output)
        return turn

    def _kind(self, actions: tuple[Action, ...]) -> TurnKind:
        if not actions:
            return TurnKind.format_error
        for action in actions:
            if self.renderer.intercept(self._history, action) is not None:
                word = action.command.split(maxsplit=1)[0]
                return {"restore": TurnKind.restore, "recall": TurnKind.recall}.get(word, TurnKind.guard)
        return TurnKind.command

    def _given_back(self, rendered: Rendered) -> list[dict[str, Any]]:
        """The rendered messages as dicts, with the untouched others behind the turn they followed."""
        result: list[dict[str, Any]] = []
        flushed = 0
        for segment in rendered.segments:
            if segment.part is not Part.opening:
                result += self._others(flushed, segment.first_turn - 1)
                flushed = max(flushed, segment.first_turn - 1)
            for message in segment.messages:
                if id(message) in self._dropped:
                    continue
                given = self._origin.get(message)
                result.append(dict_of(message) if given is None else dict(given))
        return result + self._others(flushed, len(self._exchanges))

    def _others(self, after: int, until: int) -> list[dict[str, Any]]:
        """The other messages of the turns behind `after` up to `until`."""
        return [dict(message) for exchange in self._exchanges[after:until] for message in exchange.others]

    def _note(self, messages: Sequence[MessageDict], result: Sequence[Mapping[str, Any]]) -> None:
        seen = self._seen
        self.record = RenderRecord(
            num_turns=len(self._history),
            boundary=seen.boundary,
            num_folded=seen.num_folded,
            num_stubs=seen.num_stubs,
            num_exempt=seen.num_exempt,
            num_messages=len(result),
            num_chars=_num_chars(result),
            num_chars_unrendered=_num_chars(messages),
            asked_calls=self._asker.taken(),
        )


def _format_item(task: str) -> str | None:
    """The item that asks for reasoning; the last match, because a task's own text comes before the instructions."""
    found = list(FORMAT_LIST_ITEM.finditer(task))
    return found[-1]["item"] if found else None


def _num_chars(messages: Sequence[Mapping[str, Any]]) -> int:
    return sum(len(message_of(message).content) for message in messages if message.get("role") != "exit")


def _finished(work: Coroutine[Any, Any, Any]) -> Any:
    """The result of a coroutine that never waits, also inside a running event loop."""
    try:
        work.send(None)
    except StopIteration as done:
        return done.value
    work.close()
    raise ConfigurationError("this renderer waits for something outside; it works in our own studies only")

"""Prefixes on token ids through a chat template that drops old reasoning (methods 1A.9).

The template is our own small one with the rule of the Qwen3 family: the reasoning of replies before the last plain user
message is not rendered. A fold note in a user message moves that place, so turns before it are rendered anew.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from serving.calls import Message
from tests.unit.workers.harnesses.tool_histories import Step, prompts_of, steps
from workers.history import Rendered
from workers.renderers.base import Base
from workers.renderers.refold import Refold
from workers.renderers.refold_prefix import NoteRole

jinja2 = pytest.importorskip("jinja2", reason="jinja2 comes with mini-swe-agent")

TEMPLATE = jinja2.Template(
    """\
{%- set place = namespace(last_query=0) -%}
{%- for message in messages if message.role == "user" -%}
  {%- set place.last_query = messages.index(message) -%}
{%- endfor -%}
{%- for message in messages -%}
  {%- if message.role == "tool" -%}
    {{- "<|im_start|>user\\n<tool_response>\\n" + message.content + "\\n</tool_response><|im_end|>\\n" -}}
  {%- else -%}
    {{- "<|im_start|>" + message.role + "\\n" -}}
    {%- if message.reasoning and (preserve_thinking or loop.index0 > place.last_query) -%}
      {{- "<think>\\n" + message.reasoning + "\\n</think>\\n\\n" -}}
    {%- endif -%}
    {{- message.content -}}
    {%- for call in message.tool_calls -%}
      {{- "\\n<tool_call>\\n" + call.name + " " + call.arguments + "\\n</tool_call>" -}}
    {%- endfor -%}
    {{- "<|im_end|>\\n" -}}
  {%- endif -%}
{%- endfor -%}
"""
)
SPECIAL = re.compile(r"(<\|im_start\|>|<\|im_end\|>|</?think>|</?tool_call>|</?tool_response>)")
ROLES = list(NoteRole)


def token_ids(rendered: Rendered | Sequence[Message], *, preserve_thinking: bool = False) -> list[int]:
    """Ids of a prompt without the generation prompt: markers are one token, other text one per byte."""
    messages = list(rendered.messages if isinstance(rendered, Rendered) else rendered)
    text = TEMPLATE.render(messages=messages, preserve_thinking=preserve_thinking)
    ids: list[int] = []
    for part in SPECIAL.split(text):
        ids += [1000 + len(part)] if SPECIAL.fullmatch(part) else list(part.encode())
    return ids


def shared(first: Sequence[Any], second: Sequence[Any]) -> int:
    """Length of the common prefix."""
    equal = 0
    for one, other in zip(first, second, strict=False):
        if one != other:
            break
        equal += 1
    return equal


def run(renderer: Any, num_steps: int = 15) -> list[Rendered]:
    """Prompts of a session in which every other step is named STALE by the next."""
    return prompts_of(
        renderer,
        [Step((f"cat {i}.py",), (f"content of {i}\n" * 20,), (i - 1,) if i % 2 else ()) for i in range(num_steps)],
    )


def shared_message_tokens(before: Rendered, after: Rendered) -> int:
    """Tokens of the whole messages that two prompts begin with, reasoning kept: what a cache could keep."""
    return len(token_ids(before.messages[: shared(before.messages, after.messages)], preserve_thinking=True))


def test_base_only_grows() -> None:
    """With tool calls the task stays the last plain user message, so every prompt begins with the one before."""
    prompts = [token_ids(rendered) for rendered in run(Base())]
    assert all(shared(one, other) == len(one) for one, other in zip(prompts, prompts[1:], strict=False))


@pytest.mark.parametrize("role", ROLES)
def test_refold_only_grows_between_two_advances(role: NoteRole) -> None:
    """The append-only property holds on token ids for every note role: the last note stays where it is in a chunk."""
    prompts = run(Refold(note_role=role))
    for before, after in zip(prompts, prompts[1:], strict=False):
        if before.boundary == after.boundary:
            assert shared(token_ids(before), token_ids(after)) == len(token_ids(before))


@pytest.mark.parametrize("role", ROLES)
@given(made=steps(max_steps=14), k=st.sampled_from([1, 2, 3, 5]), preserve_thinking=st.booleans())
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_session_only_grows_between_two_advances(
    role: NoteRole, made: list[Step], k: int, preserve_thinking: bool
) -> None:
    """On token ids, whatever is read, restored, named or repeated.

    Only an error text, a plain user message of its own, may cost earlier reasoning (the last test); without kept
    reasoning the sessions here have none.
    """
    if not preserve_thinking:
        made = [Step(step.commands or ("ls",), step.bodies or ("ok",), step.stale) for step in made]
    prompts = prompts_of(Refold(k=k, min_span_chars=20, note_role=role), made)
    for before, after in zip(prompts, prompts[1:], strict=False):
        if before.boundary == after.boundary:
            one, other = (token_ids(rendered, preserve_thinking=preserve_thinking) for rendered in (before, after))
            assert shared(one, other) == len(one) < len(other)


@pytest.mark.parametrize("role", [NoteRole.tool_append, NoteRole.merge_previous])
def test_notes_inside_a_tool_message_keep_the_prefix_at_an_advance(role: NoteRole) -> None:
    """No plain user message is added, so all messages before the first changed one keep their ids."""
    prompts = run(Refold(note_role=role))
    for before, after in zip(prompts[5:], prompts[6:], strict=False):
        assert shared(token_ids(before), token_ids(after)) >= shared_message_tokens(before, after)


def test_a_user_note_costs_reasoning_before_it_at_an_advance() -> None:
    """A note that is the new last user message drops the reasoning of kept turns before it: less prefix is shared."""
    prompts = run(Refold(note_role=NoteRole.user))
    advances = [
        (before, after)
        for before, after in zip(prompts, prompts[1:], strict=False)
        if after.boundary > before.boundary and after.num_folded > before.num_folded
    ]
    lost = [shared_message_tokens(*pair) - shared(token_ids(pair[0]), token_ids(pair[1])) for pair in advances]
    assert len(advances) >= 2
    assert all(tokens > 0 for tokens in lost[1:])


def test_keeping_all_reasoning_makes_every_role_equal() -> None:
    """With `preserve_thinking` a user note costs nothing more than the message that changes."""
    for role in ROLES:
        prompts = run(Refold(note_role=role))
        for before, after in zip(prompts, prompts[1:], strict=False):
            one, other = (token_ids(rendered, preserve_thinking=True) for rendered in (before, after))
            assert shared(one, other) >= shared_message_tokens(before, after)


def test_a_reply_without_an_action_costs_the_prefix_under_any_renderer() -> None:
    """Its error text is a plain user message: the reasoning of everything before it is gone from the next prompt on."""
    before, after = prompts_of(Base(), [Step(("ls",), ("a",)), Step((), ())])[1:]
    ids = token_ids(before), token_ids(after)
    assert shared(*ids) == len(token_ids(before.messages[:2])) + len("#assistant\n")
    assert shared(*ids) < len(ids[0])

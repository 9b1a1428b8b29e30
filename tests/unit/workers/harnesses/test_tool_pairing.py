"""Whatever a renderer does, the messages stay what chat servers accept: calls paired, roles in a valid order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from serving.calls import Message
from tests.unit.workers.harnesses.tool_histories import Step, prompts_of, steps
from workers.renderers.base import Base
from workers.renderers.clip import Clip
from workers.renderers.mask import Mask
from workers.renderers.refold import Refold
from workers.renderers.refold_prefix import NoteRole

RENDERERS = [
    pytest.param(lambda: Base(), id="base"),
    pytest.param(lambda: Clip(cap_chars=20, keep_recent=2), id="clip"),
    pytest.param(lambda: Mask(keep_recent=2), id="mask"),
    pytest.param(lambda: Mask(keep_recent=1, polling=3), id="mask-polling"),
    pytest.param(lambda: Refold(), id="refold"),
    pytest.param(lambda: Refold(k=1, min_span_chars=20), id="refold-k1"),
    pytest.param(lambda: Refold(k=2, reversible=False, min_span_chars=20), id="refold-irreversible"),
    pytest.param(lambda: Refold(k=2, chunked=False), id="refold-unchunked"),
    pytest.param(lambda: Refold(k=2, note_role=NoteRole.tool_append), id="refold-tool-append"),
    pytest.param(lambda: Refold(k=2, note_role=NoteRole.merge_previous), id="refold-merge-previous"),
]
STRICT = [entry for entry in RENDERERS if entry.id in ("base", "clip", "mask", "mask-polling", "refold-merge-previous")]
FEW = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def problems(messages: Sequence[Message]) -> list[str]:
    """What a chat server would refuse, empty when nothing."""
    found = [] if [m.role for m in messages[:2]] == ["system", "user"] else ["the opening is not system, user"]
    waiting: list[str] = []
    for before, message in zip([None, *messages], messages, strict=False):
        if message.role == "tool":
            if not waiting or message.tool_call_id != waiting.pop(0):
                found.append(f"output {message.tool_call_id} does not follow its call")
            continue
        if waiting:
            found.append(f"{message.role} message before the outputs of {waiting}")
        if message.role == "assistant" and before is not None and before.role == "assistant":
            found.append("two replies in a row")
        waiting = [call.id for call in message.tool_calls]
    if waiting or messages[-1].role == "assistant":
        found.append("it ends without the outputs of its last reply")
    return found


@pytest.mark.parametrize("make", RENDERERS)
@given(made=steps())
@FEW
def test_calls_and_outputs_stay_together(make: Any, made: list[Step]) -> None:
    """Every call has its outputs right behind it, in order; none of either is left alone, in every prompt."""
    for rendered in prompts_of(make(), made):
        assert problems(rendered.messages) == []


@pytest.mark.parametrize("make", RENDERERS)
@given(made=steps(max_calls=1))
@FEW
def test_text_histories_stay_valid(make: Any, made: list[Step]) -> None:
    """The same without tool calls."""
    for rendered in prompts_of(make(), made, has_tools=False):
        assert problems(rendered.messages) == []


@pytest.mark.parametrize("make", STRICT)
@given(made=steps(max_calls=1))
@FEW
def test_users_and_replies_alternate_strictly(make: Any, made: list[Step]) -> None:
    """Templates that demand it are served by every renderer without notes, and by refold with merge_previous."""
    for rendered in prompts_of(make(), made, has_tools=False):
        roles = [message.role for message in rendered.messages[1:]]
        assert roles == ["user", "assistant"] * (len(roles) // 2) + ["user"]


@given(made=steps())
@FEW
def test_all_outputs_of_a_step_carry_its_label(made: list[Step]) -> None:
    """Several calls in one reply are one step: the same `[step N]` on each of its outputs (methods 1A.1)."""
    rendered = prompts_of(Refold(), made)[-1]
    for segment in rendered.segments:
        if segment.part == "observation":
            for message in segment.messages:
                assert message.content.startswith(f"[step {segment.first_turn - 1}]\n")


def test_restore_returns_every_output_of_a_step() -> None:
    """`restore 0` after a reply with two calls shows both outputs, in order."""
    prompts = prompts_of(Refold(), [Step(("ls", "pwd"), ("first", "second")), Step(("restore 0",), ("",))])
    restored = prompts[-1].messages[-1]
    assert restored.tool_call_id == "call_1_0"
    assert restored.content.index("first") < restored.content.index("second")


@pytest.mark.parametrize("make", RENDERERS)
def test_reasoning_stays_with_its_reply(make: Any) -> None:
    """A reply that is shown is shown with its reasoning field and its text."""
    made = [Step(("ls",), ("x" * 400,)) for _ in range(9)]
    replies = [m for m in prompts_of(make(), made)[-1].messages if m.role == "assistant"]
    assert replies
    assert all(reply.reasoning and reply.content.startswith("PROGRESS") for reply in replies)

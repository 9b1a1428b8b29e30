"""`render(messages, renderer)` for anybody's loop: dicts in, dicts out, as the session renders, nothing lost."""

from __future__ import annotations

import asyncio
import copy
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from tests.unit.workers.harnesses.test_tool_pairing import problems
from tests.unit.workers.harnesses.tool_histories import Step, prompts_of, reply_of, steps
from workers.errors import ConfigurationError
from workers.harnesses.terminal import Terminal
from workers.integrations.openai_messages import dict_of, message_of
from workers.integrations.plain import Conversation, render, restore
from workers.integrations.renderer_choice import answers_commands, names, renderer_of
from workers.renderers.refold import Refold

FEW = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
OPENING = [{"role": "system", "content": "You are an agent."}, {"role": "user", "content": "Fix the bug."}]
TALKATIVE = ["base", "clip", "mask", "refold", {"name": "refold", "k": 2, "note_role": "tool_append"}]


def loop_of(made: list[Step], *, has_tools: bool = True) -> list[dict[str, Any]]:
    """The messages of a loop with these steps; a restore's output is what our renderer answers."""
    harness = Terminal(tool_calls=has_tools)
    messages = [dict_of(message) for message in harness.template("Do it.").opening()]
    conversation = Conversation("refold")
    for label, step in enumerate(made):
        conversation.render(messages)
        reply = reply_of(step, label, has_tools=has_tools)
        outputs = []
        for action, body in zip(harness.parse(reply).actions, step.bodies, strict=True):
            answer = conversation.answer(action)
            shown = (answer or harness.observation(body, 0, None)).shown
            call_id = {"tool_call_id": action.tool_call_id} if has_tools else {}
            outputs.append({"role": "tool" if has_tools else "user", "content": shown, **call_id})
        messages += [dict_of(reply), *outputs]
    return messages


def plain_steps(made: list[Step]) -> list[Step]:
    """The steps that have an action: what a loop does with the others is its own affair."""
    return [step for step in made if step.commands and not step.is_broken] or [Step(("ls",), ("a",))]


def conversation_with_odd_parts() -> list[dict[str, Any]]:
    """Messages as APIs and loops write them: null content, parts, foreign keys, a person's remark."""
    call = {"id": "c1", "type": "function", "function": {"name": "read_file", "arguments": '{"path": "a.py"}'}}
    return [
        *OPENING,
        {"role": "assistant", "content": None, "tool_calls": [call], "reasoning_content": "why", "refusal": None},
        {
            "role": "tool",
            "tool_call_id": "c1",
            "content": [{"type": "text", "text": "def f(): ..."}],
            "name": "read_file",
        },
        {"role": "user", "content": "Please keep it short.", "name": "ann"},
        {"role": "assistant", "content": "It is short.", "extra": {"cost": 1}},
        {"role": "user", "content": "Go on."},
    ]


def test_base_gives_back_what_it_was_given() -> None:
    """Equal messages with every key, in new dicts; the list given is unchanged."""
    messages = conversation_with_odd_parts()
    before = copy.deepcopy(messages)
    rendered = render(messages, "base")
    assert rendered == before == messages
    assert all(one is not other for one, other in zip(rendered, messages, strict=True))


@pytest.mark.parametrize("renderer", TALKATIVE)
@given(made=steps())
@FEW
def test_messages_stay_valid(renderer: Any, made: list[Step]) -> None:
    """Calls and outputs stay together and replies are followed by something, for every renderer."""
    assert problems([message_of(message) for message in render(loop_of(plain_steps(made)), renderer)]) == []


@given(made=steps(max_steps=12))
@FEW
def test_it_renders_as_the_session_does(made: list[Step]) -> None:
    """The messages behind the opening are those of our own session loop on the same steps."""
    chosen = plain_steps(made)
    ours = prompts_of(Refold(k=2), chosen)[-1].messages
    theirs = render(loop_of(chosen), {"name": "refold", "k": 2})
    assert [message_of(message) for message in theirs[2:]] == list(ours[2:])


@given(made=steps(max_steps=10), has_tools=...)
@settings(FEW, max_examples=10)
def test_step_by_step_equals_at_once(made: list[Step], has_tools: bool) -> None:
    """A conversation that follows the loop gives what `render` gives, after every message."""
    chosen = [Step(step.commands[:1], step.bodies[:1], step.stale) for step in plain_steps(made)]
    messages = loop_of(chosen, has_tools=has_tools)
    conversation = Conversation("refold")
    for end in range(2, len(messages) + 1):
        if not (end < len(messages) and messages[end]["role"] == "tool"):
            assert conversation.render(messages[:end]) == render(messages[:end], "refold")


def test_another_conversation_starts_anew() -> None:
    """A list that does not continue the one before is read from its beginning."""
    conversation = Conversation("refold")
    conversation.render(loop_of([Step(("ls",), ("a",))] * 8))
    other = [*OPENING, {"role": "assistant", "content": "Hm.\n```bash\nls\n```"}, {"role": "user", "content": "a"}]
    assert conversation.render(other) == render(other, "refold")


def test_refold_s_layer_is_in_what_is_sent_only() -> None:
    """The protocol is appended to a task without a format list; without a system message the paragraph becomes one."""
    rendered = render(OPENING, "refold")
    assert rendered[0]["content"].startswith("You are an agent.\n\nContext management: ")
    assert rendered[1]["content"].startswith("Fix the bug.\n\nBegin every response with these two lines")
    alone = render(OPENING[1:], "refold")
    assert [message["role"] for message in alone] == ["system", "user"]
    assert OPENING[1]["content"] == "Fix the bug."


def test_restore_answers_as_first_shown() -> None:
    """Byte for byte; a command that is no restore is not answered, an unknown step is a line about it."""
    messages = loop_of([Step(("cat a.py",), ("content\n" * 40,), ()), *[Step(("ls",), ("a",), (0,))] * 8])
    folded = render(messages, "refold")
    assert "call_0_0" not in json.dumps(folded)
    assert restore(messages, "refold", "restore 0") == messages[3]["content"]
    assert restore(messages, "refold", "restore 0 && ls") is None
    assert restore(messages, "mask", "restore 0") is None
    assert "there is no step 99" in (restore(messages, "refold", "restore 99") or "")


@pytest.mark.parametrize("renderer", TALKATIVE)
def test_a_person_s_remark_is_never_touched(renderer: Any) -> None:
    """With tool calls, user messages behind outputs are nobody's output: they stay, word for word and in place."""
    messages = loop_of([Step(("cat a.py",), ("x" * 3000,), (i - 1,) if i else ()) for i in range(12)])
    remark = {"role": "user", "content": "Remember: " + "no new dependencies. " * 40}
    messages.insert(6, remark)
    rendered = render(messages, renderer)
    assert rendered.count(remark) == 1
    assert rendered[-2:][0]["tool_calls"] == messages[-2]["tool_calls"]


def test_a_reply_without_its_outputs_yet_is_passed_on() -> None:
    """A loop that renders in the middle of a turn gets the open reply back as it is."""
    messages = [*loop_of([Step(("ls",), ("a",))]), dict_of(reply_of(Step(("ls", "pwd"), ("", "")), 1, has_tools=True))]
    assert render(messages, "refold")[-1] == messages[-1]


def test_it_works_inside_an_event_loop() -> None:
    """Renderers are driven without an event loop of our own."""

    async def inside() -> list[dict[str, Any]]:
        return render(loop_of([Step(("ls",), ("a",))]), "refold")

    assert len(asyncio.run(inside())) == 4


@pytest.mark.parametrize("name", names())
def test_every_renderer_works_or_says_why_not(name: str) -> None:
    """Those that ask a model of their own refuse with one line when they would."""
    messages = loop_of([Step((f"cat {i}.py",), (f"content of {i}\n" * 40,)) for i in range(30)])
    result = rendered_or_refusal(messages, name)
    if isinstance(result, str):
        assert "asks a model itself" in result
        assert "\n" not in result
    else:
        assert problems([message_of(message) for message in result]) == []


def rendered_or_refusal(messages: list[dict[str, Any]], name: str) -> list[dict[str, Any]] | str:
    """What a renderer makes of a small budget, or the line with which it refuses."""
    try:
        return render(messages, name, budget_tokens=4096)
    except ConfigurationError as refusal:
        return str(refusal)


@pytest.mark.parametrize(
    ("choice", "line"),
    [
        ("foldy", r"renderer 'foldy': there is no such renderer; names: .*refold"),
        ({"k": 3}, "has no name"),
        ({"name": "refold", "kk": 3}, "renderer refold has no setting 'kk'; settings: k, "),
        ({"name": "refold", "k": "three"}, "renderer refold, k: Value 'three'"),
        ({"name": "refold", "k": 0}, "k=0"),
    ],
)
def test_a_wrong_choice_is_one_line(choice: Any, line: str) -> None:
    """It names the value and what exists."""
    with pytest.raises(ConfigurationError, match=line) as caught:
        renderer_of(choice)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "message",
    [
        {"type": "function_call", "call_id": "c"},
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:"}}]},
        {"role": "assistant", "content": "", "tool_calls": [{"id": "c"}]},
    ],
)
def test_what_is_no_text_message_is_refused(message: dict[str, Any]) -> None:
    """One line, for the items of other APIs, images and broken tool calls."""
    with pytest.raises(ConfigurationError, match="cannot be rendered"):
        render([*OPENING, message, {"role": "user", "content": "x"}], "refold")


def test_the_record_counts() -> None:
    """Turns, folds and characters of the newest render."""
    conversation = Conversation("refold")
    messages = loop_of([Step(("cat a.py",), ("y" * 900,), (i - 1,) if i else ()) for i in range(6)])
    conversation.render(messages)
    record = conversation.record
    assert record is not None
    assert (record.num_turns, record.boundary, record.num_folded) == (6, 3, 3)
    assert record.num_chars_unrendered == sum(len(message["content"]) for message in messages)


def test_a_lent_model_answers_the_renderer_s_own_calls() -> None:
    """compact in a small window asks for a summary once per compaction; it is noted with purpose and size."""
    asked: list[list[dict[str, Any]]] = []

    def ask(messages: list[dict[str, Any]], max_tokens: int) -> str:
        assert max_tokens > 0
        asked.append(messages)
        return "What happened so far."

    conversation = Conversation("compact", budget_tokens=4096, ask=ask)
    messages = loop_of([Step((f"cat {i}.py",), (f"content of {i}\n" * 60,)) for i in range(20)])
    purposes = []
    for end in range(2, len(messages) + 1, 2):
        rendered = conversation.render(messages[:end])
        assert conversation.record is not None
        purposes += [call.purpose for call in conversation.record.asked_calls]
    assert purposes == ["summary"] * len(asked) != []
    assert any("What happened so far." in message["content"] for message in rendered)
    assert problems([message_of(message) for message in rendered]) == []


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ("base", False),
        ("mask", False),
        ("refold", True),
        ("recall", True),
        ("arsm", True),
        ("compact", False),
        ({"name": "compact", "inner": {"name": "refold", "k": 5}}, True),
    ],
)
def test_who_answers_commands(choice: Any, expected: bool) -> None:
    """Also a renderer inside another; those need an environment that asks them first."""
    assert answers_commands(renderer_of(choice)) is expected

"""The terminal harness: prompt, both reply formats, frame of outputs."""

from __future__ import annotations

import json

import pytest

from serving.calls import Message, ToolCall
from workers.errors import ConfigurationError
from workers.harnesses.minimal import Minimal
from workers.harnesses.terminal import Terminal
from workers.history import Action
from workers.renderers.refold import Refold


@pytest.mark.parametrize("tool_calls", [True, False])
def test_refold_s_layer_fits(tool_calls: bool) -> None:
    """The protocol takes the place of item 1 and item 2 stays."""
    template = Terminal(tool_calls=tool_calls).template("Serve {files} on port 80.")
    layered = Refold().prompt_layer(template)
    assert "Serve {files} on port 80." in layered.task
    assert "Every reply has two parts:\n1. Begin every response with these two lines" in layered.task
    assert "\n2. " in layered.task
    assert "A few sentences of reasoning" not in layered.task
    assert template.observation_role == ("tool" if tool_calls else "user")


def test_tool_calls_are_the_commands() -> None:
    """Several in order; the definition of the tool goes with the request."""
    made = tuple(ToolCall(f"c{i}", "bash", json.dumps({"command": text})) for i, text in enumerate(("ls", "pwd")))
    read = Terminal().parse(Message("assistant", "", tool_calls=made))
    assert read.actions == (Action("ls", "c0"), Action("pwd", "c1"))
    assert Terminal().tools[0]["function"]["name"] == "bash"


@pytest.mark.parametrize(
    ("reply", "found"),
    [
        (Message("assistant", "```bash\nls\n```"), "No tool calls found"),
        (Message("assistant", "", tool_calls=(ToolCall("c", "bash", "{"),)), "Error parsing tool call arguments"),
        (Message("assistant", "", tool_calls=(ToolCall("c", "edit", "{}"),)), "Unknown tool 'edit'"),
    ],
)
def test_broken_replies_are_format_errors(reply: Message, found: str) -> None:
    """No action; the reply keeps no call that would lack its output, and is not empty."""
    read = Terminal().parse(reply)
    assert read.actions == ()
    assert read.message.tool_calls == ()
    assert read.message.content
    assert read.error is not None
    assert found in read.error


def test_fenced_blocks() -> None:
    """Without tool calls the reply format and the frame are those of the minimal harness."""
    harness = Terminal(tool_calls=False)
    assert harness.parse(Message("assistant", "Look.\n```bash\nls\n```")).actions == (Action("ls"),)
    assert harness.tools == ()
    assert harness.observation("a\n", 0, None) == Minimal().observation("a\n", 0, None)


def test_impossible_limit_is_refused() -> None:
    """One line with the value."""
    with pytest.raises(ConfigurationError, match="max_output_chars=0"):
        Terminal(max_output_chars=0)

"""The minimal harness: prompt, reply format, frame of outputs."""

import pytest

from serving.calls import Message
from workers.errors import ConfigurationError
from workers.harnesses.minimal import Minimal
from workers.history import Action


def parse(text: str) -> tuple[tuple[Action, ...], str | None]:
    """Actions and error of a reply."""
    reply = Minimal().parse(Message("assistant", text))
    return reply.actions, reply.error


def test_template_holds_statement_and_format_item() -> None:
    """The item that asks for reasoning is an exact part of the task message."""
    template = Minimal().template("Fix {this} bug.")
    assert "Fix {this} bug." in template.task
    assert template.format_item is not None
    assert template.task.count(template.format_item) == 1
    assert "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT" in template.task


def test_one_block_is_the_command() -> None:
    """Text around it does not matter, several lines and here-documents stay whole."""
    assert parse("I look.\n```bash\ncat > a <<EOF\nx\nEOF\nls\n```\n") == ((Action("cat > a <<EOF\nx\nEOF\nls"),), None)


def test_a_reply_with_crlf_line_ends_is_read() -> None:
    """The shell gets line feeds alone; a carriage return inside a line is part of the command."""
    assert parse("I look.\r\n```bash\r\ncd src\r\nls\r\n```\r\n") == ((Action("cd src\nls"),), None)
    assert parse("```bash\nprintf 'a\rb'\n```") == ((Action("printf 'a\rb'"),), None)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("no block", "0 ```bash blocks"),
        ("```bash\nls\n```\n```bash\npwd\n```", "2 ```bash blocks"),
        ("```bash\n\n```", "an empty ```bash block"),
        ("```python\nx\n```", "0 ```bash blocks"),
    ],
)
def test_other_replies_are_format_errors(text: str, found: str) -> None:
    """No action, and an error text that says what was found."""
    actions, error = parse(text)
    assert actions == ()
    assert error is not None
    assert found in error


def test_frame() -> None:
    """`<returncode>` line and `<output>` tags around the body, which has no newline of the frame."""
    shown = Minimal().observation("a\nb\n", 1, "call-1")
    assert shown.shown == "<returncode>1</returncode>\n<output>\na\nb\n</output>"
    assert (shown.body, shown.returncode, shown.tool_call_id, shown.num_output_chars) == ("a\nb", 1, "call-1", 4)
    assert Minimal().observation("", 0, None).shown == "<returncode>0</returncode>\n<output>\n</output>"


@pytest.mark.parametrize(("length", "elided"), [(10_000, None), (10_001, 1), (25_000, 15_000)])
def test_long_outputs_keep_5000_characters_at_either_end(length: int, elided: int | None) -> None:
    """10,000 characters are shown whole; beyond, head 5,000, tail 5,000 and the count between (ReFold section 4.1)."""
    text = "h" * 5000 + "m" * (length - 10_000) + "t" * 5000
    body = Minimal().observation(text, 0, None).body
    if elided is None:
        assert body == text
    else:
        assert body == "h" * 5000 + f"\n[... {elided} characters elided ...]\n" + "t" * 5000


def test_impossible_limit_is_refused() -> None:
    """One line with the value."""
    with pytest.raises(ConfigurationError, match="max_output_chars=1"):
        Minimal(max_output_chars=1)

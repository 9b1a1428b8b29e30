"""Commands in replies and their kinds."""

from __future__ import annotations

import pytest

from serving.calls import Message, ToolCall
from workers.actions import command_kind, fenced_commands, is_submission, step_kind, tool_call_actions, without_blocks
from workers.history import Action


def test_fenced_commands_are_found_by_fence() -> None:
    """Only blocks of the asked fence count; several are all given, so that the harness can refuse them."""
    text = "Look.\n\n```bash\ncat a.py\n```\nand\n```bash\nls\n```\n```python\nprint()\n```"
    assert fenced_commands(text) == ("cat a.py", "ls")
    assert fenced_commands(text, "mswea_bash_command") == ()
    assert fenced_commands("```mswea_bash_command\nls -la\n```", "mswea_bash_command") == ("ls -la",)


def test_prose_is_what_stands_outside_blocks() -> None:
    """A reply's prose has no code, closed or cut off."""
    assert without_blocks("Look.\n```bash\nls\n```").strip() == "Look."
    assert without_blocks("Look.\n```bash\nls").strip() == "Look."


def test_only_sound_bash_calls_are_actions() -> None:
    """Calls of other tools and arguments that are no command are left out; the id stays with the command."""
    calls = (
        ToolCall("1", "bash", '{"command": "ls"}'),
        ToolCall("2", "bash", '{"command": '),
        ToolCall("3", "view", '{"command": "ls"}'),
        ToolCall("4", "bash", "[1]"),
    )
    assert tool_call_actions(Message("assistant", "", tool_calls=calls)) == (Action("ls", "1"),)


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        ("cat src/a.py", "read"),
        ("cd /testbed && sed -n '1,20p' a.py", "read"),
        ("nl -ba a.py | sed -n '5,9p'", "read"),
        ("grep -rn foo . | head -20", "search"),
        ("find . -name '*.py' | xargs grep -l python", "search"),
        ("ls -la", "search"),
        ("git diff", "search"),
        ("python -m pytest tests/test_a.py", "run"),
        ("cd /testbed && python test_x.py 2>&1 | tail -5", "run"),
        ("pip install pytz", "run"),
        ("cat > a.py <<'EOF'\nimport os\nEOF", "write"),
        ("cat <<'EOF' > a.py\nx\nEOF", "write"),
        ("echo 'x' > a.txt", "write"),
        ("sed -i 's/a/b/' a.py", "edit"),
        ("git checkout a.py", "edit"),
        ("rm a.py", "edit"),
        ("echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT && cat patch.txt", "submit"),
        ("submit\n", "submit"),
        ("", "none"),
        ("export A=1", "other"),
    ],
)
def test_kinds_of_commands(command: str, kind: str) -> None:
    """The kind is what a person would say the command is for."""
    assert command_kind(command) == kind


def test_a_step_submits_when_any_command_does() -> None:
    """Without a command a step is `none`; otherwise its first command decides, but for a submission."""
    submit = Action("echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT")
    assert step_kind(()) == "none"
    assert step_kind((Action("ls"), Action("cat a"))) == "search"
    assert step_kind((Action("ls"), submit)) == "submit"
    assert is_submission(submit.command)
    assert not is_submission("git submit")

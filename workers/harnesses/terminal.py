"""terminal: our own prompt for terminal tasks, judged by the state in which the machine is left.

No patch is handed in: the task's tests look at files and services afterwards. Commands are `bash` tool calls or, with
`tool_calls=false`, one fenced block as in the minimal harness, whose frame of outputs it shares.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from serving.calls import Message
from workers.errors import ConfigurationError
from workers.harnesses.minimal import Minimal
from workers.harnesses.tool_calls import TOOL_NAME, read_calls, without_calls
from workers.history import Observation
from workers.interfaces import HarnessTemplate, Reply

SYSTEM = "You complete tasks on a Linux machine by running shell commands."

FORMAT_ITEM = "1. A few sentences of reasoning: what the last output tells you and what comes next."
CALLS_ITEM = "2. One or more calls of the `bash` tool; commands of one reply run in the order written."
BLOCK_ITEM = "2. Exactly one command, in one fenced block that starts with ```bash and ends with ```."

TASK = """\
Complete this task:

{statement}

Every reply has two parts:
{format_item}
{command_item}

Each command runs in a fresh non-interactive shell and you are shown its return code and output; directory changes and
variables do not outlive it. Long outputs are cut in the middle. Programs that take over the screen or wait for keys do
not work. Start what must keep running in the background, with its output in a file.

What counts is the state in which you leave the machine: files where and as the task asks for them, services running.
Check it before you finish. Then run this command alone, after which nothing more can be done:
echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT
"""

TOOL: Final[Mapping[str, Any]] = {
    "type": "function",
    "function": {
        "name": TOOL_NAME,
        "description": "Run a command in bash and return its output and return code.",
        "parameters": {
            "type": "object",
            "properties": {"command": {"type": "string", "description": "The command."}},
            "required": ["command"],
        },
    },
}


@dataclass(frozen=True)
class Terminal:
    """Our own prompt for Terminal-Bench-like tasks.

    Attributes:
        tool_calls: commands are tool calls; false makes them fenced blocks.
        max_output_chars: outputs up to this length are shown whole; longer ones keep half of it at either end.
    Source: [choice] our own wording; Terminal-Bench tasks and the 10,000 characters as in ReFold (arXiv 2610.07863)
        sections 4.1 and A.2.
    """

    tool_calls: bool = True
    max_output_chars: int = 10_000

    REVISION: ClassVar[int] = 1

    def __post_init__(self) -> None:
        if self.max_output_chars < 2:
            raise ConfigurationError(f"harness terminal: max_output_chars={self.max_output_chars}; give at least 2")

    @property
    def name(self) -> str:
        """The harness's name in tables."""
        return "terminal"

    @property
    def tools(self) -> Sequence[Mapping[str, Any]]:
        """Tool definitions that go with every request, in the OpenAI shape."""
        return (TOOL,) if self.tool_calls else ()

    def template(self, statement: str) -> HarnessTemplate:
        """Fill the task message with `statement`."""
        command_item = CALLS_ITEM if self.tool_calls else BLOCK_ITEM
        task = TASK.format(statement=statement, format_item=FORMAT_ITEM, command_item=command_item)
        return HarnessTemplate(SYSTEM, task, FORMAT_ITEM, "tool" if self.tool_calls else "user")

    def parse(self, reply: Message) -> Reply:
        """Read the commands; a reply without a valid one is a format error whose text the agent is shown."""
        if not self.tool_calls:
            return Minimal().parse(reply)
        actions, problem = read_calls(reply)
        if problem is None:
            return Reply(reply, actions)
        error = f'Format error: {problem} Call the tool `bash` with {{"command": "..."}}.'
        return Reply(without_calls(reply), (), error)

    def observation(self, output: str, returncode: int | None, tool_call_id: str | None) -> Observation:
        """Frame and cut one output."""
        return Minimal(self.max_output_chars).observation(output, returncode, tool_call_id)

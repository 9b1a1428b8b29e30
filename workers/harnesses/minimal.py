"""minimal: our own short prompt, one fenced bash block per reply; the default harness of the demos and tests."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar

from serving.calls import Message
from workers.errors import ConfigurationError
from workers.history import Action, Observation
from workers.interfaces import HarnessTemplate, Reply

SYSTEM = "You solve software tasks by running commands in a Linux shell, one at a time."

FORMAT_ITEM = "1. A few sentences of reasoning: what the last output tells you and what the next command is for."

TASK = """\
Solve this task:

{statement}

Every reply has two parts:
{format_item}
2. Exactly one command, in one fenced block that starts with ```bash and ends with ```.

The command runs in a fresh non-interactive shell and you are shown its return code and output. Directory changes and
variables do not outlive a command. Long outputs are cut in the middle.

When you are done, write your changes to patch.txt with `git diff > patch.txt` and submit them with this command alone:
```bash
echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT && cat patch.txt
```
"""

_BLOCK = re.compile(r"^```bash[ \t]*\r?\n(.*?)^```[ \t]*\r?$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Minimal:
    """System line, task with a two-item format list, `<returncode>` and `<output>` around every output.

    Attributes:
        max_output_chars: outputs up to this length are shown whole; longer ones keep half of it at either end.
    Source: [choice] our own wording; the frame and the 10,000 characters (head 5,000, tail 5,000) are those of
        ReFold (arXiv 2610.07863) section 4.1 and methods 1A.11.
    """

    max_output_chars: int = 10_000

    REVISION: ClassVar[int] = 1

    def __post_init__(self) -> None:
        if self.max_output_chars < 2:
            raise ConfigurationError(f"harness minimal: max_output_chars={self.max_output_chars}; give at least 2")

    @property
    def name(self) -> str:
        """The harness's name in tables."""
        return "minimal"

    def template(self, statement: str) -> HarnessTemplate:
        """Fill the task message with `statement`."""
        return HarnessTemplate(SYSTEM, TASK.format(statement=statement, format_item=FORMAT_ITEM), FORMAT_ITEM)

    def parse(self, reply: Message) -> Reply:
        """Find the one bash block; none or several is a format error whose text the agent is shown.

        Line ends of the other kind (CRLF) are taken as line ends, so that no shell gets to see the carriage returns.
        """
        blocks = _BLOCK.findall(reply.content)
        if len(blocks) == 1 and blocks[0].strip():
            return Reply(reply, (Action(blocks[0].replace("\r\n", "\n").removesuffix("\n")),))
        found = "an empty ```bash block" if len(blocks) == 1 else f"{len(blocks)} ```bash blocks"
        error = f"Format error: your reply has {found}; give exactly one, with the command you want to run."
        return Reply(reply, (), error)

    def observation(self, output: str, returncode: int | None, tool_call_id: str | None) -> Observation:
        """Frame one output; the body has no trailing newline of its own and is cut in the middle when it is long."""
        body = self._cut(output.removesuffix("\n"))
        first = "" if returncode is None else f"<returncode>{returncode}</returncode>\n"
        return Observation(
            body=body,
            head=f"{first}<output>\n",
            tail="\n</output>" if body else "</output>",
            returncode=returncode,
            tool_call_id=tool_call_id,
            num_output_chars=len(output),
        )

    def _cut(self, text: str) -> str:
        limit = self.max_output_chars
        if len(text) <= limit:
            return text
        num_head = limit // 2
        num_tail = limit - num_head
        elided = len(text) - limit
        return f"{text[:num_head]}\n[... {elided} characters elided ...]\n{text[len(text) - num_tail :]}"

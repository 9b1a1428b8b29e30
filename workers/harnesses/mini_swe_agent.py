"""mini_swe_agent: mini-swe-agent's default format, one or more `bash` tool calls per reply.

Templates come from the installed package at run time. Several calls in one reply are run in order and make one turn
with one observation each (methods 1A.1); a reply with a broken call is a turn without an action.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from serving.calls import Message
from workers.harnesses.mini_swe_agent_frame import PackageHarness
from workers.harnesses.mini_swe_agent_package import bash_tool, fill
from workers.harnesses.tool_calls import read_calls, without_calls
from workers.interfaces import Reply


@dataclass(frozen=True)
class MiniSweAgent(PackageHarness):
    """mini-swe-agent with tool calls.

    Attributes:
        config: prompt file of the package, `config/benchmarks/<config>.yaml`.
        package_version: version of the package whose templates are meant; identity, another one installed is refused.
    Source: mini-swe-agent 2.4.6 (MIT), the harness of ReFold (arXiv 2610.07863) section 4.1.
    """

    config: str = "swebench"

    REVISION: ClassVar[int] = 1
    component: ClassVar[str] = "mini_swe_agent"
    observation_role: ClassVar[str] = "tool"

    def __post_init__(self) -> None:
        """Refuse a missing package, another version or an unknown file before anything runs."""
        _ = self._prompts, self.tools

    @property
    def name(self) -> str:
        """The harness's name in tables."""
        return "mini-swe-agent"

    @property
    def tools(self) -> Sequence[Mapping[str, Any]]:
        """Tool definitions that go with every request, in the OpenAI shape."""
        return (bash_tool(self._root),)

    def parse(self, reply: Message, finish_reason: str | None = None) -> Reply:
        """Read the commands of the tool calls; the error text is the package's.

        Args:
            finish_reason: of the call, where known; the package tells a cut reply from a malformed one by it.
        """
        actions, problem = read_calls(reply)
        if problem is None:
            return Reply(reply, actions)
        known = {} if finish_reason is None else {"finish_reason": finish_reason}
        text = fill(
            self._prompts.format_error, error=problem, actions=[], has_tool_calls=bool(reply.tool_calls), **known
        )
        return Reply(without_calls(reply), (), text)

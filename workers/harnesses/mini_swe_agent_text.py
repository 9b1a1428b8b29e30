"""mini_swe_agent_text: mini-swe-agent's text format, exactly one fenced action per reply, outputs as user messages.

`config=swebench_backticks` marks actions by a ```` ```mswea_bash_command ```` fence, `config=swebench_xml` by a tag;
the expression that finds them comes from the package like the templates.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from serving.calls import Message
from workers.harnesses.mini_swe_agent_frame import PackageHarness
from workers.harnesses.mini_swe_agent_package import fill, text_action_regex
from workers.history import Action
from workers.interfaces import Reply


@dataclass(frozen=True)
class MiniSweAgentText(PackageHarness):
    """mini-swe-agent without tool calls.

    Attributes:
        config: prompt file of the package, `config/benchmarks/<config>.yaml`.
        package_version: version of the package whose templates are meant; identity, another one installed is refused.
    Source: mini-swe-agent 2.4.6 (MIT), its text-based models.
    """

    config: str = "swebench_backticks"

    REVISION: ClassVar[int] = 1
    component: ClassVar[str] = "mini_swe_agent_text"
    observation_role: ClassVar[str] = "user"

    def __post_init__(self) -> None:
        """Refuse a missing package, another version or an unknown file before anything runs."""
        _ = self._prompts, self._action_regex

    @property
    def name(self) -> str:
        """The harness's name in tables."""
        return "mini-swe-agent-text"

    @property
    def tools(self) -> Sequence[Mapping[str, Any]]:
        """No tools: actions are text."""
        return ()

    def parse(self, reply: Message, finish_reason: str | None = None) -> Reply:
        """Find the one action; none or several is a format error in the package's words."""
        found = [action.strip() for action in re.findall(self._action_regex, reply.content, re.DOTALL)]
        if len(found) == 1:
            return Reply(reply, (Action(found[0]),))
        known = {} if finish_reason is None else {"finish_reason": finish_reason}
        problem = f"Expected exactly 1 action, found {len(found)}."
        return Reply(reply, (), fill(self._prompts.format_error, error=problem, actions=found, **known))

    @property
    def _action_regex(self) -> str:
        return self._prompts.action_regex or text_action_regex(self._root)

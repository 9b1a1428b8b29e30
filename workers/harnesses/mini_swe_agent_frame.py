"""What both formats of mini-swe-agent share: the package's prompts, the filled opening, the frame around an output."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from workers.benchmarks.formats.common import FORMAT_LIST_ITEM, framed
from workers.harnesses.mini_swe_agent_package import PromptFile, checked_root, fill, prompt_file
from workers.history import Observation
from workers.interfaces import HarnessTemplate

NOT_EXECUTED = -1  # the return code the package shows where a command has none


def opening(prompts: PromptFile, statement: str, *, observation_role: str) -> HarnessTemplate:
    """System and task message of one task.

    `format_item` is item 1 under "For each response:", found before the statement is filled in, so that a statement
    cannot hold the first match; the second list ("Each response should include:") is left alone (methods 1A.4).
    """
    item = FORMAT_LIST_ITEM.search(prompts.instance)
    return HarnessTemplate(
        system=fill(prompts.system, task=statement),
        task=fill(prompts.instance, task=statement),
        format_item=item["item"] if item else None,
        observation_role=observation_role,
    )


def observation(
    prompts: PromptFile, *, output: str, returncode: int | None, tool_call_id: str | None, exception_info: str
) -> Observation:
    """One output as the package shows it (whole below 10,000 characters, else 5,000 at either end)."""
    code = NOT_EXECUTED if returncode is None else returncode
    fields = {"output": output, "returncode": code, "exception_info": exception_info}
    shown = framed(fill(prompts.observation, output=fields), tool_call_id=tool_call_id, num_output_chars=len(output))
    return replace(shown, returncode=code)


@dataclass(frozen=True)
class PackageHarness:
    """A harness whose templates come from the installed package; the fields are described in its two subclasses.

    Source: mini-swe-agent 2.4.6 (MIT).
    """

    config: str = ""
    package_version: str = "2.4.6"

    component: ClassVar[str]
    observation_role: ClassVar[str]

    def template(self, statement: str) -> HarnessTemplate:
        """Fill the package's templates with `statement`."""
        return opening(self._prompts, statement, observation_role=self.observation_role)

    def observation(
        self, output: str, returncode: int | None, tool_call_id: str | None, exception_info: str = ""
    ) -> Observation:
        """Frame one output as the package does; without a return code it shows -1.

        Args:
            exception_info: why the command did not end by itself (a timeout), shown above the output.
        """
        return observation(
            self._prompts,
            output=output,
            returncode=returncode,
            tool_call_id=tool_call_id,
            exception_info=exception_info,
        )

    @property
    def _root(self) -> Path:
        return checked_root(self.component, self.package_version)

    @property
    def _prompts(self) -> PromptFile:
        return prompt_file(self._root, self.config)

"""The two mini-swe-agent harnesses, against the installed package itself."""

from __future__ import annotations

import importlib
import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from serving.calls import Message, ToolCall
from tests.unit.workers.renderers.histories import run_through, text_of
from workers.harnesses.mini_swe_agent import MiniSweAgent
from workers.harnesses.mini_swe_agent_text import MiniSweAgentText
from workers.history import Action, Turn
from workers.renderers.refold import Refold
from workers.renderers.refold_signals import SOFT_REMINDER

ROOT = Path(__file__).resolve().parents[4]
if importlib.util.find_spec("minisweagent") is None:
    pytest.skip("mini-swe-agent is not installed (pip install 'convoy[mini-swe-agent]')", allow_module_level=True)

STATEMENT = "The parser fails on {{ braces }}.\n\nFor each response:\n\n1. Print it twice\n2. Log it\n"
ITEM = "1. Include a THOUGHT section explaining your reasoning and what you're trying to accomplish"
BOTH = [pytest.param(MiniSweAgent(), id="calls"), pytest.param(MiniSweAgentText(), id="text")]


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """The package, imported without its banner and with its folder elsewhere."""
    monkeypatch.setenv("MSWEA_SILENT_STARTUP", "1")
    monkeypatch.setenv("MSWEA_GLOBAL_CONFIG_DIR", str(tmp_path))

    def module(name: str) -> Any:
        return importlib.import_module(f"minisweagent.{name}")

    return module


def configuration(package: Any, name: str) -> dict[str, Any]:
    """A configuration file as the package reads it."""
    found: dict[str, Any] = package("config").get_config_from_spec(f"{name}.yaml")
    return found


def calls(*arguments: str, name: str = "bash", content: str = "") -> Message:
    """A reply with these tool calls."""
    made = tuple(ToolCall(f"call_{i}", name, text) for i, text in enumerate(arguments))
    return Message("assistant", content, reasoning="why", tool_calls=made)


@pytest.mark.parametrize("harness", BOTH)
def test_the_opening_is_what_the_package_s_own_agent_writes(harness: Any, package: Any) -> None:
    """System and task message equal those of mini-swe-agent's DefaultAgent, byte for byte."""
    agent_class, parts = package("agents.default").DefaultAgent, package("models.test_models")
    local = package("environments.local").LocalEnvironment
    model = parts.DeterministicModel(outputs=[{"role": "assistant", "content": "", "extra": {"actions": []}}])
    agent = agent_class(model, local(), step_limit=1, **_templates(configuration(package, harness.config)))
    agent.run(STATEMENT)
    template = harness.template(STATEMENT)
    assert [template.system, template.task] == [message["content"] for message in agent.messages[:2]]


def _templates(found: dict[str, Any]) -> dict[str, str]:
    return {key: found["agent"][key] for key in ("system_template", "instance_template")}


@pytest.mark.parametrize("harness", [*BOTH, pytest.param(MiniSweAgentText(config="swebench_xml"), id="xml")])
def test_refold_s_layer_has_its_places(harness: Any) -> None:
    """Item 1 of "For each response:" becomes the protocol, item 2 stays; the second list and the task's text too."""
    plain = harness.template(STATEMENT)
    layered = Refold(k=5).prompt_layer(plain)
    assert plain.format_item == ITEM
    assert layered.system.startswith(f"{plain.system}\n\nContext management: ")
    assert "`restore <step>`" in layered.system
    before, protocol_and_after = layered.task.split(
        "For each response:\n\n1. Begin every response with these two lines"
    )
    assert STATEMENT.strip() in before
    protocol, after = protocol_and_after.split("\n2. Provide ", 1)
    assert "Only the last 5 steps before this one can still be named" in protocol
    assert "restore 3-5" in protocol
    unlayered_before, unlayered_after = plain.task.split(f"{ITEM}\n2. Provide ", 1)
    assert before == unlayered_before.removesuffix("For each response:\n\n")
    assert after == unlayered_after
    assert "Each response should include:\n\n1. " in after


def test_outputs_are_labelled_and_misses_reminded_inside_their_messages() -> None:
    """Third place: `[step N]` and a newline before the frame. Fourth: the reminder behind it, after a miss."""
    shown = MiniSweAgent().observation("ok\n", 0, "call_0")
    reply = calls(json.dumps({"command": "ls"}))
    renderer = Refold()
    renderer.start(counter=None, budget_tokens=1, path="renderer")  # type: ignore[arg-type]
    _, prompts = run_through(
        renderer, [Turn(1, reply, (Action("ls", "call_0"),), (shown,), signals=renderer.read_reply(reply))]
    )
    labelled = "[step 0]\n<returncode>0</returncode>\n<output>\nok\n</output>"
    assert text_of(prompts[-1], 1) == f"{labelled}\n\n{SOFT_REMINDER}"
    assert prompts[-1].messages[-1].tool_call_id == "call_0"


@pytest.mark.parametrize("harness", BOTH)
@pytest.mark.parametrize("length", [0, 1, 9_999, 10_000, 30_000])
def test_an_output_is_framed_as_by_the_package(harness: Any, length: int, package: Any) -> None:
    """The shown text equals the package's own formatting, also of cut outputs and of a timeout."""
    model = configuration(package, harness.config)["model"]
    text = "".join(chr(97 + i % 26) for i in range(length))
    for information in ("", "timed out"):
        output = {"output": text, "returncode": 1, "exception_info": information}
        (expected,) = package("models.utils.actions_toolcall").format_toolcall_observation_messages(
            actions=[{"command": "x", "tool_call_id": "c"}],
            outputs=[output],
            observation_template=model["observation_template"],
        )
        shown = harness.observation(text, 1, "c", information)
        assert shown.shown == expected["content"]
        assert (shown.tool_call_id, shown.num_output_chars, shown.returncode) == ("c", length, 1)
        if length < 10_000:
            assert shown.body == text


def test_without_a_return_code_the_package_s_own_minus_one_is_shown() -> None:
    """mini-swe-agent has a number in every frame."""
    assert MiniSweAgent().observation("", None, None).shown.startswith("<returncode>-1</returncode>")


def test_several_calls_are_several_actions_in_order() -> None:
    """Each keeps its call id; the reply enters the history as it is, reasoning included."""
    reply = calls(json.dumps({"command": "ls"}), json.dumps({"command": "pwd\n"}))
    read = MiniSweAgent().parse(reply)
    assert read.actions == (Action("ls", "call_0"), Action("pwd\n", "call_1"))
    assert read.message is reply
    assert read.error is None


BROKEN = [
    pytest.param(calls(), id="none"),
    pytest.param(calls("{"), id="json"),
    pytest.param(calls('{"cmd": "ls"}'), id="argument"),
    pytest.param(calls("[]"), id="list"),
    pytest.param(calls('{"command": "ls"}', name="python"), id="tool"),
    pytest.param(calls('{"command": "ls"}', "{"), id="second"),
]


@pytest.mark.parametrize("reply", BROKEN)
@pytest.mark.parametrize("finish_reason", ["stop", "length"])
def test_broken_calls_are_told_in_the_package_s_words(reply: Message, finish_reason: str, package: Any) -> None:
    """The error text is the package's own; nothing is run and the reply enters the history without calls."""

    class Call:
        def __init__(self, call: ToolCall) -> None:
            self.id, self.function = call.id, self
            self.name, self.arguments = call.name, call.arguments

    template = configuration(package, "swebench")["model"]["format_error_template"]
    with pytest.raises(package("exceptions").FormatError) as caught:
        package("models.utils.actions_toolcall").parse_toolcall_actions(
            [Call(call) for call in reply.tool_calls],
            format_error_template=template,
            template_kwargs={"finish_reason": finish_reason},
        )
    read = MiniSweAgent().parse(reply, finish_reason)
    assert read.error == caught.value.messages[0]["content"]
    assert (read.actions, read.message.tool_calls) == ((), ())
    assert read.message.reasoning == "why"
    assert read.message.content or not reply.tool_calls


@pytest.mark.parametrize("config", ["swebench_backticks", "swebench_xml"])
@pytest.mark.parametrize("num_actions", [0, 1, 2])
def test_text_actions_are_found_as_by_the_package(config: str, num_actions: int, package: Any) -> None:
    """Exactly one action, else the package's error text."""
    model = configuration(package, config)["model"]
    fence = (
        "<mswea_bash_command>{}</mswea_bash_command>" if config.endswith("xml") else "```mswea_bash_command\n{}\n```"
    )
    text = "THOUGHT: look.\n" + "\n".join(fence.format(f"ls {i}") for i in range(num_actions))
    harness = MiniSweAgentText(config=config)
    read = harness.parse(Message("assistant", text))
    parse = package("models.utils.actions_text").parse_regex_actions
    regex = model.get("action_regex", r"```mswea_bash_command\s*\n(.*?)\n```")
    if num_actions == 1:
        assert [{"command": action.command} for action in read.actions] == parse(
            text, action_regex=regex, format_error_template=""
        )
        return
    with pytest.raises(package("exceptions").FormatError) as caught:
        parse(text, action_regex=regex, format_error_template=model["format_error_template"])
    assert read.error == caught.value.messages[0]["content"]
    assert read.actions == ()


def test_the_tool_definition_is_the_package_s(package: Any) -> None:
    """Read from the source, equal to what its model classes send; the text format has none."""
    assert list(MiniSweAgent().tools) == [package("models.utils.actions_toolcall").BASH_TOOL]
    assert MiniSweAgentText().tools == ()


def test_neither_the_package_nor_litellm_is_imported() -> None:
    """An agent worker with this harness stays small: litellm costs 5.4 s and 200 MB per process."""
    code = (
        "import sys, workers.agent_worker, workers.integrations.plain, workers.integrations.mini_swe_agent\n"
        "from workers.harnesses.mini_swe_agent import MiniSweAgent\n"
        "h = MiniSweAgent(); h.template('x'); h.observation('x', 0, None)\n"
        "print(*{name.split('.')[0] for name in sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert not {"litellm", "minisweagent", "datasets", "pydantic", "torch", "pyarrow"} & set(done.stdout.split())

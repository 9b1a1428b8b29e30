"""A model and an environment find each other: either order, many threads, partners that never came."""

from __future__ import annotations

import importlib
import importlib.util
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from workers.errors import ConfigurationError
from workers.integrations.mini_swe_agent import RenderedEnvironment, RenderedModel
from workers.integrations.mini_swe_agent_asking import AskedModel

if importlib.util.find_spec("minisweagent") is None:
    pytest.skip("mini-swe-agent is not installed (pip install 'convoy[mini-swe-agent]')", allow_module_level=True)


@pytest.fixture(autouse=True)
def _quiet_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No banner, and the package's folder elsewhere."""
    monkeypatch.setenv("MSWEA_SILENT_STARTUP", "1")
    monkeypatch.setenv("MSWEA_GLOBAL_CONFIG_DIR", str(tmp_path))
    importlib.import_module("minisweagent")


def model(commands: tuple[str, ...] = (), **settings: Any) -> RenderedModel:
    """A scripted text model, seen through refold."""
    outputs = [
        {"role": "assistant", "content": f"go {i}", "extra": {"actions": [{"command": command}], "cost": 0.0}}
        for i, command in enumerate(commands)
    ]
    return RenderedModel(
        **{"renderer": "refold", "inner_class": "deterministic", "outputs": outputs, "model_name": "m", **settings}
    )


def environment(**settings: Any) -> RenderedEnvironment:
    """The local shell."""
    return RenderedEnvironment(inner_class="local", **settings)


def run_agent(number: int, *, is_model_first: bool) -> list[str]:
    """An agent that shows its number, asks for that again and submits; the outputs it was shown."""
    commands = (f"echo number {number}", "restore 0", "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT")
    if is_model_first:
        made_model, made_environment = model(commands), environment()
    else:
        made_environment, made_model = environment(), model(commands)
    default = importlib.import_module("minisweagent.agents.default")
    agent = default.DefaultAgent(
        made_model, made_environment, system_template="s", instance_template="{{task}}", cost_limit=0
    )
    assert agent.run("Do it.")["exit_status"] == "Submitted"
    return [message["content"] for message in agent.messages if message.get("extra", {}).get("returncode") == 0]


@pytest.mark.parametrize("is_model_first", [True, False])
def test_both_orders_pair(is_model_first: bool) -> None:
    """`swebench` makes the model first, `swebench-single` the environment."""
    shown = "<returncode>0</returncode>\n<output>\nnumber 7\n</output>"
    assert run_agent(7, is_model_first=is_model_first) == [shown, shown]


def test_every_thread_has_its_own_pair() -> None:
    """Agents in parallel threads each restore their own output."""
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda n: run_agent(n, is_model_first=n % 2 == 0), range(16)))
    assert [f"number {n}\n" in shown[1] for n, shown in enumerate(results)] == [True] * 16


def test_a_model_whose_environment_failed_leaves_no_trace() -> None:
    """The next task's environment pairs with the next task's model."""
    first = model()
    with pytest.raises(ValueError, match="Unknown environment type"):
        RenderedEnvironment(inner_class="no_such_environment")
    second = model()
    environment()
    assert (first.is_paired, second.is_paired) == (False, True)


def test_missing_settings_are_one_line() -> None:
    """No renderer, an unknown one, a container without an image, a start command that is none."""
    with pytest.raises(ConfigurationError, match=r"add -c model\.renderer\.name=refold"):
        model(renderer=None)
    with pytest.raises(ConfigurationError, match="names: .*refold"):
        model(renderer={"name": "refolt"})
    container = RenderedEnvironment(inner_class="docker")
    with pytest.raises(ConfigurationError, match=r"run\.env_startup_command=convoy-instance \{\{instance_id\}\}"):
        container.execute({"command": "ls"})
    with pytest.raises(ConfigurationError, match="give `convoy-instance <instance id>"):
        container.execute({"command": "convoy-instance"})


def test_everything_else_is_the_wrapped_object_s() -> None:
    """Attributes that are not ours come from the wrapped model and environment."""
    made = model()
    assert made.config.model_name == "m"
    assert made.current_index == -1
    assert environment(timeout=3).config.timeout == 3
    with pytest.raises(AttributeError):
        _ = made.no_such_thing


def test_a_renderer_s_own_calls_go_to_a_text_model_and_are_counted() -> None:
    """compact asks `model.auxiliary` for its summary: the text is in the next prompt, its cost and purpose noted."""
    summary = "The goal is to count. Numbers so far: many."
    answer = {"role": "assistant", "content": summary, "extra": {"actions": [{"command": "x"}], "cost": 0.25}}
    made = model(
        tuple(f"seq {n} {n + 300}" for n in range(8)),
        renderer="compact",
        context_budget_tokens=3000,
        auxiliary={"model_class": "deterministic", "outputs": [answer] * 8},
    )
    environment()
    messages: list[dict[str, Any]] = [{"role": "system", "content": "s"}, {"role": "user", "content": "Count."}]
    sent: list[list[dict[str, Any]]] = []
    inner_query = made._inner.query
    made._inner.query = lambda given, **options: sent.append(given) or inner_query(given)
    notes = []
    for number in range(8):
        reply = made.query(messages)
        notes.append(reply["extra"])
        output = "".join(f"number {n} of many\n" for n in range(number, number + 120))
        messages += [reply, {"role": "user", "content": f"<returncode>0</returncode>\n<output>\n{output}</output>"}]
    asked = [note for note in notes if note["convoy"]["asked_calls"]]
    assert asked
    assert {call["purpose"] for note in asked for call in note["convoy"]["asked_calls"]} == {"summary"}
    assert all(note["cost"] == note["convoy"]["asked_cost"] >= 0.25 for note in asked)
    assert summary in "".join(message["content"] for message in sent[-1])


def test_a_text_model_s_complaint_is_a_renderer_s_answer() -> None:
    """Text models of the package report a reply without a command as a format error; its text is what was asked for."""
    errors = importlib.import_module("minisweagent.exceptions")
    kept = {"interrupt_type": "FormatError", "model_response": "a summary", "cost": 0.5}
    wanted = errors.FormatError({"role": "user", "content": "no action", "extra": kept})
    output = {"role": "assistant", "content": "", "extra": {"actions": [{"raise": wanted}]}}
    asked = AskedModel({"model_kwargs": {}}, {"model_class": "deterministic", "outputs": [output]})
    assert asked([{"role": "user", "content": "Summarize."}], 100) == "a summary"
    assert (asked.taken_cost(), asked.taken_cost()) == (0.5, 0.0)

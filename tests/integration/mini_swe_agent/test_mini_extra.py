"""The plug-in through the real `mini-extra swebench`: scripted model, local shell, no network."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

MINI_EXTRA = Path(sys.executable).parent / "mini-extra"
if importlib.util.find_spec("minisweagent") is None or not MINI_EXTRA.is_file():
    pytest.skip("mini-swe-agent is not installed (pip install 'convoy[mini-swe-agent]')", allow_module_level=True)

ROOT = Path(__file__).resolve().parents[3]
OURS = "workers.integrations.mini_swe_agent"
PARTS = "tests.integration.mini_swe_agent.scripted_parts"
SUBMIT = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT && echo the-patch"
MODEL = (f"model.model_class={OURS}.RenderedModel", f"model.inner_class={PARTS}.SpyModel")
ENVIRONMENT = (
    f"environment.environment_class={OURS}.RenderedEnvironment",
    f"environment.inner_class={PARTS}.SpyEnvironment",
)
PLAIN_ENVIRONMENT = (f"environment.environment_class={PARTS}.SpyEnvironment",)


class Outcome(NamedTuple):
    """What a run left behind."""

    code: int
    log: str
    prompts: list[list[dict[str, Any]]]
    commands: list[str]
    trajectory: dict[str, Any]
    predictions: dict[str, Any]


def call(number: int, *commands: str, text: str = "Thinking.") -> dict[str, Any]:
    """A reply with one tool call per command."""
    ids = [f"call_{number}_{position}" for position in range(len(commands))]
    return {
        "role": "assistant",
        "content": text,
        "tool_calls": [
            {"id": call_id, "type": "function", "function": {"name": "bash", "arguments": json.dumps({"command": c})}}
            for call_id, c in zip(ids, commands, strict=True)
        ],
        "extra": {
            "actions": [{"command": c, "tool_call_id": i} for c, i in zip(commands, ids, strict=True)],
            "cost": 0.0,
        },
    }


def lines(path: Path) -> list[Any]:
    """The documents of a JSONL file, none when it was not written."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []


def run(folder: Path, replies: list[dict[str, Any]], *settings: str) -> Outcome:
    """Run one instance; `settings` are `-c` values."""
    data, out, repo = folder / "data", folder / "out", folder / "repo"
    for made in (data, out, repo):
        made.mkdir()
    (repo / "numbers.txt").write_text("".join(f"line number {n} of the file\n" for n in range(40)))
    row = {"instance_id": "owner__project-1", "problem_statement": "Fix the numbers."}
    (data / "test.jsonl").write_text(json.dumps(row) + "\n")
    given = ["swebench.yaml", *MODEL, f"model.outputs={json.dumps(replies)}", f"environment.cwd={repo}", *settings]
    command = [str(MINI_EXTRA), "swebench", "--subset", str(data), "--split", "test", "-o", str(out), "-m", "scripted"]
    for setting in given:
        command += ["-c", setting]
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "SPY_FOLDER": str(folder),
        "HOME": str(folder),
        "HF_HOME": str(folder / "hf"),
        "HF_HUB_OFFLINE": "1",
        "MSWEA_SILENT_STARTUP": "1",
        "MSWEA_GLOBAL_CONFIG_DIR": str(folder / "mini"),
        "BASH_ENV": "",
        "COLUMNS": "400",
    }
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=240)
    trajectory = out / "owner__project-1" / "owner__project-1.traj.json"
    predictions = out / "preds.json"
    return Outcome(
        done.returncode,
        done.stdout + done.stderr,
        lines(folder / "prompts.jsonl"),
        lines(folder / "commands.jsonl"),
        json.loads(trajectory.read_text()) if trajectory.is_file() else {},
        json.loads(predictions.read_text()) if predictions.is_file() else {},
    )


def signalled(label: int, stale: str) -> str:
    """A reply's text with ReFold's two lines."""
    return f"PROGRESS: doing step {label}\nSTALE: {stale}\nNext."


def outputs_of(messages: list[dict[str, Any]]) -> dict[str, str]:
    """Tool call id -> content."""
    return {message["tool_call_id"]: message["content"] for message in messages if message["role"] == "tool"}


@pytest.fixture(scope="module")
def folded(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """Reads and steps named STALE, a step with two calls, a reply without a call, then `restore 3` and a submission."""
    replies = [
        call(0, "cat numbers.txt", text=signalled(0, "-")),
        call(1, "ls", "pwd", text=signalled(1, "0")),
        {"role": "error", "content": signalled(2, "1"), "extra": {}},
        call(3, "head -n 30 numbers.txt", text=signalled(3, "-")),
        call(4, "echo four", text=signalled(4, "3")),
        call(5, "echo five", text=signalled(5, "-")),
        call(6, "restore 3", "echo six", text=signalled(6, "-")),
        call(7, SUBMIT, text=signalled(7, "-")),
    ]
    return run(tmp_path_factory.mktemp("folded"), replies, "model.renderer.name=refold", *ENVIRONMENT)


def test_a_run_ends_as_without_the_plug_in(folded: Outcome) -> None:
    """Exit 0, the prediction is the submission, the trajectory is whole and says what it was seen through."""
    assert folded.code == 0, folded.log
    assert folded.predictions["owner__project-1"]["model_patch"] == "the-patch\n"
    info = folded.trajectory["info"]
    assert info["exit_status"] == "Submitted"
    assert info["config"]["model_type"] == f"{OURS}.RenderedModel"
    assert info["config"]["convoy"]["renderer"] == {"name": "refold"}
    assert info["config"]["convoy"]["wrapped_model_type"] == f"{PARTS}.SpyModel"
    contents = [message["content"] for message in folded.trajectory["messages"]]
    assert not any("[context-manager]" in content or "[step " in content for content in contents)


def test_restore_shows_the_first_shown_bytes_and_is_never_run(folded: Outcome) -> None:
    """`restore 3` gives back exactly what step 3 first showed; the shell saw every command but that one."""
    stored = outputs_of(folded.trajectory["messages"])
    assert stored["call_6_0"] == stored["call_3_0"]
    assert "line number 29 of the file" in stored["call_6_0"]
    shown = outputs_of(folded.prompts[7])
    assert shown["call_6_0"] == f"[step 6]\n{stored['call_3_0']}"
    assert folded.commands == [
        "cat numbers.txt", "ls", "pwd", "head -n 30 numbers.txt", "echo four", "echo five", "echo six", SUBMIT,
    ]  # fmt: skip


def test_the_model_sees_the_rendered_conversation(folded: Outcome) -> None:
    """The prompt layer is in the opening, outputs are labelled, and after six steps the named steps are folded."""
    first, last = folded.prompts[0], folded.prompts[6]
    assert "Context management:" in first[0]["content"]
    assert "PROGRESS: <one short line" in first[1]["content"]
    assert "Include a THOUGHT section" not in first[1]["content"]
    assert outputs_of(folded.prompts[1])["call_0_0"].startswith("[step 0]\n<returncode>0</returncode>\n<output>\n")
    text = "\n".join(message["content"] for message in last)
    assert "[context-manager] steps 0-1 folded" in text
    assert "call_0_0" not in json.dumps(last)
    assert "call_1_1" not in json.dumps(last)


def test_a_dropped_reply_stays_dropped_but_counts_as_a_step(folded: Outcome) -> None:
    """mini-swe-agent keeps only the error of an unreadable reply: so do we, as step 2, with the lines it began with."""
    prompt = folded.prompts[3]
    assert [message["role"] for message in prompt[-3:]] == ["tool", "tool", "user"]
    assert prompt[-1]["content"] == "[step 2]\nTool call error: no call."
    assert "FORMAT VIOLATION" not in json.dumps(folded.prompts)


def test_every_call_has_its_outputs_in_every_prompt(folded: Outcome) -> None:
    """Chat servers refuse a tool call without its output and an output without its call."""
    for prompt in folded.prompts:
        open_calls: list[str] = []
        for message in prompt:
            if message["role"] == "tool":
                open_calls.remove(message["tool_call_id"])
                continue
            assert not open_calls
            open_calls = [made["id"] for made in message.get("tool_calls") or ()]
        assert not open_calls


def test_the_trajectory_says_what_each_render_did(folded: Outcome) -> None:
    """Every reply's `extra.convoy` counts turns, folds and characters."""
    notes = [message["extra"]["convoy"] for message in folded.trajectory["messages"] if message["role"] == "assistant"]
    assert [note["num_turns"] for note in notes] == [0, 1, 3, 4, 5, 6, 7]
    assert [note["num_folded"] for note in notes] == [0, 0, 0, 0, 0, 2, 2]


def test_model_class_alone_is_refused_with_one_line(tmp_path: Path) -> None:
    """refold without our environment class: the agent makes no call, the message names the missing setting."""
    done = run(tmp_path, [call(0, "ls")], "model.renderer.name=refold", *PLAIN_ENVIRONMENT)
    message = f"add -c environment.environment_class={OURS}.RenderedEnvironment"
    assert done.prompts == []
    assert done.trajectory["info"]["exit_status"] == "ConfigurationError"
    assert done.trajectory["info"]["exception_str"].endswith(message)
    assert "\n" not in done.trajectory["info"]["exception_str"]


def test_model_class_alone_serves_a_renderer_without_restore(tmp_path: Path) -> None:
    """mask needs no environment class: old outputs are placeholders, the stored ones are whole."""
    replies = [call(0, "cat numbers.txt"), call(1, "echo one"), call(2, SUBMIT)]
    done = run(tmp_path, replies, "model.renderer.name=mask", "model.renderer.keep_recent=1", *PLAIN_ENVIRONMENT)
    assert done.code == 0, done.log
    shown = outputs_of(done.prompts[2])
    assert shown["call_0_0"].startswith("[old output omitted: 40 lines")
    assert "one" in shown["call_1_0"]
    assert "line number 39" in outputs_of(done.trajectory["messages"])["call_0_0"]


def test_environment_class_alone_is_refused(tmp_path: Path) -> None:
    """Then nothing would be rendered, which nobody means."""
    done = run(tmp_path, [call(0, "ls")], f"model.model_class={PARTS}.SpyModel", *ENVIRONMENT)
    assert done.prompts == []
    assert f"add model_class={OURS}.RenderedModel" in done.log


def test_a_container_is_opened_on_the_image_of_its_instance(tmp_path: Path) -> None:
    """mini-swe-agent gives the image to its own classes only; the startup command hands it to ours and is not run."""
    docker, log = tmp_path / "docker", tmp_path / "docker.log"
    docker.write_text(
        f'#!/bin/sh\necho "$@" >> {log}\n'
        'case "$1" in run) echo cafe;; exec) for last; do :; done; exec sh -c "$last";; esac\n'
    )
    docker.chmod(0o755)
    done = run(
        tmp_path,
        [call(0, SUBMIT)],
        "model.renderer.name=refold",
        ENVIRONMENT[0],
        f"environment.executable={docker}",
        "run.env_startup_command=convoy-instance {{instance_id}}",
    )
    assert done.code == 0, done.log
    assert done.predictions["owner__project-1"]["model_patch"] == "the-patch\n"
    started, executed, *_ = log.read_text().splitlines()
    assert started.startswith("run -d")
    assert "docker.io/swebench/sweb.eval.x86_64.owner_1776_project-1:latest" in started
    assert executed.endswith(SUBMIT)

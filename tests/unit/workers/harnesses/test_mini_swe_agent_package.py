"""Reading a package's prompt files, on a small stand-in package; the real one is in test_mini_swe_agent."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from workers.errors import ConfigurationError
from workers.harnesses import mini_swe_agent_package as reader
from workers.harnesses.mini_swe_agent import MiniSweAgent
from workers.harnesses.mini_swe_agent_text import MiniSweAgentText

YAML = """
agent:
  system_template: sys
  instance_template: |
    {{task}}

    For each response:

    1. Think
    2. Act
model:
  observation_template: "{{output.output}}"
  format_error_template: "{{error}} {{unheard_of}}"
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A `minisweagent` of version 9.9 first on the path; importing it fails."""
    root = tmp_path / "minisweagent"
    (root / "config" / "benchmarks").mkdir(parents=True)
    (root / "models" / "utils").mkdir(parents=True)
    (root / "__init__.py").write_text("raise AssertionError('imported')")
    (root / "config" / "benchmarks" / "swebench.yaml").write_text(YAML)
    (root / "config" / "benchmarks" / "other.yaml").write_text("agent: {}\nmodel: {}")
    (root / "models" / "utils" / "actions_toolcall.py").write_text("BASH_TOOL = {'type': 'function'}")
    (root / "models" / "litellm_textbased_model.py").write_text("class C:\n    action_regex: str = r'<(.*?)>'\n")
    info = tmp_path / "mini_swe_agent-9.9.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mini-swe-agent\nVersion: 9.9\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in [name for name in sys.modules if name.split(".")[0] == "minisweagent"]:
        monkeypatch.delitem(sys.modules, name)
    _forget()
    yield root
    _forget()


def _forget() -> None:
    importlib.invalidate_caches()
    for cached in (reader.checked_root, reader.prompt_file, reader.literal):
        cached.cache_clear()


def test_templates_and_constants_are_read_without_importing(package: Path) -> None:
    """Item 1 of the list is the format item; the tool and the expression come from the source text."""
    harness = MiniSweAgent(package_version="9.9")
    assert reader.prompt_file(package, "swebench").system == "sys"
    assert harness.tools == ({"type": "function"},)
    assert reader.text_action_regex(package) == "<(.*?)>"


def test_filling_is_strict(package: Path) -> None:
    """A template that needs what we do not have is one line that names it."""
    pytest.importorskip("jinja2", reason="jinja2 comes with mini-swe-agent")
    harness = MiniSweAgent(package_version="9.9")
    template = harness.template("Do {{it}}.")
    assert template.task == "Do {{it}}.\n\nFor each response:\n\n1. Think\n2. Act"
    assert template.format_item == "1. Think"
    with pytest.raises(ConfigurationError, match="unheard_of"):
        reader.fill("{{error}} {{unheard_of}}", error="x")


def test_another_version_is_another_experiment(package: Path) -> None:
    """The version is identity, so what is installed must be what the cell says."""
    with pytest.raises(ConfigurationError, match=r"package_version=2\.4\.6, but mini-swe-agent 9\.9 is installed"):
        MiniSweAgent()


def test_an_unknown_file_is_one_line_with_those_that_exist(package: Path) -> None:
    """Also a file that is no agent's configuration."""
    with pytest.raises(ConfigurationError, match=r"harness\.config=swebech: mini-swe-agent has other, swebench"):
        MiniSweAgent(config="swebech", package_version="9.9")
    with pytest.raises(ConfigurationError, match=r"other\.yaml of mini-swe-agent has no 'system_template'"):
        MiniSweAgentText(config="other", package_version="9.9")


def test_a_package_without_the_constant_is_one_line(package: Path) -> None:
    """Read as literals, the constants may be gone in another version."""
    (package / "models" / "utils" / "actions_toolcall.py").write_text("x = 1")
    with pytest.raises(ConfigurationError, match="BASH_TOOL"):
        MiniSweAgent(package_version="9.9")


def test_a_missing_package_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It names the extra to install."""
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    _forget()
    with pytest.raises(ConfigurationError, match=r"pip install 'convoy\[mini-swe-agent\]'"):
        MiniSweAgent()
    with pytest.raises(ConfigurationError, match=r"pip install 'convoy\[mini-swe-agent\]'"):
        MiniSweAgentText()
    _forget()

"""mini-swe-agent's prompt files, read from the installed package without importing it.

For the two mini-swe-agent harnesses. Nothing of the package is copied into this project and none of its code runs:
importing it prints a banner, makes a folder in the user's configuration and loads a .env file, and its model classes
load litellm (5.4 s and 200 MB per process). Templates are YAML, constants are read out of the source as literals.
"""

from __future__ import annotations

import ast
import importlib
import importlib.metadata
import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from workers.errors import ConfigurationError

DISTRIBUTION = "mini-swe-agent"
PACKAGE = "minisweagent"
INSTALL = "pip install 'convoy[mini-swe-agent]'"


@dataclass(frozen=True, slots=True)
class PromptFile:
    """The templates of one configuration file, as written there (jinja).

    Attributes:
        system, instance: the opening; `instance` has the variable `task`.
        observation: an output, with the variable `output` (output, returncode, exception_info).
        format_error: told to the agent when a reply has no valid action, with `error` and `actions`.
        action_regex: finds the action in a text reply; None when the file leaves it to the package.
    """

    system: str
    instance: str
    observation: str
    format_error: str
    action_regex: str | None


@lru_cache(maxsize=8)
def checked_root(harness: str, package_version: str) -> Path:
    """The folder of the installed package, when it is there in the wanted version.

    Raises:
        ConfigurationError: not installed, or another version.
    """
    spec = importlib.util.find_spec(PACKAGE)
    folders = list(spec.submodule_search_locations or ()) if spec else []
    try:
        installed = importlib.metadata.version(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        folders = []
    if not folders:
        raise ConfigurationError(
            f"harness {harness} reads its templates from {DISTRIBUTION}, which is absent: {INSTALL}"
        )
    if installed != package_version:
        raise ConfigurationError(
            f"harness {harness}: package_version={package_version}, but {DISTRIBUTION} {installed} is installed; set "
            f"harness.package_version={installed} (another experiment) or pip install {DISTRIBUTION}=={package_version}"
        )
    return Path(folders[0])


@lru_cache(maxsize=8)
def prompt_file(root: Path, config: str) -> PromptFile:
    """The templates of `config/benchmarks/<config>.yaml`.

    Raises:
        ConfigurationError: no such file, or one without the templates of an agent and a model.
    """
    folder = root / "config" / "benchmarks"
    path = folder / f"{config}.yaml"
    if not path.is_file():
        names = ", ".join(sorted(found.stem for found in folder.glob("*.yaml")))
        raise ConfigurationError(f"harness.config={config}: {DISTRIBUTION} has {names}")
    document = yaml.safe_load(path.read_text(encoding="utf-8"))
    try:
        agent, model = document["agent"], document["model"]
        return PromptFile(
            system=agent["system_template"],
            instance=agent["instance_template"],
            observation=model["observation_template"],
            format_error=model["format_error_template"],
            action_regex=model.get("action_regex"),
        )
    except (KeyError, TypeError) as exc:
        raise ConfigurationError(f"harness.config={config}: {path.name} of {DISTRIBUTION} has no {exc}") from exc


@lru_cache(maxsize=8)
def literal(root: Path, module: str, name: str) -> Any:
    """The value of the constant or field default `name` in a source file of the package.

    Raises:
        ConfigurationError: this version does not have it as a literal.
    """
    try:
        tree = ast.parse((root / module).read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
            if value is not None and any(isinstance(target, ast.Name) and target.id == name for target in targets):
                return ast.literal_eval(value)
    except (OSError, SyntaxError, ValueError) as exc:
        raise ConfigurationError(f"{DISTRIBUTION}: {name} cannot be read from {module} ({exc})") from exc
    raise ConfigurationError(f"{DISTRIBUTION}: {module} has no {name}; this version is not supported")


def bash_tool(root: Path) -> Mapping[str, Any]:
    """The definition of the `bash` tool as it is sent to the model."""
    tool = literal(root, "models/utils/actions_toolcall.py", "BASH_TOOL")
    assert isinstance(tool, dict)
    return tool


def text_action_regex(root: Path) -> str:
    """The expression that finds the action of a text reply where the configuration file gives none."""
    return str(literal(root, "models/litellm_textbased_model.py", "action_regex"))


def fill(template: str, **variables: object) -> str:
    """Render a template as the package does, strictly.

    Raises:
        ConfigurationError: the template needs a variable we do not have.
    """
    jinja2 = importlib.import_module("jinja2")
    try:
        return str(_compiled(template).render(**variables))
    except jinja2.UndefinedError as exc:
        raise ConfigurationError(f"a template of {DISTRIBUTION} needs more than {', '.join(variables)}: {exc}") from exc


@lru_cache(maxsize=32)
def _compiled(template: str) -> Any:
    jinja2 = importlib.import_module("jinja2")
    return jinja2.Template(template, undefined=jinja2.StrictUndefined)

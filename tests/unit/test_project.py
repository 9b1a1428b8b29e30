"""The project's own rules: conf and code agree, imports stay lazy, nothing foreign is tracked."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("orchestrator", "workers", "serving", "db")
MAX_FILE_BYTES = 400_000
# Components of these groups decide results, so their class or module carries an integer REVISION (it enters cell_key).
GROUPS_WITH_REVISION = frozenset(
    {"benchmark", "engine", "environment", "harness", "policy", "renderer", "router", "step_time", "tokens"}
)
# Data sheets: every entry gives its own values for the fields of one class, so only the keys must agree.
CATALOGUES = frozenset({"hardware", "model"})


def conf_entries() -> list[Any]:
    """Every conf/<group>/<name>.yaml with a `_target_`."""
    found = []
    for path in sorted((ROOT / "conf").glob("*/*.yaml")):
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
        if isinstance(values, dict) and "_target_" in values:
            found.append(pytest.param(path, values, id=f"{path.parent.name}/{path.stem}"))
    return found


def target_class(values: Mapping[str, Any]) -> type:
    """The class that a conf entry names."""
    module, _, name = values["_target_"].rpartition(".")
    found = getattr(importlib.import_module(module), name)
    assert isinstance(found, type)
    return found


def plain(value: Any) -> Any:
    """A default as YAML would hold it."""
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    return getattr(value, "value", value)


def nested(values: Any) -> Any:
    """A YAML value without the `_target_` of nested nodes."""
    if isinstance(values, dict):
        return {key: nested(value) for key, value in values.items() if key != "_target_"}
    return [nested(item) for item in values] if isinstance(values, list) else values


@pytest.mark.parametrize(("path", "values"), conf_entries())
def test_yaml_and_class_agree(path: Path, values: dict[str, Any]) -> None:
    """A conf entry's class is a dataclass of ours whose fields and defaults are exactly the YAML's keys and values."""
    assert values["_target_"].split(".")[0] in PACKAGES
    found = target_class(values)
    assert dataclasses.is_dataclass(found)
    fields = {field.name: field for field in dataclasses.fields(found) if field.init}
    composed = set(inspect.signature(found).parameters) - set(fields)  # InitVars: built components, not plain data
    keys = {key for key in values if key not in {"_target_", "defaults", *composed}}
    assert keys == set(fields), f"{path.relative_to(ROOT)} and {found.__qualname__} have different settings"
    for name, field in fields.items():
        if path.parent.name in CATALOGUES or str(values[name]).startswith("${"):
            continue
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            continue  # a setting that must be given: the YAML holds `???` or an example
        default = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
        assert nested(values[name]) == plain(default), f"{path.relative_to(ROOT)}: {name}"


@pytest.mark.parametrize(("path", "values"), conf_entries())
def test_a_component_says_where_it_comes_from(path: Path, values: dict[str, Any]) -> None:
    """The class's docstring, or its module's, has a `Source:` line."""
    found = target_class(values)
    documents = f"{found.__doc__ or ''}\n{sys.modules[found.__module__].__doc__ or ''}"
    assert re.search(r"Source:\s*\S", documents), f"{values['_target_']} has no `Source:` line"


@pytest.mark.parametrize(
    ("path", "values"), [entry for entry in conf_entries() if entry.values[0].parent.name in GROUPS_WITH_REVISION]
)
def test_a_component_that_decides_results_has_a_revision(path: Path, values: dict[str, Any]) -> None:
    """An integer REVISION of at least 1 on the class or in its module."""
    found = target_class(values)
    revision = getattr(found, "REVISION", getattr(sys.modules[found.__module__], "REVISION", None))
    assert isinstance(revision, int), f"{path.relative_to(ROOT)}: {found.__qualname__} has no REVISION"
    assert revision >= 1


@pytest.mark.parametrize(("path", "values"), conf_entries())
def test_every_setting_is_explained(path: Path, values: dict[str, Any]) -> None:
    """Every top-level setting has a comment on its line or the line above; a data sheet says what it is on top."""
    if path.parent.name in CATALOGUES:
        assert path.read_text(encoding="utf-8").startswith("# ")
        return
    lines = path.read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines):
        key = re.match(r"([a-z_][a-z0-9_]*):", line)
        if key and key[1] not in ("_target_", "defaults"):
            above = lines[number - 1].lstrip() if number else ""
            assert "#" in line or above.startswith("#"), f"{path.relative_to(ROOT)}: {key[1]} has no comment"


def tracked_files() -> list[Path]:
    """The files git would commit; all files but the ignored when this is no checkout."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True
    )
    if listed.returncode:
        pytest.skip("not a git checkout")
    return [path for name in listed.stdout.splitlines() if (path := ROOT / name).is_file()]


def test_no_package_index_host_is_named() -> None:
    """No tracked file names the host of a package index or a folder of the machine it was written on."""
    hosts = [
        "py" + "pi.org",
        "pytho" + "nhosted",
        "registry.np" + "mjs",
        "deb.deb" + "ian.org",
        "download.pyt" + "orch",
    ]
    folders = ["/wo" + "rk/", "/op" + "t/w"]
    for path in tracked_files():
        text = path.read_bytes().decode("utf-8", "replace")
        found = [word for word in (*hosts, *folders) if word in text]
        assert not found, f"{path.relative_to(ROOT)} names {found}"


def test_files_are_small_and_no_lock_file_is_tracked() -> None:
    """No tracked file is larger than 400 kB; there is no uv.lock (it holds download addresses)."""
    for path in tracked_files():
        assert path.stat().st_size <= MAX_FILE_BYTES, f"{path.relative_to(ROOT)}: {path.stat().st_size} bytes"
        assert path.name != "uv.lock"


def test_constraints_pin_every_requirement_by_name_and_version() -> None:
    """requirements/constraints.txt has `name==version` lines only, and one for every dependency CI installs."""
    lines = (ROOT / "requirements" / "constraints.txt").read_text().split("\n")
    pins = {line.split("==")[0] for line in lines if line}
    assert all(re.fullmatch(r"[a-z0-9][a-z0-9.-]*==[0-9][\w.+!]*", line) for line in lines if line)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *extras["test"], *extras["postgres"], *extras["plots"]]
    names = {re.match(r"[A-Za-z0-9._-]+", item)[0].lower().replace("_", "-") for item in wanted}  # type: ignore[index]
    assert names <= pins


def top_level_imports(path: Path) -> Iterator[str]:
    """The first names of the modules that a file imports when it is imported itself."""
    pending: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.split(".")[0]
        is_type_checking = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) and not is_type_checking:
            pending.extend(ast.iter_child_nodes(node))


def test_vllm_is_imported_at_the_top_by_vllm_s_own_plugins_only() -> None:
    """Only serving/vllm_stats and serving/vllm_modelled, which vLLM itself imports, need it at import time."""
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            if path.relative_to(ROOT).parts[1] not in ("vllm_stats", "vllm_modelled"):
                assert "vllm" not in top_level_imports(path), f"{path.relative_to(ROOT)} imports vllm at the top"


def test_an_agent_worker_imports_nothing_heavy() -> None:
    """Importing the agent worker loads no litellm, swebench, pyarrow, vllm, torch or ray."""
    if not (ROOT / "workers" / "agent_worker.py").is_file():
        pytest.skip("workers/agent_worker.py is not there")
    code = "import sys, workers.agent_worker; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    heavy = {"litellm", "swebench", "pyarrow", "vllm", "torch", "ray", "docker", "matplotlib", "pandas"}
    assert not heavy & set(loaded.stdout.split())


def test_no_module_is_named_after_a_library_it_imports() -> None:
    """No file of ours is called ray.py, docker.py, queue.py, types.py, ... (style, "Shape")."""
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            assert path.stem not in set(top_level_imports(path)) - {package}, str(path.relative_to(ROOT))
            assert path.stem not in {"queue", "types", "ray", "docker"}, str(path.relative_to(ROOT))


def test_conf_is_data_beside_the_packages() -> None:
    """conf/ sits next to orchestrator/ and holds no Python."""
    orchestrator = importlib.import_module("orchestrator")
    conf = Path(inspect.getfile(orchestrator)).parent.parent / "conf"
    assert conf.is_dir()
    assert not list(conf.rglob("*.py"))

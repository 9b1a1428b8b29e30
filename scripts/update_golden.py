"""Write the golden files that describe identity: `python -m scripts.update_golden`. Review the diff.

- tests/golden/field_classes.json: every setting of every component in conf/ and of the root, and its class.
- tests/golden/cells_v1.json: specifications of planned cells with their keys, as a database of this version holds them.
  Old entries are kept: their keys must stay recomputable for ever.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from orchestrator.build import component_class
from orchestrator.cells import classify, classify_root
from orchestrator.compose import Composer
from orchestrator.home import CONF
from orchestrator.plan import make_plan

GOLDEN = CONF.parent / "tests" / "golden"
# Command lines whose cells stand in cells_v1.json; few tasks, because every digest is written out.
COMMANDS = (
    ("+sweep=smoke",),
    ("renderer=mask", "num_workers=2", "benchmark.num_tasks=2", "context_budget_tokens=16384"),
    ("router=round_robin", "replicas_per_model=2", "num_workers=2", "benchmark.num_tasks=2", "policy.coverage=0.50"),
)


def field_classes(conf: Path = CONF) -> list[list[str]]:
    """[component, field, class] of the root and of every component in a conf folder."""
    return [list(row) for row in (*classify_root(), *_component_rows(conf))]


def _component_rows(conf: Path) -> Iterator[tuple[str, str, str]]:
    for path in sorted(conf.glob("*/*.yaml")):
        node = yaml.safe_load(path.read_text(encoding="utf-8"))
        if isinstance(node, dict) and "_target_" in node:
            yield from classify(component_class(node["_target_"], path.stem), path.parent.name, path.stem)


def planned_specs() -> list[dict[str, Any]]:
    """Key and specification of the cells of `COMMANDS`."""
    composer = Composer()
    cells = [cell for command in COMMANDS for cell in make_plan(composer, command).cells]
    return [{"key": cell.key, "title": cell.title, "spec": cell.spec} for cell in cells]


def main() -> None:
    """Write both files."""
    rows = ",\n".join(json.dumps(row) for row in field_classes())
    (GOLDEN / "field_classes.json").write_text(f"[\n{rows}\n]\n", encoding="utf-8")
    path = GOLDEN / "cells_v1.json"
    known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    keys = {entry["key"] for entry in known}
    known += [entry for entry in planned_specs() if entry["key"] not in keys]
    lines = ",\n".join(json.dumps(entry, sort_keys=True) for entry in known)
    path.write_text(f"[\n{lines}\n]\n", encoding="utf-8")
    print(f"wrote {path.parent / 'field_classes.json'} and {path}: {len(known)} cells")


if __name__ == "__main__":
    main()

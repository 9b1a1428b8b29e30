"""A cell's identity: what is in the key, what is not, and that a stored key can be computed again."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from db.gate import to_json
from orchestrator.build import class_parts
from orchestrator.cells import (
    canonical_json,
    classify_root,
    key_of_spec,
    provenance_of,
    revision_of,
    revisions_of,
    spec_of,
    typed_config,
    without_revisions,
)
from orchestrator.compose import Composer
from orchestrator.errors import ComponentBug
from scripts.update_golden import field_classes

GOLDEN = Path(__file__).parents[2] / "golden"


@pytest.fixture(scope="module")
def composer() -> Composer:
    """The project's own conf/."""
    return Composer()


def key(composer: Composer, *texts: str, digests: tuple[str, ...] = ("d1", "d2"), budget_tokens: int = 245_760) -> str:
    """The key of the cell these overrides give, over two tasks."""
    config = composer.compose([composer.vocabulary.parse(text) for text in texts])
    return key_of_spec(spec_of(typed_config(config), task_digests=digests, budget_tokens=budget_tokens))


@pytest.mark.parametrize(
    "text",
    [
        "num_workers=16",
        "router=round_robin",
        "renderer=mask",
        "replicas_per_model=2",
        "seed=1",
        "replicate=2",
        "temperature=0.5",
        "limits.max_steps=10",
        "engine.max_num_seqs=64",
        "engine.enable_prefix_caching=false",
        "hardware=h200",
        "model=qwen3_8b",
        "policy.coverage=0.2",
        "executor=ray_actors",
        "model@second_model=qwen3_6_35b_a3b",
    ],
)
def test_the_treatment_changes_the_key(composer: Composer, text: str) -> None:
    """Whatever can change a result is identity; w above all (others return the w = 1 result for w = 32)."""
    assert key(composer, text) != key(composer)


@pytest.mark.parametrize(
    "text",
    [
        "db.url=elsewhere.db",
        "cluster=auto",
        "executor.parallel=3",
        "deadline_s=5",
        "lease_s=5",
        "trust.min_concurrency_share=0.5",
        "rerun=failed",
        "dry_run=true",
        "model.usd_per_mtok_cached=9",
        "benchmark=recorded benchmark.path=/a",
    ],
)
def test_where_and_how_it_is_run_does_not(composer: Composer, text: str) -> None:
    """Database, cluster, prices, deadlines, thresholds and paths are provenance: moving a study must not repeat it."""
    texts = text.split()
    assert key(composer, *texts) == key(composer, *(["benchmark=recorded"] if "benchmark" in text else []))


def test_spelling_does_not_change_the_key(composer: Composer) -> None:
    """0.50 is 0.5, a default that is written out is the default, 1 for a float is 1.0."""
    assert key(composer, "policy.coverage=0.50") == key(composer, "policy.coverage=0.5")
    assert key(composer, "num_workers=8") == key(composer)
    assert key(composer, "policy.coverage=1") == key(composer, "policy.coverage=1.0")
    assert key(composer, "context_budget_tokens=245760") == key(composer)


def test_tasks_and_budget_are_identity(composer: Composer) -> None:
    """Another task content, another order, or another usable context is another experiment."""
    assert key(composer, digests=("d1", "d3")) != key(composer)
    assert key(composer, digests=("d2", "d1")) != key(composer)
    assert key(composer, budget_tokens=16_384) != key(composer)


def test_key_is_the_same_in_another_process(composer: Composer) -> None:
    """No id, hash seed or time leaks into the key."""
    script = (
        "from orchestrator.compose import Composer; from orchestrator.cells import *;"
        "c = Composer(); t = typed_config(c.compose([]));"
        "print(key_of_spec(spec_of(t, task_digests=('d1', 'd2'), budget_tokens=245_760)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=GOLDEN.parents[1],
        env={"PYTHONHASHSEED": "7", "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    assert done.stdout.strip() == key(composer)


def test_stored_keys_are_recomputed() -> None:
    """The specification of every committed cell still has its key, also through its JSON text in a database."""
    entries = json.loads((GOLDEN / "cells_v1.json").read_text(encoding="utf-8"))
    assert entries
    for entry in entries:
        assert key_of_spec(entry["spec"]) == entry["key"]
        assert key_of_spec(json.loads(to_json(entry["spec"]))) == entry["key"]


def test_every_field_is_classified() -> None:
    """A new field of a component or of the root is classified on purpose: run scripts.update_golden and review."""
    golden = json.loads((GOLDEN / "field_classes.json").read_text(encoding="utf-8"))
    assert [tuple(row) for row in field_classes()] == [tuple(row) for row in golden]
    assert {kind for _, _, kind in classify_root()} == {"component", "identity", "provenance"}


@dataclass(frozen=True)
class _Located:
    """A component with settings that are not identity."""

    path: str = ""
    url: str = ""
    timeout_s: float = 1.0
    k: int = 1

    PROVENANCE: ClassVar[frozenset[str]] = frozenset({"timeout_s"})


@dataclass(frozen=True)
class _Wrong:
    """Names a setting it does not have."""

    PROVENANCE: ClassVar[frozenset[str]] = frozenset({"timeout"})


def test_provenance_of_a_class() -> None:
    """A class lists its own; places are never identity; a name that is no setting is our bug."""
    assert class_parts(_Located).settings == ("path", "url", "timeout_s", "k")
    assert provenance_of(_Located, "benchmark") == {"path", "url", "timeout_s"}
    with pytest.raises(ComponentBug, match=r"_Wrong\.PROVENANCE names \['timeout'\]"):
        provenance_of(_Wrong, "benchmark")


def test_revisions(composer: Composer) -> None:
    """A class's own REVISION or its module's; a cell and its outdated version differ in nothing else."""
    spec = spec_of(typed_config(composer.compose([])), task_digests=(), budget_tokens=1)
    assert revisions_of(spec)["renderer"] == 1
    older = json.loads(to_json(spec))
    older["components"]["renderer"]["revision"] = 0
    assert key_of_spec(older) != key_of_spec(spec)
    assert without_revisions(older) == without_revisions(spec)
    assert revision_of(_Located) is None


@pytest.mark.parametrize("value", [float("nan"), float("inf"), object(), {1}])
def test_no_form_no_key(value: Any) -> None:
    """NaN, infinities and objects have no canonical form."""
    with pytest.raises(ComponentBug):
        canonical_json({"x": value})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda children: st.lists(children) | st.dictionaries(st.text(), children),
    max_leaves=20,
)


@given(JSON)
def test_canonical_json_survives_a_round_trip(value: Any) -> None:
    """What is read back from a database has the text, and so the key, of what was written."""
    assert canonical_json(json.loads(canonical_json(value))) == canonical_json(value)


def test_minus_zero_is_zero() -> None:
    """-0.0 and 0.0 are one setting."""
    assert canonical_json(-0.0) == canonical_json(0.0) == "0.0"

"""Clusters that are not ours, or not usable: joining one, losing a node of it, and every mistake in one line."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ray._common.usage.usage_constants import CLUSTER_METADATA_KEY
from ray._private import ray_constants
from ray._raylet import GcsClient
from ray.cluster_utils import Cluster

from db.records import Attempt
from db.store import Store
from serving.clock import stopwatch_s
from tests.integration.ray import commands

pytestmark = [pytest.mark.ray, pytest.mark.timeout(280)]

_NODE = {"num_cpus": 1, "object_store_memory": 80 * 2**20}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Three nodes on this machine; the test process itself does not join."""
    made = Cluster(initialize_head=True, head_node_args={**_NODE, "include_dashboard": False})
    for _ in range(2):
        made.add_node(**_NODE)
    yield made
    made.shutdown()


def raylet_pid(node: Any) -> int:
    """The process id of a node's raylet, the parent of its workers."""
    pid: int = node.all_processes[ray_constants.PROCESS_TYPE_RAYLET][0].process.pid
    return pid


def children(parent: int, title: str) -> list[int]:
    """Child processes whose title begins so."""
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            name = (folder / "cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue
        if int(fields[1]) == parent and name.startswith(title):
            found.append(int(folder.name))
    return found


def one_line(text: str) -> str:
    """The only line of stderr."""
    lines = text.strip().splitlines()
    assert len(lines) == 1, text
    return lines[0]


def test_another_version_is_one_line(tmp_path: Path, cluster: Cluster) -> None:
    """A cluster of another Ray version is refused with both versions named; exit code 2."""
    gcs = GcsClient(address=cluster.address)
    key, space = CLUSTER_METADATA_KEY, ray_constants.KV_NAMESPACE_CLUSTER
    before = gcs.internal_kv_get(key, namespace=space)
    metadata = {**json.loads(before), "ray_version": "2.1.0"}
    gcs.internal_kv_put(key, json.dumps(metadata).encode(), overwrite=True, namespace=space)
    try:
        done = commands.run(tmp_path / "r.db", "cluster=auto", f"cluster.address={cluster.address}", timeout_s=60)
    finally:
        gcs.internal_kv_put(key, before, overwrite=True, namespace=space)
    assert done.returncode == 2, done.stderr
    line = one_line(done.stderr)
    assert "another version" in line
    assert "2.1.0" in line


def test_local_ignores_a_running_cluster(tmp_path: Path, cluster: Cluster) -> None:
    """`cluster=local` starts its own Ray although RAY_ADDRESS names one that runs; stdout holds only our lines."""
    jobs = len(GcsClient(address=cluster.address).get_all_job_info())
    done = commands.run(
        tmp_path / "r.db", "limits.max_steps=3", "benchmark.num_tasks=2", env={"RAY_ADDRESS": cluster.address}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "raylet" not in done.stdout
    assert len(GcsClient(address=cluster.address).get_all_job_info()) == jobs


def test_a_killed_node_fails_the_cell_and_rerun_completes_it(tmp_path: Path, cluster: Cluster) -> None:
    """With two replicas on three nodes, a node killed under a replica fails the cell; `rerun=failed` completes it.

    The first command ends by itself with exit code 1; Ray restarts nothing.
    """
    db = tmp_path / "r.db"
    joined = ("cluster=auto", f"cluster.address={cluster.address}", "replicas_per_model=2", "limits.max_steps=40")
    driver = commands.start(db, *joined)
    try:
        _wait_for_calls(db, 10)
        spare = [node for node in cluster.worker_nodes if children(raylet_pid(node), "ray::ReplicaActor")]
        assert spare, "both replicas are on the head node"
        cluster.remove_node(spare[0], allow_graceful=False)
        out, err = driver.communicate(timeout=150)
    finally:
        commands.stop(driver)
    assert driver.returncode == 1, out + err
    store = Store.open(str(db))
    (first,) = store.rows(Attempt)
    assert first.state == "failed"
    assert first.exit_class in ("ReplicaLost", "WorkerLost")
    again = commands.run(db, *joined, "rerun=failed")
    assert again.returncode == 0, again.stdout + again.stderr
    states = [(attempt.number, attempt.state) for attempt in store.attempts()]
    assert states == [(1, "failed"), (2, "complete")]


@pytest.mark.parametrize(
    ("override", "fragments"),
    [
        ("cluster.address=127.0.0.1:9", ("nothing answers at 127.0.0.1:9", "ray start --head")),
        ("cluster.address=ray://host:10001", ("ray://host:10001", "host:port")),
        ("cluster.address=somewhere", ("somewhere", "host:port")),
    ],
)
def test_an_address_where_nothing_is_is_one_line(tmp_path: Path, override: str, fragments: tuple[str, ...]) -> None:
    """An address without a cluster, and what is no address, are named with the remedy; exit code 2."""
    done = commands.run(tmp_path / "r.db", "cluster=auto", override, timeout_s=60)
    assert done.returncode == 2, done.stderr
    line = one_line(done.stderr)
    for fragment in fragments:
        assert fragment in line


def test_a_home_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    """Ray keeps a token under HOME; where that fails, the line names HOME and what to do; exit code 2."""
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    done = commands.run(tmp_path / "r.db", env={"HOME": str(blocked / "home")}, timeout_s=60)
    assert done.returncode == 2, done.stderr
    line = one_line(done.stderr)
    assert "HOME" in line
    assert str(blocked) in line


def _wait_for_calls(db: Path, count: int) -> None:
    limit_s = stopwatch_s() + 90
    while stopwatch_s() < limit_s:
        if db.exists() and os.path.getsize(db):  # noqa: PTH202  (a size, of a file that may vanish)
            store = Store.open(str(db))
            attempts = store.attempts()
            if attempts and len(store.calls(attempts[-1].attempt_id)) >= count:
                return
            store.close()
    raise AssertionError(f"fewer than {count} calls on disk after 90 s")

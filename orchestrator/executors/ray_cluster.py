"""Starting, joining and leaving a Ray cluster; every failure becomes one line (architecture, section 9).

`local` always starts a cluster of its own (`auto` would join any other program's). Ray listens beyond loopback, guarded
by a token it writes under HOME; we never switch that off.
"""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import uuid
from pathlib import Path
from typing import Any

import ray
from ray._private import utils as ray_utils

from orchestrator.executors import cluster_guard
from orchestrator.executors.errors import ClusterError, ClusterLost
from orchestrator.executors.notices import NOTICES
from orchestrator.executors.packages import PACKAGES, package_root

_OBJECT_STORE_BYTES = 200 * 1024**2
_ANSWER_TIMEOUT_S = 5.0
_GUARD_TIMEOUT_S = 30.0
_guards: list[subprocess.Popen[bytes]] = []  # at most one: of the cluster this process has started


def start_or_join(address: str, *, num_cpus: int | None = None, with_dashboard: bool = False) -> None:
    """Start a local cluster (`local`) or join one (`auto` or an address), shipping our packages to it.

    Raises:
        ClusterError: one line with the remedy.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    options: dict[str, Any] = {
        "log_to_driver": False,
        "logging_level": logging.ERROR,
        "ignore_reinit_error": False,
    }
    if address == "local":
        options |= {
            "address": "local",
            "num_cpus": num_cpus,
            "include_dashboard": with_dashboard,
            "object_store_memory": _OBJECT_STORE_BYTES,
        }
    else:
        _require_answer(address)
        options |= {"address": address, "runtime_env": {"py_modules": _package_folders()}}
    NOTICES.install()
    if address == "local":
        _start_guard()
    try:
        ray.init(**options)
    except (RuntimeError, ValueError, OSError) as exc:
        _end_guard()
        raise ClusterError(_why(address, exc)) from exc


def _require_answer(address: str) -> None:
    """Refuse an address where nothing listens: Ray itself would try for minutes."""
    target = address
    if address == "auto":
        target = os.environ.get("RAY_ADDRESS") or ray_utils.read_ray_address() or ""
    host, _, port = target.rpartition(":")
    if "://" in target or (target and not (host and port.isdigit())):
        raise ClusterError(f"cluster.address={target} is no address of a Ray head; write host:port, auto or local")
    remedy = "start one with `ray start --head`, name it with cluster.address=host:port, or use cluster=local"
    if not target:
        raise ClusterError(f"cluster.address={address}: no Ray cluster runs on this machine; {remedy}")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_ANSWER_TIMEOUT_S).close()
    except OSError as exc:
        raise ClusterError(
            f"cluster.address={address}: nothing answers at {target} ({_one_line(exc)}); {remedy}"
        ) from exc


def _why(address: str, exc: Exception) -> str:
    """Ray's failure to start or join as one line with the remedy."""
    text = _one_line(exc)
    if "ersion mismatch" in text:
        return (
            f"cluster.address={address}: the cluster runs another version than this program: {text}; install the same"
        )
    home = os.environ.get("HOME", "")
    if isinstance(exc, OSError) and home and str(exc.filename or "").startswith(home):
        return (
            f"Ray keeps its token in HOME, and {home} cannot be written ({exc.strerror}); set HOME to a writable folder"
        )
    if isinstance(exc, PermissionError):
        return (
            f"Ray cannot write {exc.filename}; it keeps its files in RAY_TMPDIR (/tmp/ray): set it to a writable folder"
        )
    return f"cluster.address={address}: Ray did not start: {text}"


def stop() -> None:
    """Leave the cluster; a local one ends with all its processes."""
    if ray.is_initialized():
        ray.shutdown()
    _end_guard()


def _start_guard() -> None:
    """Mark the processes that Ray will start and have them watched; not where /proc is missing."""
    if not Path("/proc/self/environ").exists():
        return
    mark = f"{os.getpid()}-{uuid.uuid4().hex}"
    os.environ[cluster_guard.MARK_VARIABLE] = mark
    _guards.append(cluster_guard.start(mark))


def _end_guard() -> None:
    """Let the guard look for leftovers; it ends by itself."""
    os.environ.pop(cluster_guard.MARK_VARIABLE, None)
    while _guards:
        guard = _guards.pop()
        assert guard.stdin is not None
        guard.stdin.close()
        guard.wait(_GUARD_TIMEOUT_S)


def num_cluster_cpus() -> int:
    """CPUs of the whole cluster, at least 1."""
    return max(1, int(ray.cluster_resources().get("CPU", 1)))


def require_own_node() -> None:
    """Notice that the Ray node this driver is attached to has died: nothing can be started any more.

    Raises:
        ClusterLost: it is dead, or the cluster does not answer.
    """
    own = ray.get_runtime_context().get_node_id()
    try:
        alive = any(node["NodeID"] == own and node["Alive"] for node in ray.nodes())
    except (ray.exceptions.RayError, ConnectionError, RuntimeError) as exc:
        raise ClusterLost(f"the Ray cluster no longer answers ({_one_line(exc)}); run the command again") from exc
    if not alive:
        raise ClusterLost("the Ray node of this driver has died; run the command again with rerun=failed")


def driver_host() -> str:
    """The host this process runs on; a SQLite file can only be written there."""
    return socket.gethostname()


def _package_folders() -> list[str]:
    root = package_root()
    return [str(root / name) for name in PACKAGES]


def _one_line(exc: BaseException) -> str:
    return " ".join(str(exc).split())[:300] or type(exc).__name__

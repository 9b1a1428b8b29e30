"""Starting, joining and leaving a Ray cluster; every failure becomes one line (architecture, section 9).

`local` always starts a cluster of its own (`auto` would join any other program's). Ray listens beyond loopback, guarded by
a token it writes under HOME; we never switch that off.
"""

from __future__ import annotations

import logging
import os
import socket
from typing import Any

import ray

from orchestrator.executors.errors import ClusterError
from orchestrator.executors.notices import NOTICES
from orchestrator.executors.packages import PACKAGES, package_root

_OBJECT_STORE_BYTES = 200 * 1024**2


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
        options |= {"address": address, "runtime_env": {"py_modules": _package_folders()}}
    NOTICES.install()
    try:
        ray.init(**options)
    except ConnectionError as exc:
        raise ClusterError(
            f"cluster={address}: no Ray cluster answers there ({_one_line(exc)}); start one with `ray start --head`, or use cluster=local"
        ) from exc
    except PermissionError as exc:
        raise ClusterError(
            f"Ray cannot write {exc.filename}: it keeps its token under HOME ({os.environ.get('HOME')}) and its files in its temp folder; "
            "set HOME to a writable folder"
        ) from exc
    except (RuntimeError, ValueError, OSError) as exc:
        raise ClusterError(f"cluster={address}: Ray did not start: {_one_line(exc)}") from exc

def stop() -> None:
    """Leave the cluster; a local one ends with all its processes."""
    if ray.is_initialized():
        ray.shutdown()


def num_cluster_cpus() -> int:
    """CPUs of the whole cluster, at least 1."""
    return max(1, int(ray.cluster_resources().get("CPU", 1)))


def require_own_node() -> None:
    """Notice that the Ray node this driver is attached to has died: nothing can be started any more.

    Raises:
        ClusterError: it is dead, or the cluster does not answer.
    """
    own = ray.get_runtime_context().get_node_id()
    try:
        alive = any(node["NodeID"] == own and node["Alive"] for node in ray.nodes())
    except (ray.exceptions.RayError, ConnectionError, RuntimeError) as exc:
        raise ClusterError(f"the Ray cluster no longer answers ({_one_line(exc)}); run the command again") from exc
    if not alive:
        raise ClusterError("the Ray node of this driver has died; run the command again with rerun=failed")


def driver_host() -> str:
    """The host this process runs on; a SQLite file can only be written there."""
    return socket.gethostname()


def _package_folders() -> list[str]:
    root = package_root()
    return [str(root / name) for name in PACKAGES]


def _one_line(exc: BaseException) -> str:
    return " ".join(str(exc).split())[:300] or type(exc).__name__

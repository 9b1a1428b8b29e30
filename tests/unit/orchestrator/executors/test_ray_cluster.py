"""Every failure to start or join Ray is one line with its remedy; settings that cannot run are refused."""

from __future__ import annotations

import errno
import socket

import pytest

from orchestrator.executors import ray_cluster
from orchestrator.executors.errors import ClusterError
from orchestrator.executors.packages import fingerprint, package_root
from orchestrator.executors.ray_actors import RayActorsExecutor


def test_nothing_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    """An address where nobody listens is refused within seconds, before Ray tries for minutes."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{listener.getsockname()[1]}"
    with pytest.raises(ClusterError, match=f"nothing answers at {address}.*ray start --head"):
        ray_cluster.start_or_join(address)


def test_auto_uses_ray_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """`auto` looks where RAY_ADDRESS points."""
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:9")
    with pytest.raises(ClusterError, match="nothing answers at 127.0.0.1:9"):
        ray_cluster.start_or_join("auto")


@pytest.mark.parametrize("address", ["ray://head:10001", "somewhere", "host:port"])
def test_what_is_no_address(address: str) -> None:
    """A Ray Client URL, a bare name and a port that is no number are named with the form that is needed."""
    with pytest.raises(ClusterError, match="write host:port"):
        ray_cluster.start_or_join(address)


@pytest.mark.parametrize(
    ("error", "fragments"),
    [
        (RuntimeError("Version mismatch: The cluster was started with:\n Ray: 2.1.0"), ("another version", "2.1.0")),
        (NotADirectoryError(errno.ENOTDIR, "Not a directory", "/nowhere/home/.ray"), ("HOME", "/nowhere/home")),
        (PermissionError(errno.EACCES, "Permission denied", "/tmp/ray/x"), ("/tmp/ray/x", "RAY_TMPDIR")),
        (ValueError("odd"), ("did not start", "odd")),
    ],
)
def test_ray_failures_are_one_line(
    monkeypatch: pytest.MonkeyPatch, error: Exception, fragments: tuple[str, ...]
) -> None:
    """What `ray.init` raises becomes one line; the guard that was started for the cluster ends."""

    def fail(**_: object) -> None:
        raise error

    monkeypatch.setenv("HOME", "/nowhere/home")
    monkeypatch.setattr("ray.init", fail)
    with pytest.raises(ClusterError) as caught:
        ray_cluster.start_or_join("local")
    text = str(caught.value)
    assert len(text.splitlines()) == 1
    for fragment in fragments:
        assert fragment in text


@pytest.mark.parametrize(
    "settings",
    [
        {"parallel": 0},
        {"sessions_per_actor": 0},
        {"clock_speed": 0.0},
        {"clock_speed": float("inf")},
        {"signal_age_s": 0.0},
    ],
)
def test_settings_that_cannot_run_are_refused(settings: dict[str, float]) -> None:
    """A value out of range is named."""
    (name,) = settings
    with pytest.raises(ValueError, match=name):
        RayActorsExecutor(**settings)  # type: ignore[arg-type]


def test_the_fingerprint_is_of_the_code() -> None:
    """It is the same within a process, and the packages lie side by side."""
    assert fingerprint() == fingerprint()
    assert (package_root() / "serving" / "clock.py").is_file()

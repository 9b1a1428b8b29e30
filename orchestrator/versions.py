"""Which software ran an attempt: package versions and our git revision. Provenance, never identity."""

from __future__ import annotations

import functools
import platform
import subprocess
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

# Distributions that can change what is measured: another version makes a result outdated.
DECIDING_PACKAGES = ("convoy", "ray", "vllm", "swebench", "mini-swe-agent", "tokenizers", "transformers")
_PACKAGES = (*DECIDING_PACKAGES, "numpy", "sqlalchemy", "hydra-core")


@functools.cache
def installed_versions() -> Mapping[str, str]:
    """Package -> version, of the packages that are installed, and Python's."""
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


@functools.cache
def git_revision() -> str | None:
    """The commit this code is at, with `-dirty` when files differ; None outside a repository."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude", "*"]
    try:
        done = subprocess.run(
            command, cwd=Path(__file__).parent, capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None

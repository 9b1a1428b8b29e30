"""Which code a process runs: one fingerprint of our packages, and that they are ours and not a user's folders.

A worker on another machine may have an older installation; a folder named `workers` in the working directory may hide
ours. Both would give results that look right.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import sys
from pathlib import Path

from orchestrator.executors.errors import ClusterError

PACKAGES = ("orchestrator", "workers", "serving", "db")


def package_root() -> Path:
    """The folder that holds our packages.

    Raises:
        ClusterError: one of them lies elsewhere, hidden by another folder of its name.
    """
    root = Path(__file__).resolve().parent.parent.parent
    for name in PACKAGES:
        spec = importlib.util.find_spec(name)
        found = Path(spec.origin).resolve().parent if spec is not None and spec.origin else None
        if found != root / name:
            where = found or "a folder without __init__.py"
            raise ClusterError(f"the package {name!r} is hidden by {where}; rename that folder or start elsewhere")
    return root


def block_pyarrow() -> None:
    """Make `import pyarrow` fail in this process, as if it were not installed.

    Ray imports it, where it can, for the first value a worker sends back: time and memory in every agent worker, for
    types that none of them sends.
    """
    sys.modules.setdefault("pyarrow", None)  # type: ignore[arg-type]


@functools.cache
def fingerprint() -> str:
    """A hash of every source file of our packages: equal where the same code runs."""
    digest = hashlib.sha256()
    root = package_root()
    for name in PACKAGES:
        for path in sorted((root / name).rglob("*.py")):
            digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]

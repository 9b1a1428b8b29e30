"""Ends what a local Ray cluster leaves behind when its driver is killed; a process of its own, standard library only.

Ray ends its processes itself, but two agents may outlive a killed driver by minutes: they try to report to a cluster
that is gone. The guard reads its standard input, which closes when the driver ends however that happens; then it gives
Ray a few seconds and sends SIGKILL to whatever still carries the driver's mark in its environment.

Run as `python cluster_guard.py MARK`, by `ray_cluster` alone.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

MARK_VARIABLE = "CONVOY_CLUSTER"
_POLL_S, _NUM_POLLS_BEFORE_KILL, _NUM_POLLS = 0.25, 20, 60


def start(mark: str) -> subprocess.Popen[bytes]:
    """Start a guard for the processes that inherit MARK_VARIABLE=`mark`; close its stdin to let it end them."""
    environment = {name: value for name, value in os.environ.items() if name != MARK_VARIABLE}
    return subprocess.Popen(
        [sys.executable, "-I", "-S", str(Path(__file__).resolve()), mark],
        stdin=subprocess.PIPE,
        env=environment,
        start_new_session=True,
    )


def marked(mark: str) -> Iterator[int]:
    """Process ids that carry the mark and still run."""
    wanted = f"{MARK_VARIABLE}={mark}".encode()
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit() or int(folder.name) == os.getpid():
            continue
        try:
            variables = (folder / "environ").read_bytes().split(b"\0")
            is_running = bool((folder / "cmdline").read_bytes())
        except OSError:
            continue  # ended meanwhile, or another user's
        if wanted in variables and is_running:
            yield int(folder.name)


def main() -> None:
    """Wait for the driver's end, then for Ray's, then end the rest."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.stdin.buffer.read()
    pause = threading.Event()
    for poll in range(_NUM_POLLS):
        left = list(marked(sys.argv[1]))
        if not left:
            return
        if poll >= _NUM_POLLS_BEFORE_KILL:
            for pid in left:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
        pause.wait(_POLL_S)


if __name__ == "__main__":
    main()

"""Ends what a local Ray cluster leaves behind when its driver is killed; a process of its own, standard library only.

Ray ends its processes itself, but two agents may outlive a killed driver by minutes: they try to report to a cluster
that is gone. The guard reads its standard input, which closes when the driver ends however that happens; then it gives
Ray a few seconds and sends SIGKILL to whatever still belongs to the driver's cluster.

A process belongs to it when it carries the driver's mark in its environment, or is one of Ray's own and holds a file of
the cluster's session folder open, whose name ends with the driver's pid. The mark alone is not enough: Ray's agents set
their title over the memory of their environment, which takes variables away, in no fixed order.

Run as `python cluster_guard.py MARK DRIVER_PID`, by `ray_cluster` alone.
"""

from __future__ import annotations

import os
import re
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
        [sys.executable, "-I", "-S", str(Path(__file__).resolve()), mark, str(os.getpid())],
        stdin=subprocess.PIPE,
        env=environment,
        start_new_session=True,
    )


def cluster_processes(mark: str, driver_pid: int) -> Iterator[int]:
    """Process ids of a driver's cluster that still run, the driver itself left out."""
    wanted = f"{MARK_VARIABLE}={mark}".encode()
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit() or int(folder.name) in (os.getpid(), driver_pid):
            continue
        try:
            variables = (folder / "environ").read_bytes().split(b"\0")
            title = (folder / "cmdline").read_bytes()
        except OSError:
            continue  # ended meanwhile, or another user's
        if title and (wanted in variables or is_of_session(folder, title, driver_pid)):
            yield int(folder.name)


def is_of_session(process: Path, title: bytes, driver_pid: int) -> bool:
    """Whether a process is Ray's own and holds a file of the session that `driver_pid` began.

    Args:
        process: its folder in /proc. title: its command line.
    """
    if not (title.startswith(b"ray::") or b"/ray/" in title):
        return False
    try:
        names = [str(link.readlink()) for link in (process / "fd").iterdir()]
    except OSError:
        return False  # ended meanwhile
    return any(re.search(rf"/session_[^/]*_{driver_pid}/", name) for name in names)


def main() -> None:
    """Wait for the driver's end, then for Ray's, then end the rest."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.stdin.buffer.read()
    pause = threading.Event()
    for poll in range(_NUM_POLLS):
        left = list(cluster_processes(sys.argv[1], int(sys.argv[2])))
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

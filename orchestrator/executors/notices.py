"""Ray's notices (a worker died, a node is gone), kept off stdout so that it holds only our lines.

Ray prints them from a thread of the driver, whatever `log_to_driver` says; its printing function is replaced by ours.
They become `event` rows of the attempt in flight.
"""

from __future__ import annotations

import threading
from typing import Any

from ray._private import worker as ray_worker

_MAX_CHARS = 2_000


class Notices:
    """Collects what Ray would print."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._texts: list[str] = []

    def install(self) -> None:
        """Take the place of Ray's printing function; the listening thread looks it up at every message."""
        ray_worker.print_to_stdstream = self._take

    def take(self) -> tuple[str, ...]:
        """The notices since the last call."""
        with self._lock:
            texts, self._texts = self._texts, []
        return tuple(texts)

    def has_any(self) -> bool:
        """Whether a notice waits."""
        return bool(self._texts)

    def _take(self, data: dict[str, Any], ignore_prefix: bool = False) -> None:
        text = "\n".join(data.get("lines", ())).strip()[:_MAX_CHARS]
        if text:
            with self._lock:
                self._texts.append(text)


NOTICES = Notices()

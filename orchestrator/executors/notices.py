"""Ray's notices (a worker died, a node is gone), kept off stdout so that it holds only our lines.

Ray prints them from a thread of the driver through one dispatcher; its printing handler is replaced by ours. They become
`event` rows of the attempt in flight.
"""

from __future__ import annotations

import threading
from typing import Any

from ray._private.ray_logging import global_worker_stdstream_dispatcher

_RAY_HANDLER = "ray_print_logs"
_OUR_HANDLER = "convoy_notices"
_MAX_CHARS = 2_000


class Notices:
    """Collects what Ray would print."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._texts: list[str] = []

    def install(self) -> None:
        """Take Ray's place at the dispatcher; call after every `ray.init`."""
        global_worker_stdstream_dispatcher.remove_handler(_RAY_HANDLER)
        global_worker_stdstream_dispatcher.remove_handler(_OUR_HANDLER)
        global_worker_stdstream_dispatcher.add_handler(_OUR_HANDLER, self._take)

    def take(self) -> tuple[str, ...]:
        """The notices since the last call."""
        with self._lock:
            texts, self._texts = self._texts, []
        return tuple(texts)

    def has_any(self) -> bool:
        """Whether a notice waits."""
        return bool(self._texts)

    def _take(self, data: dict[str, Any]) -> None:
        text = "\n".join(data.get("lines", ())).strip()[:_MAX_CHARS]
        if text:
            with self._lock:
                self._texts.append(text)


NOTICES = Notices()

"""Rows of an engine without time: what would be a time is NULL, because unknown is never 0.

`tool_execution` and a session's start and end keep the attempt's clock, on which only the recorded tool time passes.
"""

from __future__ import annotations

from dataclasses import replace

from db import records
from db.recorder import Recorder


class TimelessSink:
    """A `RowSink` over a recorder in this process that takes the times out of calls and sessions."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self.record_tool_execution = recorder.record_tool_execution

    def record_call(self, row: records.Call) -> None:
        """A call, its stamps on the clock left out."""
        self._recorder.record_call(
            replace(row, due_s=None, sent_s=None, first_token_s=None, last_token_s=None, tool_result_s=None)
        )

    def record_session(self, row: records.Session) -> None:
        """A session without its first request and last response, so that it has no duration."""
        self._recorder.record_session(replace(row, first_request_s=None, last_response_s=None))

    async def settle(self, *, max_pending: int) -> None:
        """Nothing to wait for: the recorder commits full batches itself, and the attempt flushes at its end."""

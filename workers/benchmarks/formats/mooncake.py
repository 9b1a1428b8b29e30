"""Mooncake traces: JSON lines of token counts and 512-token block ids, no text.

Lines with one `session_id` are the turns of one conversation (a shrinking prompt begins another); a line without one
is a session of a single call. Block ids decide which sessions share their opening. `delay` (milliseconds) is the pause
before a turn; `timestamp` is not used: sessions run closed-loop here.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from workers.benchmarks.formats.common import FormatProblem, LoadedRun, count, seconds
from workers.benchmarks.formats.lengths import Request, chains, run_of

NAME = "Mooncake trace"
HINT = 'JSON lines with "input_length", "output_length" and "hash_ids"'
BLOCK_TOKENS = 512


def matches(document: object) -> bool:
    """Whether the line is a Mooncake request (Bailian's, with `chat_id`, have other blocks)."""
    return (
        isinstance(document, dict)
        and {"input_length", "output_length", "hash_ids"} <= document.keys()
        and "chat_id" not in document
    )


def read(documents: Sequence[Any], origin: str) -> list[LoadedRun]:
    """One run per conversation, in order of first appearance."""
    # Block ids mean the same text within one file; its content names it, so that its path decides nothing.
    scope = f"mooncake {hashlib.sha256(json.dumps(documents[:3], sort_keys=True).encode()).hexdigest()[:12]}"
    sessions: dict[str, list[Request]] = defaultdict(list)
    for line, item in enumerate(documents, start=1):
        sessions[str(item.get("session_id") or f"request-{line:06d}")].append(_request(item))
    loaded = []
    for session, requests in sessions.items():
        for number, chain in enumerate(chains(requests, must_share_blocks=False), start=1):
            name = session if number == 1 else f"{session}-{number}"
            run = run_of(chain, scope=scope, session=name, block_tokens=BLOCK_TOKENS, source_format="mooncake")
            loaded.append(LoadedRun(name, run, {"session_id": session, "chain": number}))
    return loaded


def _request(item: Mapping[str, Any]) -> Request:
    prompt, completion = count(item["input_length"]), count(item["output_length"])
    if prompt is None or completion is None:
        raise FormatProblem("a request without token counts")
    delay_ms = seconds(item.get("delay"))
    return Request(prompt, max(1, completion), tuple(item["hash_ids"]), None if delay_ms is None else delay_ms / 1e3)

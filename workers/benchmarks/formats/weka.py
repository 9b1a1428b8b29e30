"""Weka KV-cache traces: token counts and 64-token block ids of Claude Code sessions, no text.

A trace is cut into chains of growing prompts (a compaction or a changed prefix begins a new chain); each chain is a
run. Requests of subagents are other sessions and are left out. `think_time` is the pause before a request.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from workers.benchmarks.formats.common import FormatProblem, LoadedRun, count, seconds
from workers.benchmarks.formats.lengths import Request, chains, run_of

NAME = "Weka trace"
HINT = 'a JSON object with "block_size" and "requests" of "in", "out", "hash_ids"'


def matches(document: object) -> bool:
    """Whether the document is a Weka trace."""
    return isinstance(document, dict) and "block_size" in document and isinstance(document.get("requests"), list)


def read(documents: Sequence[Any], origin: str) -> list[LoadedRun]:
    """The chains of all traces."""
    return [loaded for document in documents for loaded in _read_trace(document, origin)]


def _read_trace(document: Mapping[str, Any], origin: str) -> list[LoadedRun]:
    trace = str(document.get("id") or origin)
    scope = "weka" if document.get("hash_id_scope") == "global" else f"weka {trace}"
    requests = [_request(item) for item in document["requests"] if item.get("type") != "subagent"]
    if not requests:
        raise FormatProblem("no request in it")
    loaded = []
    for number, chain in enumerate(chains(requests, must_share_blocks=True), start=1):
        name = trace if number == 1 else f"{trace}-{number}"
        run = run_of(chain, scope=scope, session=name, block_tokens=int(document["block_size"]), source_format="weka")
        loaded.append(LoadedRun(name, run, {"trace": trace, "chain": number}))
    return loaded


def _request(item: Mapping[str, Any]) -> Request:
    prompt, completion = count(item["in"]), count(item["out"])
    if prompt is None or completion is None:
        raise FormatProblem("a request without token counts")
    return Request(prompt, max(1, completion), tuple(item.get("hash_ids") or ()), seconds(item.get("think_time")))

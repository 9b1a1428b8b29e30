"""Compare the splitter's prompt tokens with recorded usage, and time it: `python -m scripts.bench_tokens [FOLDER]`.

FOLDER holds mini-swe-agent files (`*.traj.json`, gzipped or not) with `usage` in `extra.response`; the default is
`../shared/trajectories/original` beside the checkout. Prints bias and median error of the prompt tokens over all
calls of a base replay, of the completion tokens, characters per token, and microseconds.
"""

from __future__ import annotations

import gzip
import json
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from serving.calls import Message, ToolCall
from serving.tokens import SplitterCounter

DEFAULT_FOLDER = Path(__file__).resolve().parent.parent.parent / "shared" / "trajectories" / "original"


class RecordedCall(NamedTuple):
    """One call with recorded usage: the messages before it and its reply."""

    before: tuple[Message, ...]
    reply: Message
    num_prompt_tokens: int
    num_completion_tokens: int


def to_message(raw: dict[str, Any]) -> Message:
    """A recorded chat message in our shape."""
    calls = tuple(
        ToolCall(call["id"], call["function"]["name"], call["function"]["arguments"])
        for call in raw.get("tool_calls") or ()
    )
    content, reasoning = raw.get("content") or "", raw.get("reasoning_content")
    return Message(raw["role"], content, reasoning, calls, raw.get("tool_call_id"))


def recorded_calls(path: Path) -> Iterator[RecordedCall]:
    """The calls of one mini-swe-agent file that have usage, in order."""
    data = path.read_bytes()
    document = json.loads(gzip.decompress(data) if path.suffix == ".gz" else data)
    before: list[Message] = []
    for raw in document["messages"] if isinstance(document, dict) else ():
        if raw["role"] == "exit":
            continue
        message = to_message(raw)
        usage = ((raw.get("extra") or {}).get("response") or {}).get("usage")
        if usage:
            yield RecordedCall(tuple(before), message, usage["prompt_tokens"], usage["completion_tokens"])
        before.append(message)


def recorded_runs(folder: Path) -> list[list[RecordedCall]]:
    """All runs of a folder that have usage."""
    files = sorted({*folder.rglob("*.traj.json.gz"), *folder.rglob("*.traj.json")})
    return [calls for calls in (list(recorded_calls(path)) for path in files) if calls]


def texts_of(message: Message) -> list[str]:
    """Everything of a message that the model reads."""
    return [message.content, message.reasoning or "", *(call.arguments for call in message.tool_calls)]


class Agreement(NamedTuple):
    """How counted tokens compare with recorded ones, over calls; shares, not per cent."""

    total_bias: float
    mean_error: float
    median_abs_error: float


def agreement(counted: list[int], recorded: list[int]) -> Agreement:
    """Bias of the sum, mean signed and median absolute relative error per call."""
    errors = [ours / theirs - 1 for ours, theirs in zip(counted, recorded, strict=True)]
    return Agreement(
        sum(counted) / sum(recorded) - 1, statistics.fmean(errors), statistics.median(abs(error) for error in errors)
    )


def main() -> int:
    """Print the figures."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT_FOLDER
    runs = recorded_runs(folder)
    if not runs:
        print(f"{folder}: no mini-swe-agent file with recorded usage")
        return 2
    counter = SplitterCounter()
    calls = [call for run in runs for call in run]
    prompts = agreement([counter.prompt(c.before).num_tokens for c in calls], [c.num_prompt_tokens for c in calls])
    replies = agreement([len(counter.reply_ids(c.reply)) for c in calls], [c.num_completion_tokens for c in calls])
    print(f"{counter.name}: {len(runs)} runs, {len(calls)} calls")
    for what, result in (("prompt tokens", prompts), ("completion tokens", replies)):
        print(
            f"{what}: total bias {result.total_bias:+.2%}, mean error {result.mean_error:+.2%}, "
            f"median |error| {result.median_abs_error:.2%}"
        )
    last = [run[-1] for run in runs]
    shown = sum(len(text) for call in last for message in call.before for text in texts_of(message))
    print(
        f"recorded: {shown / sum(c.num_prompt_tokens for c in last):.2f} characters per prompt token, frames included"
    )
    texts = [message.content for run in runs for message in run[-1].before]
    num_chars = sum(map(len, texts))
    started = time.perf_counter()
    num_tokens = sum(len(counter.encode(Message("user", f" {text}"))) for text in texts)
    fresh_s = time.perf_counter() - started
    print(f"{num_chars / num_tokens:.2f} characters per piece; {fresh_s / num_chars * 1e9:.0f} us per 1,000 characters")
    longest = max(calls, key=lambda call: len(call.before)).before[:160]
    counter.prompt(longest)
    started = time.perf_counter()
    for _ in range(1000):
        counter.prompt(longest)
    print(f"prompt of {len(longest)} known messages: {(time.perf_counter() - started) * 1e3:.1f} us")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Recorded runs rendered again by several renderers: prompt lengths against `base`, in characters.

`python -m scripts.bench_rerender [FILE]`; FILE is a neutral JSONL (default: the recorded runs beside the checkout).
Sliding edits of old text cost the prefix cache, chunked ones keep it: mask sends several times the uncached
characters of base, its polling form about twice. ReFold's rows use seeded hindsight signals.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from scripts.bench_refold import DEFAULT_FILE, load_runs, replies
from workers.interfaces import RecordedRun, Renderer
from workers.prompt_lengths import PromptLengths, prompt_lengths, repeated_chars
from workers.renderers.base import Base
from workers.renderers.clip import Clip
from workers.renderers.mask import Mask
from workers.renderers.refold import Refold

ARMS: dict[str, tuple[type[Any], dict[str, Any]]] = {
    "base": (Base, {}),
    "clip 1,000": (Clip, {}),
    "mask N=10": (Mask, {}),
    "mask N=10 polling 10": (Mask, {"polling": 10}),
    "refold dedup only": (Refold, {"fold": False}),
    "refold": (Refold, {}),
    "refold k=5": (Refold, {"k": 5}),
    "refold sliding": (Refold, {"chunked": False}),
}


async def _no_aux(**_: Any) -> Any:
    raise AssertionError("these renderers make no auxiliary calls")


def measure(runs: list[RecordedRun], make: type[Any], settings: dict[str, Any]) -> tuple[int, int, int]:
    """(cumulative, uncached, summed peak) characters over all runs."""
    totals = [0, 0, 0]
    for run in runs:
        renderer: Renderer = make(**settings)
        renderer.start(counter=None, budget_tokens=0, path="renderer")  # type: ignore[arg-type]
        lengths: PromptLengths = asyncio.run(prompt_lengths(run, renderer, _no_aux))
        for place, value in enumerate((lengths.cumulative, lengths.uncached, lengths.peak)):
            totals[place] += value
    return totals[0], totals[1], totals[2]


def with_signals(number: int, run: RecordedRun, share: float) -> RecordedRun:
    """The run with PROGRESS and STALE lines at the start of its replies."""
    steps = tuple(
        replace(step, assistant=reply) for step, reply in zip(run.steps, replies(number, run, share), strict=True)
    )
    return replace(run, steps=steps)


def main() -> int:
    """Print one line per renderer."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", nargs="?", type=Path, default=DEFAULT_FILE)
    parser.add_argument("--hindsight", type=float, default=0.6, help="share of turns named STALE in ReFold's rows")
    arguments = parser.parse_args()
    if not arguments.file.is_file():
        print(f"no recorded runs at {arguments.file}; give a neutral JSONL file", file=sys.stderr)
        return 2
    runs = load_runs(arguments.file)
    signalled = [with_signals(number, run, arguments.hindsight) for number, run in enumerate(runs)]
    base = measure(runs, Base, {})
    print(f"{len(runs)} runs, {sum(len(run.steps) for run in runs)} steps; characters against base")
    print(f"{'renderer':24}{'cumulative':>11}{'uncached':>10}{'peak':>7}")
    for name, (make, settings) in ARMS.items():
        is_signalled = make is Refold and settings.get("fold", True)
        totals = measure(signalled if is_signalled else runs, make, settings)
        ratios = [value / reference for value, reference in zip(totals, base, strict=True)]
        print(f"{name:24}{ratios[0]:11.3f}{ratios[1]:10.2f}{ratios[2]:7.2f}")
    removable = sum(
        chars * (len(run.steps) - step) for run in runs for step, chars in enumerate(repeated_chars(run), start=1)
    )
    print(f"upper bound of deduplication: {removable / base[0]:.1%} of the cumulative prompt")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

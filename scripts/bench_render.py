"""Every renderer's own time per step, its growth with the history and its memory, on recorded runs.

`python -m scripts.bench_render [--only refold,mask] [FILE]`; FILE is a neutral JSONL (default: the recorded runs beside
the checkout). A step is read_reply + observe + render; token counting is measured apart and not part of it, auxiliary
calls answer at once. Replies get PROGRESS and STALE lines by hindsight, 0.6 of the turns no later step reads again.
Caches are cold at each session's start. CPU time of the thread, so that other work on the machine does not count.

Growth: the runs one behind the other as one session of 1,000 turns; medians of 60 steps that move no boundary.
Memory: what a renderer and its last prompt hold after 250 turns, beside the history, as a share of the history's text;
with the text itself that should stay under twice the text (share below 1).
Targets, ours: mean under 0.05 ms for refold, 10 for memory, 0.5 for arsm and its variants, 0.2 for the others
(the paper states 0.4 ms a step for ReFold, section 3.4).
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import statistics
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from orchestrator.build import build
from scripts.rendered_rows import RECORDED_RUNS, RENDERERS, cell
from serving.calls import Message, TokenUsage
from workers.benchmarks.recorded import Recorded
from workers.history import NO_SIGNALS, History, Rendered, Turn
from workers.interfaces import AuxReply, RecordedRun, Task
from workers.streams import SeededStreams

BUDGET_TOKENS = 16_384  # so that renderers that wait for a full prompt act
GROWTH_AT = (50, 250, 1_000)
_WINDOW = 60
_ARSM_FAMILY = ("arsm", "sm_only", "har_only", "plain_summary", "structured_summary")


def target_ms(name: str) -> float:
    """The mean a renderer should stay under."""
    return {"refold": 0.05, "memory": 10.0}.get(name, 0.5 if name in _ARSM_FAMILY else 0.2)


@dataclass
class ApartCounter:
    """A token counter whose own time is summed up in `spent_s`."""

    inner: Any
    spent_s: float = field(default=0.0, init=False)

    @property
    def name(self) -> str:
        """The inner counter's name."""
        return str(self.inner.name)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """Any method of the inner counter, timed."""
        method = getattr(self.inner, name)

        def timed(*arguments: Any) -> Any:
            begin = time.thread_time()
            try:
                return method(*arguments)
            finally:
                self.spent_s += time.thread_time() - begin

        return timed


class QuickCounter:
    """Four characters a token, no caches: for the memory figure."""

    name = "quick"

    def count_text(self, text: str) -> int:
        """Length in tokens."""
        return len(text) // 4

    def count(self, message: Any) -> int:
        """Length in tokens, frame included."""
        return len(message.content) // 4 + 5


@dataclass
class StandIn:
    """Answers auxiliary calls at once with a text of the declared length; its time is summed up in `spent_s`."""

    spent_s: float = field(default=0.0, init=False)

    async def __call__(self, *, declared_tokens: int, adopt: Any = None, **_: Any) -> AuxReply:
        """See `AuxCaller`."""
        begin = time.thread_time()
        text = "word " * declared_tokens
        if adopt is not None:
            adopt(text)
        self.spent_s += time.thread_time() - begin
        return AuxReply(text, TokenUsage(declared_tokens, None, declared_tokens, "client"), "seeded")


class Step(NamedTuple):
    """CPU seconds of one step and whether its render moved the boundary."""

    own_s: float
    is_advance: bool


class Bench:
    """One renderer of conf/ over recorded tasks."""

    def __init__(self, name: str, path: Path) -> None:
        self.config = cell([f"renderer={name}"], path=path).config
        self.counter = build(self.config["tokens"])

    def steps(self, task: Task) -> list[Step]:
        """The times of one session."""
        clear_caches()
        counter, aux = ApartCounter(self.counter), StandIn()
        return [step for step, _ in self._session(task, self._replies(task), counter, aux)]

    def held_bytes(self, task: Task) -> int:
        """Bytes that the renderer and its last prompt hold after a session, beside the recording and the replies."""
        clear_caches()
        replies = self._replies(task)
        gc.collect()
        tracemalloc.start()
        try:
            for _, held in self._session(task, replies, QuickCounter(), StandIn(), with_usage=False):
                kept = held
            gc.collect()
            current, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        del kept
        return current

    def _replies(self, task: Task) -> list[Message]:
        """The replies of a session, with the signals that the renderer asks for."""
        renderer, policy = build(self.config["renderer"]), build(self.config["policy"])
        streams = SeededStreams(seed=0, replicate=1, benchmark="recorded", task_id=task.task_id)
        policy.start(task=task, signals=renderer.signals, counter=self.counter, streams=streams)
        assert task.run is not None
        replies, history = [], History(task.run.opening)
        for index, step in enumerate(task.run.steps, start=1):
            replies.append(policy.interpret(history, None).message)
            history.append(Turn(index, replies[-1], step.actions, step.observations, may_remind=False))
        return replies

    def _session(
        self, task: Task, replies: Sequence[Message], counter: Any, aux: StandIn, *, with_usage: bool = True
    ) -> Iterator[tuple[Step, Any]]:
        """The session loop around the renderer, without engine and environment."""
        renderer = build(self.config["renderer"])
        renderer.start(counter=counter, budget_tokens=BUDGET_TOKENS, path="renderer")
        assert task.run is not None
        history = History(task.run.opening)
        rendered = renderer.render(history)
        for index, (step, reply) in enumerate(zip(task.run.steps, replies, strict=True), start=1):
            usage = self._usage(rendered) if with_usage else None
            apart_s = _spent(counter) + aux.spent_s
            begin = time.thread_time()
            signals = renderer.read_reply(reply) if renderer.signals else NO_SIGNALS
            own_s = time.thread_time() - begin
            history.append(
                Turn(index, reply, step.actions, step.observations, signals=signals, usage=usage, may_remind=False)
            )
            boundary = rendered.boundary
            begin = time.thread_time()
            history.extend(_finish(renderer.observe(history, rendered, aux)))
            rendered = renderer.render(history)
            own_s += time.thread_time() - begin - (_spent(counter) + aux.spent_s - apart_s)
            yield Step(own_s, rendered.boundary != boundary), (renderer, rendered, history)

    def _usage(self, rendered: Rendered) -> TokenUsage:
        return TokenUsage(self.counter.prompt(rendered.messages).num_tokens, None, 0, "client")


def _spent(counter: Any) -> float:
    return getattr(counter, "spent_s", 0.0)


def _finish(coroutine: Any) -> Any:
    """The result of a coroutine that waits for nothing; an event loop would cost more than a renderer."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    finally:
        coroutine.close()
    return asyncio.run(_refuse())


async def _refuse() -> None:
    raise RuntimeError("a renderer waited for something besides auxiliary calls")


def clear_caches() -> None:
    """Empty every process-wide cache that a renderer can use; loaded runs and hindsight are not part of a step."""
    for name, module in list(sys.modules.items()):
        if name.startswith("workers.") and not name.startswith(("workers.benchmarks", "workers.policies")):
            for value in list(vars(module).values()):
                clear = getattr(value, "cache_clear", None)
                if callable(clear):
                    clear()


def joined(tasks: Sequence[Task], num_turns: int) -> Task:
    """The runs of `tasks` one behind the other as one run of `num_turns` turns."""
    steps = [step for task in tasks if task.run is not None for step in task.run.steps]
    assert tasks[0].run is not None
    run = RecordedRun(tasks[0].run.opening, tuple(steps[:num_turns]), "neutral")
    return Task("joined", tasks[0].statement, "joined", run)


def history_chars(task: Task) -> int:
    """Characters of all replies and observations."""
    assert task.run is not None
    shown = sum(len(observation.shown) for step in task.run.steps for observation in step.observations)
    return shown + sum(len(step.assistant.content) for step in task.run.steps)


def report(name: str, tasks: Sequence[Task], path: Path) -> str:
    """One line of the table."""
    bench = Bench(name, path)
    bench.steps(tasks[0])  # imports and first-use costs
    steps = [step for task in tasks for step in bench.steps(task)]
    times_ms = sorted(step.own_s * 1e3 for step in steps)
    mean_ms = statistics.fmean(times_ms)
    advances = [step.own_s * 1e3 for step in steps if step.is_advance]
    long = bench.steps(joined(tasks, max(GROWTH_AT)))
    growth = [_median_ms(long[max(0, at - _WINDOW) : at]) for at in GROWTH_AT]
    task = joined(tasks, 250)
    held = bench.held_bytes(task) / history_chars(task)
    verdict = "" if mean_ms < target_ms(name) else f"  over {target_ms(name)} ms"
    advance = f"{statistics.fmean(advances):9.4f}" if advances else f"{'-':>9}"
    figures = "".join(f"{value:9.4f}" for value in growth)
    p99_ms = times_ms[len(times_ms) * 99 // 100]
    return f"{name:20}{mean_ms:9.4f}{p99_ms:9.4f}{advance}{figures}{held:9.2f}{verdict}"


def _median_ms(steps: Sequence[Step]) -> float:
    """Of the steps that move no boundary; of all where it slides at every step."""
    return (
        statistics.median([step.own_s for step in steps if not step.is_advance] or [step.own_s for step in steps]) * 1e3
    )


def main() -> int:
    """Print one line per renderer."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", nargs="?", type=Path, default=RECORDED_RUNS)
    parser.add_argument("--only", default=",".join(RENDERERS), help="renderers, by commas")
    arguments = parser.parse_args()
    if not arguments.file.is_file():
        print(f"no recorded runs at {arguments.file}; give a neutral JSONL file", file=sys.stderr)
        return 2
    names = arguments.only.split(",")
    if unknown := set(names) - set(RENDERERS):
        print(f"no renderer {', '.join(sorted(unknown))}; there are: {', '.join(RENDERERS)}", file=sys.stderr)
        return 2
    tasks = Recorded(path=str(arguments.file), min_steps=5).tasks()
    num_steps = sum(len(task.run.steps) for task in tasks if task.run is not None)
    print(f"{len(tasks)} runs, {num_steps} steps; own CPU ms per step, token counting apart, hindsight 0.6")
    heads = ("mean", "p99", "advance", *(f"at {at}" for at in GROWTH_AT), "held")
    print(f"{'renderer':20}{''.join(f'{head:>9}' for head in heads)}")
    for name in names:
        print(report(name, tasks, arguments.file), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

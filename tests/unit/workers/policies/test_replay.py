"""The replay policy: what is pinned, what is injected, and for whom."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from serving.calls import CallResult, EngineTimings, FinishReason, Message, TokenUsage
from serving.tokens import SplitterCounter
from workers import errors
from workers.benchmarks.recorded import Recorded
from workers.history import History, Rendered, Turn
from workers.interfaces import Proposal, Reply, SignalRequest, Task
from workers.policies.replay import GeneratedIds, Replay, StaleSource
from workers.policies.scripted import NO_COMMAND, Scripted
from workers.streams import SeededStreams

FIXTURES = Path(__file__).resolve().parents[3] / "fixtures" / "trajectories"
COUNTER = SplitterCounter()
REFOLD = SignalRequest("stale", 3)


def task(name: str) -> Task:
    """The first task of a fixture."""
    return Recorded(path=str(FIXTURES / name)).tasks()[0]


def started(policy: Replay, of: Task, signals: SignalRequest | None = REFOLD, seed: int = 0) -> Replay:
    """The policy, started."""
    streams = SeededStreams(seed=seed, replicate=1, benchmark="recorded", task_id=of.task_id)
    policy.start(task=of, signals=signals, counter=COUNTER, streams=streams)
    return policy


def result(message: Message) -> CallResult:
    """A finished call."""
    return CallResult(message, TokenUsage(1, 0, 1, "engine"), EngineTimings(), 0.0, 0.0, 0.0, FinishReason.stop)


def walk(policy: Replay | Scripted, opening: tuple[Message, ...], num_steps: int) -> list[tuple[Proposal, Reply]]:
    """Propose and interpret `num_steps` replies, with empty outputs."""
    history = History(opening)
    found = []
    for index in range(1, num_steps + 1):
        proposal = policy.propose(history, Rendered(()))
        assert proposal.pinned is not None
        reply = policy.interpret(history, result(Message("assistant", "what a real server generated instead")))
        found.append((proposal, reply))
        history.append(Turn(index, reply.message, reply.actions, ()))
    return found


def test_without_signals_the_recording_is_replayed_as_it_is() -> None:
    """base asks nothing: the recorded message, its ids and its recorded length, and no source of signals."""
    of = task("mini_v2.traj.json")
    assert of.run is not None
    policy = started(Replay(), of, signals=None)
    steps = walk(policy, of.run.opening, 3)
    assert [reply.message for _, reply in steps] == [step.assistant for step in of.run.steps]
    assert [proposal.pinned.num_tokens for proposal, _ in steps if proposal.pinned] == [20, 30, 15]
    assert [reply.actions for _, reply in steps] == [step.actions for step in of.run.steps]
    assert policy.signals_source == "none"
    assert policy.is_pinned


def test_hindsight_adds_the_lines_and_their_tokens() -> None:
    """Two lines are written before the content; completion tokens rise by their count; the source is stored."""
    of = task("mini_v2.traj.json")
    assert of.run is not None
    policy = started(Replay(coverage=1.0), of)
    (first, reply), (second, _), _ = walk(policy, of.run.opening, 3)
    lines = "PROGRESS: Let me find the file.\nSTALE: -\n"
    assert reply.message.content == lines + "Let me find the file. It should be small."
    assert reply.message.tool_calls == of.run.steps[0].assistant.tool_calls
    assert first.pinned is not None
    assert first.pinned.num_tokens == 20 + COUNTER.count_text(lines)
    assert second.pinned is not None
    assert second.pinned.message.content.startswith("PROGRESS: running: cat sums.py\nSTALE: ")
    assert policy.signals_source == "hindsight"


@pytest.mark.parametrize("source", [StaleSource.none, StaleSource.recorded])
def test_other_sources_add_nothing(source: StaleSource) -> None:
    """With `none` and `recorded` replies stay as recorded; which one it was is stored."""
    of = task("mini_v2.traj.json")
    assert of.run is not None
    policy = started(Replay(stale=source), of)
    assert [reply.message for _, reply in walk(policy, of.run.opening, 3)] == [s.assistant for s in of.run.steps]
    assert policy.signals_source == source.value


def test_other_kinds_of_signals_get_nothing() -> None:
    """A renderer that asks for something else than stale lines finds the recording as it is."""
    of = task("mini_v2.traj.json")
    policy = started(Replay(), of, SignalRequest("status", 3))
    assert policy.signals_source == "none"


def test_generated_ids() -> None:
    """`recorded` gives the ids of the next prompt's message, never more than are generated; `opaque` gives none."""
    of = task("neutral.jsonl")
    assert of.run is not None
    ((first, _), *_) = walk(started(Replay(), of, None), of.run.opening, 1)
    ids = COUNTER.reply_ids(of.run.steps[0].assistant)
    assert first.pinned is not None
    assert first.pinned.ids is not None
    assert first.pinned.num_tokens == 9
    assert len(ids) > 9
    assert np.array_equal(first.pinned.ids, ids[:9])
    opaque = Replay(generated=GeneratedIds.opaque)
    ((first, _), *_) = walk(started(opaque, of, None), of.run.opening, 1)
    assert first.pinned is not None
    assert first.pinned.ids is None


def test_lengths_that_were_not_recorded_are_counted() -> None:
    """A run without usage generates what the counter finds in the reply."""
    of = task("bare_list.json")
    assert of.run is not None
    ((first, _), *_) = walk(started(Replay(), of, None), of.run.opening, 1)
    assert first.pinned is not None
    assert first.pinned.num_tokens == len(COUNTER.reply_ids(of.run.steps[0].assistant))


def test_format_errors_tell_the_recorded_text() -> None:
    """A recorded step without a command gives no action and the text the agent was shown."""
    of = task("mini_v1.traj.json")
    assert of.run is not None
    _, (_, reply), _ = walk(started(Replay(), of, None), of.run.opening, 3)
    assert (reply.actions, reply.error) == ((), "Give exactly one block.")


def test_a_finished_recording_ends_the_session() -> None:
    """A run whose last reply had no command ends at the next proposal, as the recording ended."""
    of = task("lmcache.jsonl")
    assert of.run is not None
    policy = started(Replay(), of, None)
    history = History(of.run.opening)
    for index, step in enumerate(of.run.steps, start=1):
        history.append(Turn(index, step.assistant, step.actions, step.observations))
    with pytest.raises(errors.StepLimit, match="ends after 3 steps"):
        policy.propose(history, Rendered(()))


def test_draws_are_equal_over_arms_and_windows() -> None:
    """Which steps are named depends on seed and task alone: k=3 and k=5 name the same steps where both are in reach."""
    of = Recorded(path=str(FIXTURES / "swe_agent.traj")).tasks()[0]
    assert of.run is not None
    contents = [
        [reply.message.content for _, reply in walk(started(Replay(), of, REFOLD, seed), of.run.opening, 3)]
        for seed in (1, 1, 2)
    ]
    assert contents[0] == contents[1]


def test_user_mistakes_are_one_line() -> None:
    """Wrong shares and limits, tasks without a run, replies over the limit and text-less runs are refused."""
    with pytest.raises(errors.ConfigurationError, match="policy.coverage=1.5"):
        Replay(coverage=1.5)
    with pytest.raises(errors.ConfigurationError, match="max_completion_tokens=0"):
        Replay(max_completion_tokens=0)
    with pytest.raises(errors.ConfigurationError, match="no recorded run"):
        started(Replay(), Task("t", "s", "d"))
    with pytest.raises(errors.ConfigurationError, match="step 2 of task made__up-1 generated 30 tokens"):
        started(Replay(max_completion_tokens=25), task("mini_v2.traj.json"))
    with pytest.raises(errors.ConfigurationError, match="only renderer=base"):
        started(Replay(), task("weka.json"))
    started(Replay(), task("weka.json"), None)


def test_scripted_replies() -> None:
    """Replies come in order, one block is the command, the list's end is a step limit; an empty list is refused."""
    policy = Scripted(replies=["Look.\n```bash\nls\n```", "no block"])
    streams = SeededStreams(seed=0, replicate=1, benchmark="b", task_id="t")
    policy.start(task=Task("t", "s", "d"), signals=None, counter=COUNTER, streams=streams)
    history = History(())
    proposal = policy.propose(history, Rendered(()))
    assert proposal.pinned is not None
    assert policy.interpret(history, result(proposal.pinned.message)).actions[0].command == "ls"
    assert policy.interpret(history, result(Message("assistant", "no block"))).error == NO_COMMAND
    history.append(Turn(1, proposal.pinned.message, (), ()))
    history.append(Turn(2, proposal.pinned.message, (), ()))
    with pytest.raises(errors.StepLimit, match="2 replies"):
        policy.propose(history, Rendered(()))
    with pytest.raises(errors.ConfigurationError, match="policy.replies"):
        Scripted().start(task=Task("t", "s", "d"), signals=None, counter=COUNTER, streams=streams)

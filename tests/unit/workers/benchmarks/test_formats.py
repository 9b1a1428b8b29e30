"""One hand-made file per trajectory format, read by hand beside it (tests/fixtures/trajectories)."""

from __future__ import annotations

from pathlib import Path

import pytest

from serving.calls import Message
from serving.tokens import SplitterCounter
from workers.benchmarks.formats.common import FORMAT_LIST_ITEM, framed
from workers.benchmarks.formats.lengths import placeholder
from workers.benchmarks.trajectory_files import load_file
from workers.history import Action, Observation
from workers.interfaces import RecordedRun

FIXTURES = Path(__file__).resolve().parents[3] / "fixtures" / "trajectories"


def runs(name: str) -> list[RecordedRun]:
    """The runs of one fixture."""
    loaded = load_file(FIXTURES / name)
    assert loaded is not None
    return [item.run for item in loaded]


def shown(run: RecordedRun) -> list[list[str]]:
    """What every step showed."""
    return [[observation.shown for observation in step.observations] for step in run.steps]


def test_mini_swe_agent_v2_tool_calls() -> None:
    """Replies, parallel commands, usage and times; the exit message is the submission and is never shown."""
    (run,) = runs("mini_v2.traj.json")
    assert run.opening[0] == Message("system", "You use a shell.")
    assert run.opening[1].role == "user"
    assert [len(step.actions) for step in run.steps] == [1, 2, 1]
    assert run.steps[1].actions == (Action("cat sums.py", "c2"), Action("ls", "c3"))
    assert run.steps[0].observations[0] == Observation(
        body="./sums.py:3:total = 1",
        head="<returncode>0</returncode>\n<output>\n",
        tail="\n</output>",
        returncode=0,
        tool_call_id="c1",
        num_output_chars=22,
    )
    assert run.steps[0].assistant.reasoning == "hidden"
    assert [step.tool_s for step in run.steps] == [0.25, 1.0, None]
    usage = [(s.num_prompt_tokens, s.num_completion_tokens, s.num_cached_tokens) for s in run.steps]
    assert usage == [(50, 20, 0), (90, 30, 64), (160, 15, 128)]
    assert [step.kind for step in run.steps] == ["search", "read", "submit"]
    assert (run.submission, run.exit_status) == ("diff --git a/sums.py b/sums.py\n", "Submitted")


def test_mini_swe_agent_v2_dropped_reply() -> None:
    """A reply mini could not parse is not recorded; its error message stays behind the output before it."""
    (run,) = runs("mini_v2.traj.json")
    assert shown(run)[1] == [
        "<returncode>0</returncode>\n<output>\ndef add(xs):\n    total = 1\n    return total + sum(xs)\n</output>",
        "<returncode>0</returncode>\n<output>\n</output>\nTool call error: no command.",
    ]


def test_mini_swe_agent_v1_text() -> None:
    """Two blocks are a format error, a step without command; the closing LimitsExceeded is not shown."""
    (run,) = runs("mini_v1.traj.json")
    assert [step.actions for step in run.steps] == [
        (Action("cat sums.py"),),
        (),
        (Action("nl -ba sums.py | sed -n '1,3p'"),),
    ]
    assert shown(run)[1] == ["Give exactly one block."]
    assert shown(run)[2] == ["<returncode>0</returncode>\n<output>\n     1\ttotal = 1\n</output>"]
    assert (run.submission, run.exit_status) == (None, "LimitsExceeded")
    assert run.steps[1].kind == "none"


def test_a_newer_version_is_read_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Forks write other versions behind the same prefix: they are read, and said."""
    file = tmp_path / "fork.json"
    file.write_text((FIXTURES / "mini_v2.traj.json").read_text().replace("agent-1.1", "agent-1.2"))
    loaded = load_file(file)
    assert loaded is not None
    assert loaded[0].run.steps == runs("mini_v2.traj.json")[0].steps
    assert "mini-swe-agent-1.2 is newer" in caplog.text


def test_bare_message_list() -> None:
    """The user message behind a submitting command is the submission."""
    (run,) = runs("bare_list.json")
    assert len(run.steps) == 2
    assert run.submission == "diff --git a/x b/x\n"
    assert shown(run) == [["<returncode>0</returncode>\n<output>\nhello\n</output>"], [""]]


def test_swe_agent_trajectory() -> None:
    """The demonstration is left out; the body is the tool's output, the tail SWE-agent's own lines."""
    (run,) = runs("swe_agent.traj")
    assert [message.content for message in run.opening] == ["SETTING: a shell.", "ISSUE: off by one."]
    tail = "\n(Open file: n/a)\n(Current directory: /made_up)\nbash-$"
    first, second, _ = (step.observations[0] for step in run.steps)
    assert (first.body, first.tail) == ("[File: sums.py (2 lines total)]\n1:total = 1\n2:", tail)
    assert (second.body, second.tail) == ("Your command ran and printed nothing.", tail)
    assert [step.tool_s for step in run.steps] == [0.5, 0.25, 0.1]
    assert run.submission == "diff --git a/sums.py b/sums.py\n"
    loaded = load_file(FIXTURES / "swe_agent.traj")
    assert loaded is not None
    assert loaded[0].instance_id == "made__up-3"


def test_atif() -> None:
    """Results are paired by call id, other tools become `name {arguments}`, a later user message follows its output."""
    (run,) = runs("atif.json")
    first, last = run.steps
    assert first.actions == (Action("cat sums.py", "a"), Action('view {"path": "x.png"}', "b"))
    assert [o.body for o in first.observations] == ["total = 1", "an image"]
    assert first.observations[1].shown == "an image\nPlease hurry."
    assert (first.num_prompt_tokens, first.num_completion_tokens, first.num_cached_tokens) == (40, 12, 8)
    assert (first.tool_s, first.assistant.reasoning) == (0.5, "hidden")
    assert last.assistant.content == "Done."
    assert run.submission == ""


def test_lmcache_calls() -> None:
    """Calls are ordered by time stamp; what the prompt grew by is the observation; the last output is not recorded."""
    (run,) = runs("lmcache.jsonl")
    assert run.opening == (Message("user", "Fix it."),)
    assert [step.actions for step in run.steps] == [(Action("ls"),), (Action("cat a.py"),), ()]
    assert [step.observations[0].body for step in run.steps] == ["a.py", "x = 1", ""]
    assert run.submission is None


def test_neutral_lines() -> None:
    """One run a line; a step without an action is a format error; a negative duration is not reported."""
    first, second = runs("neutral.jsonl")
    assert [step.kind for step in first.steps] == ["read", "none", "submit"]
    assert first.steps[0].assistant.content == "Look at it.\n\n```bash\ncat a.py\n```"
    assert [step.tool_s for step in first.steps] == [0.25, None, None]
    assert (first.submission, second.submission) == ("", None)
    assert second.opening == (Message("user", "Look."),)


def prompts(run: RecordedRun) -> list[tuple[Message, ...]]:
    """The messages of every prompt of a replay in full."""
    messages: list[Message] = list(run.opening)
    found = []
    for step in run.steps:
        found.append(tuple(messages))
        messages += [step.assistant, Message("user", step.observations[0].shown)]
    return found


@pytest.mark.parametrize(("name", "lengths"), [("weka.json", [[200, 300, 310], [150]]), ("mooncake.jsonl", [])])
def test_length_only_traces_have_the_recorded_prompt_lengths(name: str, lengths: list[list[int]]) -> None:
    """With the splitter counter every prompt has the recorded length (its own opening overhead aside)."""
    counter = SplitterCounter(opening_overhead_tokens=0)
    found = runs(name)
    for run in found:
        assert not run.has_text
        counted = [counter.prompt(messages).num_tokens for messages in prompts(run)]
        # A prompt that grew by 10 tokens still holds two message frames: at most a few tokens more than recorded.
        assert counted == pytest.approx([step.num_prompt_tokens for step in run.steps], abs=2)
    if lengths:
        assert [[step.num_prompt_tokens for step in run.steps] for run in found] == lengths


def test_weka_chains_and_pauses() -> None:
    """A prompt that does not continue the one before begins a new run; subagents are left out."""
    first, second = runs("weka.json")
    assert [step.tool_s for step in first.steps] == [2.5, 1.0, 0.0]
    assert [step.num_completion_tokens for step in first.steps] == [10, 20, 30]
    # The second chain opens with blocks 1 and 2 of the trace, 64 words each, as the first does.
    shared = " ".join(first.opening[0].content.split()[:128])
    assert second.opening[0].content.startswith(shared)
    assert second.opening[0].content.split()[128:] != first.opening[0].content.split()[128:143]


def test_mooncake_sessions_share_blocks() -> None:
    """Session b opens with block 0 (512 tokens) of session a; the request without a session is a run of its own."""
    a, b, single = runs("mooncake.jsonl")
    assert [len(run.steps) for run in (a, b, single)] == [2, 1, 1]
    words_a, words_b = a.opening[0].content.split(), b.opening[0].content.split()
    assert words_a[:512] == words_b[:512]
    assert words_a[512:] != words_b[512 : len(words_a)]
    assert a.steps[0].tool_s == 0.25


def test_placeholder_words_are_one_token_each() -> None:
    """Every word is one token for the splitter, and shorter texts are prefixes of longer ones."""
    text = placeholder("seed", 300)
    assert SplitterCounter().count_text(text) == 300
    assert text.startswith(placeholder("seed", 100))


@pytest.mark.parametrize(
    "text",
    [
        "<returncode>1</returncode>\n<output>\na\n</output>\n</output>",
        "<returncode>0</returncode>\n<output>\n</output>",
        "<returncode>0</returncode>\n<output>\nno line end</output>",
        "<exception>timed out</exception>\n<returncode>-1</returncode>\n<output>\npart\n</output>",
        "<returncode>0</returncode>\n<warning>\nToo long.\n</warning><output_head>\nab\n</output_head>\n"
        "<elided_chars>\n3 characters elided\n</elided_chars>\n<output_tail>\nyz\n\n</output_tail>",
        "no frame at all",
        "",
    ],
)
def test_frames_split_without_loss(text: str) -> None:
    """Head, body and tail together are the recorded text."""
    assert framed(text).shown == text


def test_frames_of_truncated_and_failed_outputs() -> None:
    """The return code is read; a truncated output keeps its marks in the body."""
    failed = framed("<exception>timed out</exception>\n<returncode>-1</returncode>\n<output>\npart\n</output>")
    assert (failed.returncode, failed.body) == (-1, "part")
    cut = framed(
        "<returncode>0</returncode>\n<warning>\nToo long.\n</warning><output_head>\nab\n</output_head>\n"
        "<output_tail>\nyz\n</output_tail>"
    )
    assert cut.body == "ab\n</output_head>\n<output_tail>\nyz"


def test_the_format_item_is_the_first_of_the_list() -> None:
    """The item that ReFold replaces is found in both templates of mini-swe-agent, with its number, without item 2."""
    item = "1. Include a THOUGHT section explaining your reasoning and what you're trying to accomplish"
    for name in ("mini_v1.traj.json", "mini_v2.traj.json"):
        match = FORMAT_LIST_ITEM.search(runs(name)[0].opening[1].content)
        assert match is not None
        assert match["item"] == item

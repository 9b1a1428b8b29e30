"""memory appends the chunks of earlier outputs that match the newest reply best."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import bm25s
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.calls import Message
from tests.unit.workers.renderers.composed_histories import begun, check_chat, session, sized_turn
from tests.unit.workers.renderers.histories import history_of, random_turns, recorded_runs, recorded_turns
from workers.errors import ConfigurationError
from workers.history import Form, Turn
from workers.renderers.lexical_scores import words_of
from workers.renderers.memory import HEADING, Memory, block_text, query_of
from workers.renderers.memory_index import Chunk, ChunkIndex
from workers.renderers.refold import Refold

COLORS = "red green blue yellow purple orange black white".split()


def about(label: int, body: str, command: str = "cat a", reply: str = "next") -> Turn:
    """A turn with this output and this reply."""
    return replace(sized_turn(label, body=body, command=command), assistant=Message("assistant", reply))


def block_of(renderer: Memory, turns: list[Turn]) -> str:
    """The block in the prompt after these turns, empty without one."""
    last = renderer.render(history_of(*turns)).segments[-1]
    return last.messages[0].content if last.form is Form.memory else ""


def test_the_chunk_that_shares_words_with_the_newest_reply_is_shown() -> None:
    """One of three outputs has the word; it is labelled with its command, step and lines, and nothing else is shown."""
    turns = [
        about(0, "apples and pears", "cat fruit"),
        about(1, "the parser reads dialects", "cat parser.py"),
        about(2, "nothing here", "ls", reply="Now the parser."),
    ]
    assert block_of(begun(Memory(), 1000), turns) == (
        f"{HEADING}\n[cat parser.py] step 1, lines 1-1:\nthe parser reads dialects"
    )


def test_the_newest_output_is_not_retrieved() -> None:
    """It stands right before the block anyway; without an earlier match there is no block."""
    assert block_of(begun(Memory(), 1000), [about(0, "pears"), about(1, "the parser", reply="the parser")]) == ""
    assert block_of(begun(Memory(), 1000), [about(0, "the parser", reply="the parser")]) == ""
    assert block_of(begun(Memory(), 1000), []) == ""


def test_chunks_have_forty_lines_and_at_most_three_are_shown() -> None:
    """An output of 200 lines with the word in every chunk gives three chunks of 40 lines."""
    lines = [f"line {number} parser" for number in range(1, 201)]
    block = block_of(begun(Memory(), 1000), [about(0, "\n".join(lines)), about(1, "x", reply="parser")])
    labels = [line for line in block.split("\n") if line.startswith("[cat a]")]
    spans = [tuple(int(end) for end in label.rsplit(" ", 1)[1].rstrip(":").split("-")) for label in labels]
    assert len(spans) == 3
    assert all(last - first == 39 and first % 40 == 1 for first, last in spans)


def test_the_block_has_at_most_6000_characters() -> None:
    """The chunk that no longer fits is cut at a line, and nothing follows it."""
    chunks = [Chunk("cat a", number, 1, tuple("w" * 99 for _ in range(40))) for number in range(3)]
    text = block_text(chunks, 6000)
    assert 5900 < len(text) <= 6000
    assert all(line == "w" * 99 for line in text.split("\n") if line.startswith("w"))
    assert "step 1," in text
    assert "step 2," not in text


def test_the_prompt_before_the_block_is_the_inner_renderers() -> None:
    """The block is the last message and is made anew at every step, so it costs the cache its own length only."""
    turns = [about(label, f"parser {label} " + "z " * 40, reply="the parser") for label in range(8)]
    plain = session(begun(Refold(), 1000), turns)[1]
    _, prompts = session(begun(Memory(inner=Refold()), 1000), turns)
    for before, after in zip(plain[2:], prompts[2:], strict=True):
        assert after.segments[:-1] == before.segments
        assert after.segments[-1].form is Form.memory
        assert (after.boundary, after.num_stubs) == (before.boundary, before.num_stubs)


def test_the_block_can_join_the_newest_output() -> None:
    """merge_previous: no message is added, the newest output's message ends with the block."""
    turns = [about(0, "the parser"), about(1, "x", reply="parser")]
    rendered = begun(Memory(block_role="merge_previous"), 1000).render(history_of(*turns))
    assert rendered.messages[-1].content == f"x\n\n{HEADING}\n[cat a] step 0, lines 1-1:\nthe parser"
    assert [message.role for message in rendered.messages] == ["system", "user", "assistant", "user"] + [
        "assistant",
        "user",
    ]


def test_identifiers_are_searched_whole_and_in_parts() -> None:
    """`as_compatible_data` is found by `compatible data` too; English stop words are not searched."""
    assert words_of("as_compatible_data") == ["as_compatible_data", "compatible", "data"]
    assert words_of("the HTTPServer is in x") == ["httpserver", "http", "server"]


def test_the_command_of_a_tool_call_is_part_of_the_query() -> None:
    """In text formats the command stands in the reply already."""
    assert "grep dialect" in query_of(sized_turn(0, command="grep dialect", tool_call_id="c1"))
    assert "grep dialect" not in query_of(sized_turn(0, command="grep dialect"))


@given(data=st.data())
@settings(max_examples=30, deadline=None)
def test_ranking_is_that_of_a_whole_bm25s_index(data: st.DataObject) -> None:
    """The index over the query's words alone ranks as bm25s over all words; documents without a hit are left out."""
    text = st.lists(st.sampled_from(COLORS), min_size=1, max_size=30)
    documents = data.draw(st.lists(text, min_size=2, max_size=12))
    query = data.draw(st.lists(st.sampled_from(COLORS), min_size=1, max_size=3, unique=True))
    index = ChunkIndex(40)
    for label, words in enumerate(documents):
        index.add(about(label, " ".join(words)))
    reference = bm25s.BM25()
    reference.index(documents, show_progress=False)
    known = [word for word in query if any(word in document for document in documents)]
    scores = reference.get_scores(known) if known else [0.0] * len(documents)
    found = index.best(" ".join(query), len(documents))
    by_label = [float(scores[chunk.label]) for chunk in found]
    assert by_label == sorted(by_label, reverse=True)
    distinct = {tuple(words) for words, score in zip(documents, scores, strict=True) if score > 0}
    assert {chunk.lines for chunk in found} == {(" ".join(words),) for words in distinct}


@given(turns=random_turns(max_turns=20), merges=st.booleans())
@settings(max_examples=30, deadline=None)
def test_pure_and_valid(turns: list[Turn], merges: bool) -> None:
    """Fresh equals cached, chats stay valid, and the block never passes its limit."""

    def make() -> Memory:
        role = "merge_previous" if merges else "user"
        return begun(Memory(max_chars=600, block_role=role, inner=Refold()), 1000)

    history, prompts = session(make(), turns)
    assert make().render(history) == prompts[-1]
    for prompt in prompts:
        check_chat(prompt)
        texts = [part.messages[0].content for part in prompt.segments if part.form is Form.memory]
        assert all(len(text) <= 600 for text in texts)


def test_recorded_runs_get_blocks() -> None:
    """On real outputs nearly every step after the first finds something."""
    runs = recorded_runs()
    if not runs:
        pytest.skip("recorded runs are not here (../shared/trajectories)")
    turns = recorded_turns(runs[0])
    _, prompts = session(begun(Memory(), 16_384), turns)
    found = [prompt.segments[-1].form is Form.memory for prompt in prompts[2:]]
    assert sum(found) > 0.9 * len(found)


@pytest.mark.parametrize("options", [{"num_chunks": 0}, {"max_chars": 10}, {"block_role": "tool"}])
def test_impossible_settings_are_refused(options: dict[str, Any]) -> None:
    """A user's mistake is one line that names the value."""
    with pytest.raises(ConfigurationError, match=next(iter(options))):
        Memory(**options)

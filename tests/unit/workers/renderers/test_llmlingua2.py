"""llmlingua2 drops half of the tokens of long outputs that leave the three newest."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.workers.renderers.composed_histories import begun, check_chat, session, sized_turn
from tests.unit.workers.renderers.histories import command_turn, history_of, random_turns, text_of
from workers.errors import ConfigurationError
from workers.history import Turn, TurnKind
from workers.renderers.llmlingua2 import LlmLingua2
from workers.renderers.llmlingua2_scorers import LlmLingua, RarityScorer, _loaded

LONG = "\n".join(f"value_{number} = compute(alpha, {number})" for number in range(80))


def compressed(text: str, rate: float = 0.5) -> str:
    """What the stand-in scorer leaves of a text."""
    return asyncio.run(RarityScorer().compress(text, rate))


def test_half_of_the_tokens_stay_rare_words_first() -> None:
    """Of `a a a b b c` (six tokens) three stay: c (once) and both b (twice), in their order, with their blanks."""
    assert compressed("a a a b b c") == " b b c"


def test_an_odd_number_is_rounded_half_up() -> None:
    """Of three equally rare words floor(1.5 + 0.5) = 2 stay, the longer before the earlier."""
    assert compressed("one three four") == " three four"
    assert compressed("one two six") == "one two"


def test_words_go_before_numbers_before_marks() -> None:
    """Equally rare: the word, then the number, then the mark."""
    assert compressed("; 17 word", 0.34) == " word"
    assert compressed("; 17 word", 0.67) == " 17 word"


@given(text=st.text(max_size=300), rate=st.sampled_from([0.1, 0.5, 0.9]))
@settings(max_examples=60, deadline=None)
def test_what_stays_is_a_subsequence(text: str, rate: float) -> None:
    """Tokens are dropped, never changed or moved; at rate 1 the text is itself."""
    assert compressed(text, 1.0) == text
    rest = iter(text)
    assert all(character in rest for character in compressed(text, rate))


def test_an_output_is_compressed_when_it_leaves_the_three_newest() -> None:
    """After four long outputs the first is compressed, after five the second too; their frames stay."""
    turns = [command_turn(label, "cat a", LONG) for label in range(5)]
    history, prompts = session(begun(LlmLingua2(), 1000), turns)
    assert [prompt.num_stubs for prompt in prompts] == [0, 0, 0, 0, 1, 2]
    shown = text_of(prompts[-1], 1)
    assert shown.startswith("<returncode>0</returncode>\n<output>\n")
    assert shown.endswith("\n</output>")
    assert shown == turns[0].observations[0].head + compressed(LONG) + turns[0].observations[0].tail
    assert text_of(prompts[-1], 3) == turns[2].observations[0].shown
    assert [memo.data["turn"] for memo in history.all_memos] == [1, 2]


@pytest.mark.parametrize(("num_chars", "num_stubs"), [(1999, 0), (2000, 1)])
def test_only_bodies_of_at_least_2000_characters(num_chars: int, num_stubs: int) -> None:
    """The limit is on the body, not on the frame (appendix D.4)."""
    turns = [command_turn(0, "cat a", LONG[:num_chars]), *(command_turn(label) for label in range(1, 4))]
    assert session(begun(LlmLingua2(), 1000), turns)[1][-1].num_stubs == num_stubs


def test_an_error_text_is_no_output() -> None:
    """Format errors stay as they are."""
    first = replace(sized_turn(0, 1000), actions=(), kind=TurnKind.format_error)
    assert session(begun(LlmLingua2(), 1000), [first, *map(sized_turn, range(1, 5))])[1][-1].num_stubs == 0


def test_the_released_classifier_is_called_as_its_package_wants(monkeypatch: pytest.MonkeyPatch) -> None:
    """One compressor a process, LLMLingua-2 mode, the wanted rate, line ends forced to stay."""
    calls: list[Any] = []

    class PromptCompressor:
        def __init__(self, **settings: Any) -> None:
            calls.append(settings)

        def compress_prompt_llmlingua2(self, texts: list[str], **settings: Any) -> dict[str, Any]:
            calls.append((texts, settings))
            return {"compressed_prompt": "short"}

    monkeypatch.setitem(sys.modules, "llmlingua", SimpleNamespace(PromptCompressor=PromptCompressor))
    _loaded.cache_clear()
    scorer = LlmLingua("the-model", "cpu")
    assert asyncio.run(scorer.compress("long", 0.5)) == "short"
    assert asyncio.run(scorer.compress("long", 0.5)) == "short"
    use = (["long"], {"rate": 0.5, "force_tokens": ["\n"]})
    assert calls == [{"model_name": "the-model", "use_llmlingua2": True, "device_map": "cpu"}, use, use]
    _loaded.cache_clear()


def test_a_missing_package_is_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names the package and the remedy."""
    monkeypatch.setitem(sys.modules, "llmlingua", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'convoy\[llmlingua\]', or scorer=rarity"):
        begun(LlmLingua2(scorer="llmlingua"), 1000)


@given(turns=random_turns(max_turns=16))
@settings(max_examples=30, deadline=None)
def test_pure_and_valid(turns: list[Turn]) -> None:
    """Fresh equals cached, chats stay valid, nothing gets longer."""
    history, prompts = session(begun(LlmLingua2(min_chars=100), 1000), turns)
    assert begun(LlmLingua2(min_chars=100), 1000).render(history) == prompts[-1]
    for prompt in prompts:
        check_chat(prompt)
    full = sum(len(observation.shown) for turn in turns for observation in turn.observations)
    assert sum(len(text_of(prompts[-1], turn.index)) for turn in turns) <= full


def test_a_later_start_hides_earlier_turns() -> None:
    """visible_from is respected: turns before it are not shown and not counted."""
    turns = [command_turn(label, "cat a", LONG) for label in range(6)]
    history, _ = session(begun(LlmLingua2(), 1000), turns)
    rendered = begun(LlmLingua2(), 1000).render(history, visible_from=3)
    assert [segment.first_turn for segment in rendered.segments] == [0, 3, 3, 4, 4, 5, 5, 6, 6]
    assert rendered.num_stubs == 1
    assert history_of(*turns).turns == history.turns


@pytest.mark.parametrize("options", [{"rate": 0.0}, {"keep_recent": -1}, {"scorer": "gpt"}])
def test_impossible_settings_are_refused(options: dict[str, Any]) -> None:
    """A user's mistake is one line that names the value."""
    with pytest.raises(ConfigurationError, match=next(iter(options))):
        LlmLingua2(**options)

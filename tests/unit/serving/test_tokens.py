"""Token counters: prefix-stable splitting, frames, prompts, caches, calibration."""

from __future__ import annotations

import hashlib
import itertools
import json
import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scripts.bench_tokens import agreement, recorded_runs
from serving.calls import Message, ToolCall
from serving.errors import TokenCounterError
from serving.token_cache import MessageCache
from serving.token_splitter import SplitRules, count_pieces, piece_ids, piece_starts
from serving.tokens import REVISION, FramedCounter, SplitterCounter, TokenizerFileCounter

RULES = SplitRules(letters=8, digits=3, spaces=32, tabs=4, newlines=1, punctuation=4, broad=2, joining="_.(")
TEXT = st.text(st.one_of(st.sampled_from(list("abcXYZ019 \t\n_.(:;'\"é中😀")), st.characters()), max_size=120)

# start(user) x 3, then `def`, ` f`, `(x`, `):`, line end, indentation, `return`, ` x`, then end.
GOLDEN = [
    *(2005791744, 2005791745, 2005791746),
    *(1005552872, 779578336, 604860109, 960912748, 1846440201, 1240053726, 1333216225, 1546717149),
    2010259456,
]

OPENING = (Message("system", "Be brief."), Message("user", "Fix the bug in parse()."))
CALL = Message("assistant", "Look first.", tool_calls=(ToolCall("call-1", "bash", '{"command": "ls -la"}'),))
RESULT = Message("tool", "<returncode>0</returncode>", tool_call_id="call-1")


def pieces(text: str) -> list[str]:
    """The pieces of a text as strings."""
    points = np.frombuffer(text.encode("utf-32-le"), dtype=np.uint32)
    starts = [*piece_starts(points, RULES).tolist(), len(text)]
    return [text[a:b] for a, b in itertools.pairwise(starts)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("the quick fox", ["the", " quick", " fox"]),
        ("getHTTPServer", ["get", "HTTPServ", "er"]),
        ("self.name", ["self", ".name"]),
        ("self._name", ["self", "._", "name"]),
        ("a  b", ["a", "  ", "b"]),
        ("    return x", ["    ", "return", " x"]),
        ("1234567", ["123", "456", "7"]),
        ("x = (y)", ["x", " =", " (", "y", ")"]),
        ("f(x)", ["f", "(x", ")"]),
        ("\n\n\t\tif", ["\n", "\n", "\t\t", "if"]),
        ("implementation", ["implemen", "tation"]),
        ("----------", ["----", "----", "--"]),
        ("中文é", ["中", "文", "é"]),
    ],
)
def test_pieces_follow_the_rules(text: str, expected: list[str]) -> None:
    """Case changes, joined spaces, digit groups and cut runs fall where the rules put them."""
    assert pieces(text) == expected


@given(TEXT, st.data())
def test_a_prefix_of_the_text_is_a_prefix_of_the_ids(text: str, data: st.DataObject) -> None:
    """Cutting a text changes no id but that of the piece that was cut."""
    cut = data.draw(st.integers(0, len(text)))
    whole = piece_ids(text, RULES, seed=0, vocab_size=2_000_000_000)
    part = piece_ids(text[:cut], RULES, seed=0, vocab_size=2_000_000_000)
    assert part[:-1].tolist() == whole[: max(0, len(part) - 1)].tolist()
    assert len(part) <= len(whole)


@given(TEXT)
def test_pieces_make_up_the_text_and_equal_pieces_have_equal_ids(text: str) -> None:
    """One id per piece; two positions have the same id exactly when their pieces are the same text."""
    encodable = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    split = pieces(encodable)
    ids = piece_ids(encodable, RULES, seed=0, vocab_size=2**62).tolist()
    assert "".join(split) == encodable
    assert len(ids) == len(split) == count_pieces(encodable, RULES)
    assert len(set(ids)) == len(set(split)) == len(set(zip(ids, split, strict=True)))


def test_ids_depend_on_the_seed_and_stay_in_the_vocabulary() -> None:
    """Another seed gives other ids of the same number; ids lie in [0, vocab_size)."""
    first, second = (piece_ids("some text here", RULES, seed=seed, vocab_size=1000) for seed in (0, 1))
    assert len(first) == len(second) == 3
    assert not np.array_equal(first, second)
    assert first.dtype == np.int64
    assert 0 <= first.min() <= first.max() < 1000


def test_lone_surrogates_are_characters() -> None:
    """A text that is not valid Unicode is counted, not refused."""
    assert count_pieces("a\udc80b", RULES) == 3


def test_a_message_is_frame_content_and_tool_calls() -> None:
    """With 3 + 1 frame tokens, 2 words and a call of 5 frame tokens + name + arguments the count adds up."""
    counter = SplitterCounter(tool_call_tokens=5)
    # Look, first and the full stop are 3 pieces, bash is 1.
    arguments = counter.count_text('{"command": "ls -la"}')
    assert counter.count(CALL) == 3 + 3 + 5 + 1 + arguments + 1
    assert counter.count(Message("user", "two words")) == 3 + 2 + 1
    assert counter.count(Message("tool", "two words", tool_call_id="x")) == 3 + 6 + 2 + 1
    assert counter.count(Message("assistant", "two words", reasoning="one")) == 3 + 1 + 2 + 1


def test_roles_have_different_frames() -> None:
    """The same text said by user and assistant has other start ids, the same content ids."""
    counter = SplitterCounter()
    user, assistant = (counter.encode(Message(role, "hello there")).tolist() for role in ("user", "assistant"))
    assert user[:3] != assistant[:3]
    assert user[3:] == assistant[3:]


def test_a_prompt_is_opening_messages_and_generation_prompt() -> None:
    """num_tokens = opening overhead + the messages + 3 start tokens, and `ids()` has that length."""
    counter = SplitterCounter(opening_overhead_tokens=10)
    prompt = counter.prompt(OPENING)
    assert prompt.num_tokens == 10 + counter.count(OPENING[0]) + counter.count(OPENING[1]) + 3
    assert len(prompt.pieces) == 3
    assert prompt.ids().shape == (prompt.num_tokens,)
    assert counter.prompt(()).num_tokens == 13


def check_prompt_and_reply_begin_the_next_prompt(counter: FramedCounter) -> None:
    """The ids of a prompt and then of its reply begin the next prompt."""
    now = counter.prompt(OPENING).ids().tolist()
    reply = counter.reply_ids(CALL).tolist()
    then = counter.prompt((*OPENING, CALL, RESULT)).ids().tolist()
    assert then[: len(now) + len(reply)] == now + reply
    assert counter.reply_ids(CALL).tolist() == counter.encode(CALL).tolist()[-len(reply) :]


@pytest.mark.parametrize("overhead", [0, 231])
def test_a_prompt_and_its_reply_begin_the_next_prompt(overhead: int) -> None:
    """So a reply that was generated and kept is a cache hit of the next call."""
    check_prompt_and_reply_begin_the_next_prompt(SplitterCounter(opening_overhead_tokens=overhead))


def test_reply_ids_are_for_assistant_messages() -> None:
    """A user message is no reply."""
    with pytest.raises(ValueError, match="assistant"):
        SplitterCounter().reply_ids(OPENING[1])


def test_digests_are_equal_for_equal_prompts_in_every_process() -> None:
    """A fresh process with another hash seed gives the same digest; another message or order gives another."""
    counter = SplitterCounter()
    code = (
        "from serving.calls import Message; from serving.tokens import SplitterCounter;"
        "p = SplitterCounter().prompt((Message('system', 'Be brief.'), Message('user', 'Fix the bug in parse().')));"
        "print(p.digest, p.ids().sum())"
    )
    root = Path(__file__).resolve().parents[3]
    other = subprocess.run(
        [sys.executable, "-c", code], cwd=root, env={"PYTHONHASHSEED": "7"}, capture_output=True, text=True, check=True
    ).stdout.split()
    prompt = counter.prompt(OPENING)
    assert other == [prompt.digest, str(prompt.ids().sum())]
    assert len(prompt.digest) == 32
    changed = [OPENING[::-1], OPENING[:1], (*OPENING, CALL), (OPENING[0], replace(OPENING[1], role="assistant"))]
    assert len({prompt.digest, *(counter.prompt(messages).digest for messages in changed)}) == 5


def test_ids_of_this_revision_are_frozen() -> None:
    """Cache hits of stored cells depend on ids: whoever changes this list must raise `serving.tokens.REVISION`."""
    ids = SplitterCounter().encode(Message("user", "def f(x):\n    return x")).tolist()
    assert (REVISION, ids) == (1, GOLDEN)


def test_the_name_is_identity() -> None:
    """Equal settings have equal names, every other setting another name."""
    assert SplitterCounter().name == SplitterCounter().name
    others = [SplitterCounter(seed=1), SplitterCounter(letters=7), SplitterCounter(opening_overhead_tokens=0)]
    assert len({SplitterCounter().name, *(other.name for other in others)}) == 4


def test_equal_messages_share_one_read_only_array() -> None:
    """A message built anew is found by content, in every counter of that name; its ids cannot be written."""
    first = SplitterCounter().encode(Message("user", "shared between cells"))
    assert SplitterCounter().encode(Message("user", "shared between " + "cells")) is first
    assert not first.flags.writeable


def test_a_counter_travels_without_its_cache() -> None:
    """A pickled counter is a few hundred bytes whatever it has counted, and counts the same."""
    counter = SplitterCounter()
    message = Message("user", "words " * 10_000)
    counted = counter.count(message)
    data = pickle.dumps(counter)
    assert len(data) < 1000
    assert pickle.loads(data).count(message) == counted


def test_the_cache_is_bounded_and_never_wrong() -> None:
    """With room for about ten entries a thousand messages come out right, forwards and again."""
    cache = MessageCache(max_bytes=20 * 700)
    messages = [Message("user", f"message {number}") for number in range(1000)]

    def encode(message: Message) -> np.ndarray:
        return np.array([int(message.content.split()[1])], dtype=np.int64)

    for _ in range(2):
        for number, message in enumerate(messages):
            assert cache.get(message, encode).ids.tolist() == [number]
    assert [entry.ids[0] for entry in cache.get_all(messages, encode)] == list(range(1000))
    assert len(cache._young) + len(cache._old) < 50


def test_an_address_used_again_is_not_mistaken() -> None:
    """Short-lived messages at reused addresses get their own ids."""
    counter = SplitterCounter()
    for number in range(2000):
        ids = counter.encode(Message("user", f"w{number}"))
        assert ids.tolist() == counter._encode(Message("user", f"w{number}")).tolist()


@pytest.mark.parametrize(
    "setting", [{"letters": 0}, {"spaces": 501}, {"message_start_tokens": 0}, {"tool_call_tokens": -1}]
)
def test_impossible_settings_are_refused(setting: dict[str, int]) -> None:
    """A setting out of range is one line that names it or its group."""
    with pytest.raises(TokenCounterError, match=r"run|token"):
        SplitterCounter(**setting)


def test_base_replay_of_recorded_runs_gives_their_prompt_tokens(shared_dir: Path) -> None:
    """Over every call with recorded usage: bias at most 1 %, median error at most 5 %, about 3.4 characters a token."""
    runs = recorded_runs(shared_dir / "trajectories" / "original")
    counter = SplitterCounter()
    calls = [call for run in runs for call in run]
    assert len(calls) > 4000
    result = agreement(
        [counter.prompt(call.before).num_tokens for call in calls], [call.num_prompt_tokens for call in calls]
    )
    assert abs(result.total_bias) <= 0.01
    assert abs(result.mean_error) <= 0.01
    assert result.median_abs_error <= 0.05


@pytest.fixture
def tokenizer_file(tmp_path: Path) -> Path:
    """A word-level tokenizer with two special tokens, as a tokenizer.json of the `tokenizers` library."""
    tokenizers = pytest.importorskip("tokenizers")
    words = ["[UNK]", "<|im_start|>", "<|im_end|>", "Be", "brief", ".", "user", "system", "assistant", "tool"]
    tokenizer = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="[UNK]")
    )
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    path = tmp_path / "tokenizer.json"
    tokenizer.save(str(path))
    return path


def file_counter(path: Path, **settings: str) -> TokenizerFileCounter:
    """A counter of a file with the digest it asks for."""
    digest = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    return TokenizerFileCounter(path=str(path), content_digest=digest, **settings)


def test_a_real_tokenizer_counts_with_its_own_ids(tokenizer_file: Path) -> None:
    """The system's "Be brief." is start 1, system 7, Be 3, brief 4, . 5, end 2."""
    counter = file_counter(tokenizer_file)
    assert counter.encode(OPENING[0]).tolist() == [1, 7, 3, 4, 5, 2]
    assert counter.count_text("Be brief.") == 3
    assert counter.prompt(OPENING[:1]).ids().tolist() == [1, 7, 3, 4, 5, 2, 1, 8]
    check_prompt_and_reply_begin_the_next_prompt(counter)


def test_a_real_tokenizer_is_named_by_content_not_by_path(tokenizer_file: Path, tmp_path: Path) -> None:
    """A copy of the file has the same name; another frame or another content has another."""
    copy = tmp_path / "copy.json"
    copy.write_bytes(tokenizer_file.read_bytes())
    name = file_counter(tokenizer_file).name
    assert file_counter(copy).name == name
    assert file_counter(copy, message_end="").name != name
    document = json.loads(tokenizer_file.read_text())
    document["model"]["vocab"]["new"] = 99
    copy.write_text(json.dumps(document))
    assert file_counter(copy).name != name


def test_a_missing_or_changed_tokenizer_file_is_one_line(tokenizer_file: Path) -> None:
    """No path, no file, no digest or another digest are refused when the counter is built; the digest is told."""
    digest = hashlib.sha256(tokenizer_file.read_bytes()).hexdigest()[:16]
    with pytest.raises(TokenCounterError, match="path is empty"):
        TokenizerFileCounter()
    with pytest.raises(TokenCounterError, match=r"nowhere\.json: no such file"):
        TokenizerFileCounter(path="nowhere.json")
    for digest_given in ("", "0" * 16):
        with pytest.raises(TokenCounterError, match=f"set content_digest={digest}"):
            TokenizerFileCounter(path=str(tokenizer_file), content_digest=digest_given)


def test_a_foreign_tokenizer_file_is_one_line(tmp_path: Path) -> None:
    """A file that is no tokenizer names the path and what it should be."""
    pytest.importorskip("tokenizers")
    path = tmp_path / "tokenizer.json"
    path.write_text("{}")
    with pytest.raises(TokenCounterError, match="not a tokenizer.json file"):
        file_counter(path).count_text("x")


@settings(max_examples=30)
@given(st.lists(st.tuples(st.sampled_from(["user", "assistant", "tool"]), TEXT), max_size=6))
def test_counts_add_up_for_any_messages(turns: list[tuple[str, str]]) -> None:
    """For any messages num_tokens is the overhead, the counts and the generation prompt."""
    counter = SplitterCounter()
    messages = [Message(role, text) for role, text in turns]
    prompt = counter.prompt(messages)
    assert prompt.num_tokens == 231 + sum(map(counter.count, messages)) + 3 == len(prompt.ids())

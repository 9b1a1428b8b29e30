"""prune keeps the lines of reads and searches that bear on the agent's question, when they arrive."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import httpx
import pytest
from hypothesis import given, settings

from serving.calls import Message
from serving.clock import VirtualClock, run_virtual
from tests.unit.workers.renderers.composed_histories import Auxiliary, begun, check_chat, session, sized_turn
from tests.unit.workers.renderers.histories import (
    command_turn,
    history_of,
    random_turns,
    recorded_runs,
    recorded_turns,
    text_of,
)
from workers.errors import ConfigurationError
from workers.history import Turn, TurnKind
from workers.interfaces import HarnessTemplate
from workers.renderers.prune import FOCUS, Prune
from workers.renderers.prune_lines import capped, pruned_text
from workers.renderers.prune_scorers import HttpScorer, LexicalScorer, ScorerError

LONG = [f"line {number:02} of the file, which is thirty" for number in range(1, 21)]
QUESTION = "How does the parser choose a dialect?"
BODY = "\n".join([*LONG, "def choose_dialect(parser):", "    return parser.dialect", *LONG])


def asked(turn: Turn, question: str = QUESTION) -> Turn:
    """The turn of a live agent that wrote this question."""
    signals = Prune().read_reply(
        Message("assistant", f"I look.\n<context_focus_question>{question}</context_focus_question>")
    )
    return replace(turn, signals=signals, may_remind=True)


def pruned(renderer: Prune, turn: Turn) -> str:
    """The observation of a first turn as it is shown."""
    return text_of(session(begun(renderer, 1000), [turn])[1][-1], 1)


def test_gaps_become_one_note() -> None:
    """Lines 1 and 20 of 20 kept: the 18 between them become `(filtered 18 lines)`."""
    assert pruned_text("\n".join(LONG), [1, 20]) == f"{LONG[0]}\n(filtered 18 lines)\n{LONG[19]}"


def test_a_single_line_between_two_kept_ones_stays() -> None:
    """Lines 1, 3 kept: line 2 stays too; the rest is one gap at the end."""
    assert pruned_text("\n".join(LONG), [1, 3]) == "\n".join([*LONG[:3], "(filtered 17 lines)"])


def test_blank_lines_are_dropped_and_short_gaps_stay() -> None:
    """A gap of 18 characters is no longer than the note, one of 19 is."""
    assert pruned_text(f"keep\n\naaaaaaaaa\nbbbbbbbbb\n{'k' * 40}", [1, 5]) == f"keep\naaaaaaaaa\nbbbbbbbbb\n{'k' * 40}"
    assert pruned_text(f"keep\n\naaaaaaaaaa\nbbbbbbbbb\n{'k' * 40}", [1, 5]) == f"keep\n(filtered 3 lines)\n{'k' * 40}"


def test_nothing_is_made_longer() -> None:
    """Everything kept gives the text itself, and so does a gap that is no longer than its note."""
    assert pruned_text("a\nb\nc", [1, 2, 3]) == "a\nb\nc"
    assert pruned_text("ab\ncd", []) == "ab\ncd"
    assert pruned_text("\n".join(LONG), range(1, 21)) == "\n".join(LONG)


def test_what_is_still_longer_keeps_its_first_and_last_5000() -> None:
    """Appendix B.1; 10,000 characters stay whole."""
    text = "a" * 5000 + "b" * 3000 + "c" * 5000
    cut = capped(text, 10_000)
    assert cut.startswith("a" * 5000 + "\n[")
    assert cut.endswith("]\n" + "c" * 5000)
    assert "b" not in cut
    assert capped("a" * 10_000, 10_000) == "a" * 10_000


def test_the_lines_about_the_question_stay_with_their_surroundings() -> None:
    """Two lines match, the three lines around them get at least half of the best score; the frame stays."""
    turn = asked(command_turn(0, "cat parser.py", BODY))
    shown = pruned(Prune(), turn)
    lines = shown.split("\n")
    assert lines[:3] == ["<returncode>0</returncode>", "<output>", "(filtered 17 lines)"]
    assert "def choose_dialect(parser):" in lines
    assert "    return parser.dialect" in lines
    assert lines[-1] == "</output>"
    assert len(shown) < len(turn.observations[0].shown) / 2


@pytest.mark.parametrize(
    ("command", "is_pruned"),
    [
        ("cat a.py", True),
        ("sed -n '1,9p' a.py", True),
        ("grep -rn dialect .", True),
        ("python run.py", False),
        ("sed -i s/a/b/ a.py", False),
        ("pytest -q", False),
    ],
)
def test_only_reads_and_searches_are_pruned(command: str, is_pruned: bool) -> None:
    """Runs and edits stay whole, whatever the question (appendix B.1)."""
    shown = pruned(Prune(), asked(command_turn(0, command, BODY)))
    assert ("(filtered" in shown) is is_pruned


@pytest.mark.parametrize(("num_chars", "is_pruned"), [(499, False), (500, True)])
def test_outputs_below_500_characters_stay(num_chars: int, is_pruned: bool) -> None:
    """The limit is on the output's body."""
    body = "the dialect\n" + "\n" * 3
    filler = "\n".join("q" * 47 for _ in range(12))
    body = (body + filler)[: num_chars - 3] + "\nqq"
    assert len(body) == num_chars
    assert ("(filtered" in pruned(Prune(), asked(command_turn(0, "cat a", body)))) is is_pruned


def test_the_question_is_read_from_its_tag() -> None:
    """Blanks and line ends inside become one blank; without a tag nothing is read, and nothing counts as missed."""
    renderer = Prune()
    reply = Message("assistant", "x <context_focus_question>\n How so?\n Why? </context_focus_question>")
    assert renderer.read_reply(reply).extra[FOCUS] == "How so? Why?"
    assert not renderer.read_reply(reply).asked
    assert renderer.read_reply(Message("assistant", "no tag")).extra == {}


def test_the_prompt_asks_for_the_question() -> None:
    """The system message explains the tag; task and format stay."""
    layered = Prune().prompt_layer(HarnessTemplate("You are an agent.", "Fix it.", "1. Think."))
    assert "<context_focus_question>" in layered.system
    assert (layered.task, layered.format_item) == ("Fix it.", "1. Think.")


@pytest.mark.parametrize(
    ("source", "has_tag", "is_pruned"),
    [
        ("none", True, False),
        ("recorded", True, True),
        ("recorded", False, False),
        ("heuristic", False, True),
        ("heuristic", True, True),
    ],
)
def test_replayed_replies_get_their_question_as_asked(source: str, has_tag: bool, is_pruned: bool) -> None:
    """none: never; recorded: the tag in the recording; heuristic: else the first sentence of the text."""
    turn = command_turn(0, "cat a", BODY)
    if has_tag:
        turn = asked(turn)
    said = Message("assistant", "See how the parser chooses a dialect. Then go on.\n```bash\ncat a\n```")
    turn = replace(turn, assistant=said, may_remind=False)
    assert ("(filtered" in pruned(Prune(replay_signals=source), turn)) is is_pruned


def test_a_live_agent_without_a_question_sees_everything() -> None:
    """Only replays guess a question; restored and failed turns are never judged."""
    turn = replace(command_turn(0, "cat a", BODY), may_remind=True)
    assert pruned(Prune(), turn) == turn.observations[0].shown
    restored = replace(asked(turn), kind=TurnKind.restore)
    assert pruned(Prune(), restored) == turn.observations[0].shown


def test_a_question_without_a_common_word_keeps_everything() -> None:
    """Word overlap then says nothing."""
    assert LexicalScorer().scores("zebra?", ["a line", "another"]) == [1.0, 1.0]


def test_each_scorer_call_takes_its_declared_time_before_the_next_call() -> None:
    """0.4 s after a judged output, nothing after one that was not."""
    turns = [asked(command_turn(0, "cat a", BODY)), asked(command_turn(1, "pytest", BODY))]
    _, prompts = session(begun(Prune(), 1000), turns)
    assert [prompt.own_s_modelled for prompt in prompts] == [0.0, 0.4, 0.0]


def test_prompts_only_grow() -> None:
    """A decision is taken once, so that every prompt starts with the one before."""
    turns = [asked(command_turn(label, "cat a", BODY)) for label in range(6)]
    _, prompts = session(begun(Prune(), 1000), turns)
    for before, after in zip(prompts, prompts[1:], strict=False):
        assert after.messages[: len(before.messages)] == before.messages


class Server:
    """Answers POST requests with the given answers in order."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.requests: list[tuple[str, Any]] = []

    def post(self, url: str, *, json: Any, timeout: float) -> httpx.Response:
        self.requests.append((url, json))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        status, body = answer
        return httpx.Response(status, json=body, request=httpx.Request("POST", url))


def ask(server: Server) -> list[int]:
    """Ask for the lines of a text."""
    scorer = HttpScorer("http://127.0.0.1:8000/", timeout_s=1.0, num_tries=3, post=server.post)
    return asyncio.run(scorer.kept_lines("Why?", "a\nb", 0.5))


def test_the_http_scorer_speaks_the_released_api() -> None:
    """POST /prune with query, code and threshold; kept_frags are the kept lines' numbers."""
    server = Server((200, {"score": 0.9, "pruned_code": "b", "kept_frags": [2], "error_msg": None}))
    assert ask(server) == [2]
    assert server.requests == [("http://127.0.0.1:8000/prune", {"query": "Why?", "code": "a\nb", "threshold": 0.5})]


def test_the_http_scorer_tries_three_times() -> None:
    """Lost connections and server errors are tried again, then it is a failure with its cause."""
    assert ask(Server(httpx.ConnectError("refused"), (503, {}), (200, {"kept_frags": [1]}))) == [1]
    with pytest.raises(ScorerError, match="3 tries failed, last ConnectError: refused"):
        ask(Server(*[httpx.ConnectError("refused")] * 3))


@pytest.mark.parametrize("body", [{"error_msg": "too long"}, {"kept_frags": "no"}, {}])
def test_an_answer_without_lines_is_a_failure(body: dict[str, Any]) -> None:
    """The server's own error and a foreign answer are told apart from an empty result."""
    with pytest.raises(ScorerError):
        ask(Server((200, body)))


@pytest.mark.parametrize(("is_virtual", "own_s"), [(True, 0.4), (False, 0.0)])
def test_a_failed_call_shows_everything_and_says_why(is_virtual: bool, own_s: float) -> None:
    """The memo holds the failure; the real scorer's time is declared in virtual time and its own on a wall clock."""
    renderer = begun(Prune(scorer="http", num_tries=1), 1000)
    server = Server(httpx.ConnectError("refused"))
    object.__setattr__(renderer._cache, "scorer", HttpScorer("http://x", timeout_s=1.0, num_tries=1, post=server.post))
    history = history_of()
    seen = renderer.render(history)
    history.append(asked(command_turn(0, "cat a", BODY)))

    async def observe(_: VirtualClock | None = None) -> Any:
        return await renderer.observe(history, seen, Auxiliary("s"))

    (memo,) = run_virtual(observe) if is_virtual else asyncio.run(observe())
    history.extend((memo,))
    assert "ConnectError" in memo.data["failures"]["0"]
    assert text_of(renderer.render(history), 1) == history.turn(1).observations[0].shown
    assert renderer.render(history).own_s_modelled == own_s


@given(turns=random_turns(max_turns=16))
@settings(max_examples=30, deadline=None)
def test_pure_and_valid(turns: list[Turn]) -> None:
    """Fresh equals cached and chats stay valid, whatever is asked."""
    turns = [asked(turn, "Where is value_3 computed from alpha?") for turn in turns]
    history, prompts = session(begun(Prune(), 1000), turns)
    assert begun(Prune(), 1000).render(history) == prompts[-1]
    for prompt in prompts:
        check_chat(prompt)


def test_recorded_runs_lose_lines_and_never_the_prefix() -> None:
    """On real outputs with guessed questions a fair share of the reads is pruned, append-only."""
    runs = recorded_runs()
    if not runs:
        pytest.skip("recorded runs are not here (../shared/trajectories)")
    num_pruned = 0
    for run in runs[::8]:
        _, prompts = session(begun(Prune(), 16_384), recorded_turns(run))
        num_pruned += prompts[-1].num_stubs
        assert all(b.messages[: len(a.messages)] == a.messages for a, b in zip(prompts, prompts[1:], strict=False))
    assert num_pruned > 20


def test_several_outputs_of_a_turn_are_judged_one_by_one() -> None:
    """Two long reads in one reply are two scorer calls."""
    first = command_turn(0, "cat a", BODY)
    turn = asked(replace(first, actions=first.actions * 2, observations=first.observations * 2))
    history, prompts = session(begun(Prune(), 1000), [turn])
    assert prompts[-1].own_s_modelled == pytest.approx(0.8)
    assert sorted(history.all_memos[0].data["kept"]) == ["0", "1"]


@pytest.mark.parametrize("options", [{"scorer": "oracle"}, {"replay_signals": "some"}, {"min_chars": 0}])
def test_impossible_settings_are_refused(options: dict[str, Any]) -> None:
    """A user's mistake is one line that names the value."""
    with pytest.raises(ConfigurationError, match=next(iter(options))):
        Prune(**options)


def test_turns_without_outputs_are_left_alone() -> None:
    """A format error has no command to judge."""
    turn = replace(sized_turn(0, 400), actions=(), kind=TurnKind.format_error)
    assert pruned(Prune(), asked(turn)) == "y" * 1600

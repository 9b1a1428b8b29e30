"""compact: summarize the oldest part of the history when the prompt nears the budget (ReFold appendix B.1).

In the style of Claude Code and Codex. The served model writes the summary, in an auxiliary call that costs like any
other; the text is kept as a memo. Summaries stand in order behind the task, the turns they cover are shown no more.
Composes over any renderer: the inner one renders what is not yet summarized and is told where that begins.
"""

from __future__ import annotations

from dataclasses import InitVar, dataclass, replace
from typing import ClassVar

from serving.calls import CallKind, Message
from serving.interfaces import TokenCounter
from workers.errors import AuxiliaryError
from workers.history import Form, History, Memo, Part, Rendered, Segment
from workers.interfaces import AuxCaller, Renderer
from workers.renderers.compact_plan import CompactPlan, PlanLimits, make_plan
from workers.renderers.composing import (
    BlockRole,
    Composed,
    Estimate,
    check_least,
    check_share,
    chosen,
    estimate_next,
    segment_tokens,
    steps,
    with_memos,
)

SUMMARY = "summary"
FAILURE = "summary_failed"
_INSTRUCTION = """\
The conversation is getting too long. Write a summary of {what}, for yourself: it replaces those messages for good, \
and you go on from it alone. Use these four headings:
Progress and decisions: what was found, tried and changed, with the reasons, and what failed.
Constraints: what the task and the user demand, and what must not be done.
Remaining steps: what is still to do, in order.
Critical data: paths, names, line numbers, commands, error messages and code that are needed again, word for word.
Answer with the summary only; run no command now."""


@dataclass(frozen=True)
class Compact(Composed):
    """Replace the oldest turns by a summary once the estimated prompt passes `trigger_share` of the budget B.

    Summarized are whole turns, the oldest ones that hold `share` of the tokens not yet summarized. Summaries stack up;
    once they hold more than `stack_share` of B, the next call takes them in too and returns one.

    Attributes:
        trigger_share: share of B above which a summary is made.
        share: share of the tokens not yet summarized that goes into it.
        keep_recent: newest turns that stay.
        fit_share: fewer than `keep_recent` stay when the prompt after the summary would be above this share of B.
        stack_share: share of B that summaries may hold before they are summarized themselves; 1 lets them stack for
            ever, the paper's letter.
        min_cap_tokens, cap_divisor: a summary has at most max(min_cap_tokens, B // cap_divisor) tokens.
        declared_tokens: length of a summary where no model writes one, capped as above.
        summary_role: user gives a summary a message of its own; merge_previous adds it to the task's message, for chat
            templates that want roles to alternate.
        inner: the renderer beneath.
    Invariants: the newest turn is never summarized; inner segments begin behind the newest summary.
    Source: ReFold (arXiv 2610.07863) sections 4.1, 4.3 and appendix B.1.
    """

    trigger_share: float = 0.75
    share: float = 0.6
    keep_recent: int = 6
    fit_share: float = 0.75
    stack_share: float = 0.25
    min_cap_tokens: int = 2048
    cap_divisor: int = 8
    declared_tokens: int = 1000
    summary_role: BlockRole = BlockRole.user
    inner: InitVar[Renderer | None] = None

    REVISION: ClassVar[int] = 1

    def __post_init__(self, inner: Renderer | None) -> None:
        for key in ("trigger_share", "share", "fit_share", "stack_share"):
            check_share("compact", key, getattr(self, key))
        for key in ("keep_recent", "min_cap_tokens", "cap_divisor", "declared_tokens"):
            check_least("compact", key, getattr(self, key), 1)
        object.__setattr__(self, "summary_role", chosen("compact", "summary_role", self.summary_role, BlockRole))
        self._hold(inner)

    def start(self, *, counter: TokenCounter, budget_tokens: int, path: str) -> None:
        """Begin a session."""
        self._start_inner(counter=counter, budget_tokens=budget_tokens, path=path)
        self._begin(CompactCache(counter, budget_tokens, path))

    async def observe(self, history: History, seen: Rendered, aux: AuxCaller) -> tuple[Memo, ...]:
        """Have a summary written when the next prompt would pass the trigger.

        A failed call is kept as a memo; the next step that passes the trigger tries again.
        """
        inner_memos = await self._inner.observe(history, seen, aux)
        cache: CompactCache = self._cache
        after = with_memos(history, inner_memos)
        own = self.render(after)
        estimate = estimate_next(after, seen, own, cache.counter)
        if estimate.tokens <= self.trigger_share * cache.budget_tokens:
            return inner_memos
        plan = make_plan(own, cache.counter, self._limits(after, estimate))
        if plan is None:
            return inner_memos
        return (*inner_memos, await self._summarize(own, plan, estimate, aux))

    def render(self, history: History, visible_from: int = 1) -> Rendered:
        """Opening, summaries in order, and the inner render of the turns behind them."""
        cache: CompactCache = self._cache
        summaries = [part for part in cache.summaries(history) if part.last_turn >= visible_from]
        first = max(visible_from, summaries[-1].last_turn + 1) if summaries else visible_from
        inner = self._inner.render(history, first)
        if not summaries:
            return inner
        opening, *rest = inner.segments
        if self.summary_role is BlockRole.merge_previous and opening.messages:
            opening = cache.merged_opening(opening, summaries)
            summaries = [replace(part, messages=()) for part in summaries]
        return replace(inner, segments=(opening, *summaries, *rest))

    def cap_tokens(self, budget_tokens: int) -> int:
        """The longest summary under a budget of B tokens."""
        return max(self.min_cap_tokens, budget_tokens // self.cap_divisor)

    def _limits(self, history: History, estimate: Estimate) -> PlanLimits:
        cache: CompactCache = self._cache
        return PlanLimits(
            num_turns=len(history),
            estimate_tokens=estimate.tokens,
            stacked_tokens=segment_tokens(cache.summaries(history), cache.counter),
            budget_tokens=cache.budget_tokens,
            cap_tokens=self.cap_tokens(cache.budget_tokens),
            share=self.share,
            keep_recent=self.keep_recent,
            fit_tokens=self.fit_share * cache.budget_tokens,
            max_stacked_tokens=self.stack_share * cache.budget_tokens,
        )

    async def _summarize(self, own: Rendered, plan: CompactPlan, estimate: Estimate, aux: AuxCaller) -> Memo:
        cache: CompactCache = self._cache
        cap = self.cap_tokens(cache.budget_tokens)
        data = {
            "first_turn": plan.first_turn,
            "last_turn": plan.last_turn,
            "estimate_tokens": estimate.tokens,
            "last_prompt_tokens": estimate.last_prompt_tokens,
            "num_protected": plan.num_protected,
            "num_absorbed": plan.num_absorbed,
        }
        num_turns = plan.num_turns
        try:
            reply = await aux(
                kind=CallKind.summary,
                messages=request(own, plan),
                max_completion_tokens=cap,
                declared_tokens=min(self.declared_tokens, cap),
            )
        except AuxiliaryError as exc:
            return Memo(cache.path, FAILURE, num_turns, data | {"error": str(exc)})
        return Memo(cache.path, SUMMARY, num_turns, data | {"text": reply.text})


def request(own: Rendered, plan: CompactPlan) -> tuple[Message, ...]:
    """The summary call: the prompt as it stands up to the last turn to summarize, then the instruction.

    [choice] The conversation's own messages, so that the prefix cache serves them. The instruction joins a last user
    message, so that roles alternate as they did before.
    """
    messages = [message for segment in own.segments[: plan.num_segments] for message in segment.messages]
    what = f"{steps(plan.first_turn, plan.last_turn)}, which are all the messages above after the task"
    if plan.num_earlier and not plan.num_absorbed:
        what = f"{steps(plan.first_turn, plan.last_turn)}, which are the messages above after the last summary"
    text = _INSTRUCTION.format(what=what)
    if messages and messages[-1].role == "user":
        messages[-1] = replace(messages[-1], content=f"{messages[-1].content}\n\n{text}")
    else:
        messages.append(Message("user", text))
    return tuple(messages)


def summary_text(first_turn: int, last_turn: int, text: str) -> str:
    """A summary as the model sees it."""
    return (
        f"[context-manager] {steps(first_turn, last_turn)} summarized, their messages are not shown any more:\n\n{text}"
    )


class CompactCache:
    """One session's collaborators and the segments of its summaries."""

    def __init__(self, counter: TokenCounter, budget_tokens: int, path: str) -> None:
        self.counter = counter
        self.budget_tokens = budget_tokens
        self.path = path
        self._segments: dict[tuple[int, int, str], Segment] = {}
        self._opening: tuple[tuple[Segment, ...], Segment] | None = None

    def summaries(self, history: History) -> list[Segment]:
        """The summaries that stand, oldest first; one that covers earlier ones has taken them in."""
        standing: list[Segment] = []
        for memo in history.memos(self.path):
            if memo.kind == SUMMARY:
                segment = self._segment(memo.data["first_turn"], memo.data["last_turn"], memo.data["text"])
                while standing and standing[-1].first_turn >= segment.first_turn:
                    standing.pop()
                standing.append(segment)
        return standing

    def merged_opening(self, opening: Segment, summaries: list[Segment]) -> Segment:
        """The opening with the summaries behind the task's text."""
        parts = (opening, *summaries)
        if self._opening is None or self._opening[0] != parts:
            *others, task = opening.messages
            texts = [task.content, *(part.messages[0].content for part in summaries)]
            merged = replace(task, content="\n\n".join(texts))
            self._opening = parts, replace(opening, messages=(*others, merged))
        return self._opening[1]

    def _segment(self, first_turn: int, last_turn: int, text: str) -> Segment:
        key = first_turn, last_turn, text
        segment = self._segments.get(key)
        if segment is None:
            message = Message("user", summary_text(first_turn, last_turn, text))
            segment = Segment((message,), first_turn, last_turn, Form.summary, Part.note)
            self._segments[key] = segment
        return segment

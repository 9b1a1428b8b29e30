"""Whether a finished attempt measured what it claims to: pure functions over its rows, each reason one line.

A cell with a reason is `tainted`: shown as such, never silently averaged. Times are seconds on the attempt's clock. The
thresholds are the cell's `trust` settings and are stored with the attempt.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from db.metrics import InFlight, in_flight
from db.records import Call, Session

_MAX_EXAMPLES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRows:
    """What is judged.

    Attributes:
        num_tasks: sessions the cell must have.
        is_wall_clock: whether a late event loop can have bent the times (in virtual time it cannot).
        facts: the executor's measurements: `max_loop_lag_ms`, `was_cache_warm`, and `has_times` (False: the engine has
            no time, so that concurrency, queues and preemptions mean nothing and are not judged).
    """

    sessions: Sequence[Session]
    calls: Sequence[Call]
    num_workers: int
    num_tasks: int
    is_wall_clock: bool
    facts: Mapping[str, Any] = field(default_factory=dict)


class Verdict(NamedTuple):
    """Reasons to distrust (none: complete), and the concurrency that was reached."""

    reasons: tuple[str, ...]
    in_flight: InFlight | None


def judge(rows: AttemptRows, thresholds: Mapping[str, Any]) -> Verdict:
    """Apply every check.

    Args:
        thresholds: `orchestrator.schema.TrustConfig` as plain data.
    """
    has_times = bool(rows.facts.get("has_times", True))
    reached = None
    if has_times:
        reached = in_flight(((s.started_s, s.finished_s) for s in rows.sessions), num_workers=rows.num_workers)
    reasons = (
        *missing_sessions(rows),
        *low_concurrency(reached, rows.num_workers, float(thresholds["min_concurrency_share"])),
        *lost_calls(rows, int(thresholds["max_lost_calls"])),
        *late_loop(rows, float(thresholds["max_loop_lag_ms"])),
        *missing_metrics(rows.calls, has_times=has_times),
        *impossible_hits(rows.calls),
        *negative_intervals(rows, float(thresholds["max_negative_s"])),
        *warm_start(rows),
    )
    return Verdict(reasons, reached)


def missing_sessions(rows: AttemptRows) -> Iterator[str]:
    """Fewer sessions than tasks: 48 of 50 instances that ran unnoticed have decided a published dispute."""
    seen = len({session.task_id for session in rows.sessions})
    if seen != rows.num_tasks or len(rows.sessions) != rows.num_tasks:
        yield f"{len(rows.sessions)} sessions of {seen} tasks are recorded, {rows.num_tasks} were to run"


def low_concurrency(reached: InFlight | None, num_workers: int, least: float) -> Iterator[str]:
    """w was not reached while unstarted tasks remained (afterwards it must fall, which is no fault)."""
    if reached is not None and reached.time_weighted / num_workers < least:
        share = reached.time_weighted / num_workers
        mean = f"{reached.time_weighted:.2f} sessions in flight on average"
        yield f"{mean}, {share:.1%} of w = {num_workers}; at least {least:.0%}"


def lost_calls(rows: AttemptRows, most: int) -> Iterator[str]:
    """Calls a session counted that have no row, and gaps in a session's numbering.

    A prompt over the budget has a row (`exhausted`) but was never sent, so the session does not count it.
    """
    sent = Counter(call.session_id for call in rows.calls if call.state != "exhausted" and call.try_index == 1)
    lost = {
        session.session_id: session.num_main_calls + session.num_auxiliary_calls - sent[session.session_id]
        for session in rows.sessions
    }
    missing = {session_id: count for session_id, count in lost.items() if count > 0}
    if sum(missing.values()) > most:
        yield f"{sum(missing.values())} calls have no row ({_examples(missing)})"
    surplus = {session_id: -count for session_id, count in lost.items() if count < 0}
    if surplus:
        yield f"{sum(surplus.values())} calls have a row that their session does not count ({_examples(surplus)})"
    strangers = set(sent) - {session.session_id for session in rows.sessions}
    if strangers:
        yield f"calls of {len(strangers)} sessions without a row ({_examples(strangers)})"


def late_loop(rows: AttemptRows, most_ms: float) -> Iterator[str]:
    """The client itself was late: its times then include its own waiting."""
    if not rows.is_wall_clock:
        return
    lags = [call.loop_lag_ms for call in rows.calls if call.loop_lag_ms is not None]
    if rows.facts.get("max_loop_lag_ms") is not None:
        lags.append(float(rows.facts["max_loop_lag_ms"]))
    if not lags:
        yield "the event loop's lag was not measured"
    elif max(lags) > most_ms:
        yield f"event loop up to {max(lags):.0f} ms late; at most {most_ms:.0f} ms"


_NEEDED = ("num_prompt_tokens", "num_cached_tokens", "num_completion_tokens")
_NEEDED_OF_TIME = ("queue_delay_s", "num_preemptions")


def missing_metrics(calls: Iterable[Call], *, has_times: bool = True) -> Iterator[str]:
    """Served calls whose engine did not report a figure; unknown is never 0. A local scorer has no engine."""
    needed = (*_NEEDED, *_NEEDED_OF_TIME) if has_times else _NEEDED
    absent: Counter[str] = Counter()
    num_served = 0
    for call in calls:
        if call.state == "ok" and call.replica is not None:
            num_served += 1
            absent.update(name for name in needed if getattr(call, name) is None)
    for name in needed:
        if absent[name]:
            yield f"{name} is missing in {absent[name]} of {num_served} served calls"


def impossible_hits(calls: Iterable[Call]) -> Iterator[str]:
    """A session's first call with more cached tokens than it shares with any earlier prompt on its replica.

    Such tokens come from before the attempt (a warm cache) or from a counter that counts something else. Later calls
    are not judged: their bound also needs the replies that decoding left in the cache.
    """
    found = [
        f"{call.session_id}: {call.num_cached_tokens} cached, {call.shared_prefix_tokens} shared"
        for call in calls
        if call.call_index == 1
        and call.state == "ok"
        and call.num_cached_tokens is not None
        and call.shared_prefix_tokens is not None
        and call.num_cached_tokens > call.shared_prefix_tokens
    ]
    if found:
        yield f"{len(found)} first calls hit more than any earlier prompt could give ({_examples(found)})"


def negative_intervals(rows: AttemptRows, most_s: float) -> Iterator[str]:
    """Stamps that run backwards, beyond the rounding of one clock."""
    found: Counter[str] = Counter()
    for call in rows.calls:
        stamps = [
            ("due", call.due_s),
            ("sent", call.sent_s),
            ("first", call.first_token_s),
            ("last", call.last_token_s),
        ]
        known = [(name, stamp) for name, stamp in stamps if stamp is not None]
        for (before, t_0), (after, t_1) in zip(known, known[1:], strict=False):
            if t_1 < t_0 - most_s:
                found[f"{before} > {after}"] += 1
        for name in ("queue_delay_s", "requeue_s", "prefill_s", "decode_s"):
            value = getattr(call, name)
            if value is not None and value < -most_s:
                found[f"{name} < 0"] += 1
    found["session ends before it starts"] += sum(s.finished_s < s.started_s - most_s for s in rows.sessions)
    for name, count in sorted(found.items()):
        if count:
            yield f"negative interval, {name}, {count} times"


def warm_start(rows: AttemptRows) -> Iterator[str]:
    """The prefix cache held something before the first call of a replica.

    On wall-clock time the call that was sent first need not have arrived first, so only the engine's word counts.
    """
    if rows.facts.get("was_cache_warm"):
        yield "the prefix cache was not empty at the start"
    if rows.is_wall_clock:
        return
    by_replica: defaultdict[str, list[Call]] = defaultdict(list)
    for call in rows.calls:
        if call.replica is not None and call.sent_s is not None and call.num_cached_tokens is not None:
            by_replica[call.replica].append(call)
    for replica, calls in sorted(by_replica.items()):
        first_s = min(call.sent_s for call in calls if call.sent_s is not None)
        firsts = [call for call in calls if call.sent_s == first_s]
        # Calls sent at the same moment may hit each other's blocks: only a lone first call proves something.
        if len(firsts) == 1 and firsts[0].num_cached_tokens:
            yield f"the first call on {replica} already hit {firsts[0].num_cached_tokens} cached tokens"


def _examples(items: Iterable[str] | Mapping[str, int]) -> str:
    listed = [f"{key}: {value}" for key, value in items.items()] if isinstance(items, Mapping) else sorted(items)
    more = f", and {len(listed) - _MAX_EXAMPLES} more" if len(listed) > _MAX_EXAMPLES else ""
    return ", ".join(listed[:_MAX_EXAMPLES]) + more

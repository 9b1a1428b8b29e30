"""ARSM's loop warnings w: how often an action was tried on the same targets without new evidence, and the guard.

[choice] the paper gives mu and chi but not the similarity: two actions are alike when class and normalized targets
agree (methods 1B.3), and a repeat counts when its output was seen before under that signature. An edit or write forgets
the reads, searches and runs before it, since the same command may now show something else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from workers.actions import command_kind
from workers.history import Action, Observation, Turn
from workers.shell_reads import parse_read

MAX_SIGNATURES = 64  # [choice] the newest that are remembered, so that a step's cost does not grow
COMMAND_CHARS = 120  # of a command named in an alert
GUARD_MARK = "[execution guard]"
_CHANGING = ("edit", "write")


@dataclass(frozen=True, slots=True)
class Loop:
    """One warning counter omega: the outputs seen for a signature and how often one of them came again."""

    count: int
    seen: frozenset[str]
    command: str


Loops = Mapping[str, Loop]  # signature -> counter, the most recently tried last


@lru_cache(maxsize=8192)
def signature(command: str) -> str | None:
    """Action class and normalized target set; None for what is never a loop (submission, nothing).

    A read is its set of files whatever its line range, a search its words in any order without flags, anything else
    the command itself without extra blanks.
    """
    kind = command_kind(command)
    if kind in ("none", "submit"):
        return None
    if kind == "read" and (reads := parse_read(command)):
        return f"read {' '.join(sorted({read.path for read in reads}))}"
    words = command.split()
    if kind == "search":
        words = sorted({word for word in words if not word.startswith("-")})
    return f"{kind} {' '.join(words)}"


def counted(loops: Loops, turn: Turn, *, step: int, forgets_on_edit: bool) -> tuple[Loops, tuple[str, ...]]:
    """The counters after a turn, and the signatures of its actions that brought nothing new.

    Args:
        step: what a repeat adds at once; 0 leaves counting to mu.
    """
    now, repeats = dict(loops), list[str]()
    for action, observation in zip(turn.actions, turn.observations, strict=False):
        name = signature(action.command)
        if name is None or was_blocked(observation):
            continue
        if forgets_on_edit and command_kind(action.command) in _CHANGING:
            now = {key: loop for key, loop in now.items() if key.startswith(_CHANGING)}
        loop = now.pop(name, None)
        if loop is None:
            loop = Loop(1, frozenset((observation.body,)), " ".join(action.command.split())[:COMMAND_CHARS])
        elif observation.body in loop.seen:
            repeats.append(name)
            loop = replace(loop, count=loop.count + step)
        else:
            loop = replace(loop, seen=loop.seen | {observation.body})
        now[name] = loop
    while len(now) > MAX_SIGNATURES:
        del now[next(iter(now))]
    return now, tuple(repeats)


def mu(loops: Loops, repeats: Iterable[str], gamma: int) -> Loops:
    """Update operator: w + gamma * 1_sim(tau, w)."""
    now = dict(loops)
    for name in repeats:
        if name in now:
            now[name] = replace(now[name], count=now[name].count + gamma)
    return now


def chi(loops: Loops, theta_loop: int) -> tuple[Loop, ...]:
    """Check operator: the counters that say WARN (omega >= theta_loop), the newest last; empty is SAFE."""
    return tuple(loop for loop in loops.values() if loop.count >= theta_loop)


def alerts(loops: Loops, theta_loop: int, *, has_guard: bool) -> tuple[str, ...]:
    """The lines of the Loop Alerts section."""
    warned = chi(loops, theta_loop)
    lines = [
        f"Loop warning: `{loop.command}` or the same action on the same target was tried {loop.count} times without "
        "new evidence. Turn to another target, change something first, or report FAILURE and take another way."
        for loop in warned
    ]
    if warned and has_guard:
        lines.append(
            "Execution guard active: repeating such an action is refused. Change the step, the target or the kind of "
            "action."
        )
    return tuple(lines)


def guarded(loops: Loops, action: Action, theta_loop: int) -> Observation | None:
    """The answer in place of an action that would go on with a loop after its warning; None runs it."""
    name = signature(action.command)
    loop = loops.get(name) if name is not None else None
    if loop is None or loop.count < theta_loop:
        return None
    text = (
        f"{GUARD_MARK} Not run: `{loop.command}` or the same action on the same target was tried {loop.count} times "
        "without new evidence. Change the step, the target or the kind of action."
    )
    return Observation(text, tool_call_id=action.tool_call_id)


def was_blocked(observation: Observation) -> bool:
    """Whether the guard answered instead of the environment."""
    return observation.returncode is None and observation.body.startswith(GUARD_MARK)

"""ReFold's text protocol: the PROGRESS and STALE lines of a reply, `restore` commands, and reminders (Eq. 3, C.2)."""

from __future__ import annotations

import re

from workers.history import NO_SIGNALS, History, Observation, Signals, Turn

MAX_PROGRESS_CHARS = 200  # [choice] methods 1A.3
MAX_RANGE = 1000  # labels a STALE range may span; a session has at most 250 steps

_LINE = r"^[ \t]*(?:[-*>+][ \t]+)?[*_]{{0,2}}{word}[*_]{{0,2}}[ \t]*:[*_]{{0,2}}(.*)$"
_PROGRESS = re.compile(_LINE.format(word="PROGRESS"), re.I | re.M)
_STALE = re.compile(_LINE.format(word="STALE"), re.I | re.M)
# The two lines exactly as they are asked for; every other form takes the long way to the same values.
_QUICK = re.compile(r"PROGRESS:([^*_\n].*)\nSTALE:[ \t]*(-|\d{1,9}(?:,[ ]?\d{1,9})*)[ \t]*(?:\n|\Z)")
_LIST = re.compile(r"(?:[\s\[\](){},;&#.`-]|\bsteps?\b|\band\b|\bto\b|[–—]|\d+)*", re.I)
_LABEL = r"(?<!\d)\d{1,9}(?!\d)"
_ITEM = re.compile(rf"({_LABEL})(?:\s*(?:-|–|—|to)\s*(?:step\s*)?({_LABEL}))?", re.I)
_RANGE = rf"{_LABEL}(?:\s*-\s*{_LABEL})?"
_RESTORE = re.compile(rf"\s*restore\s+({_RANGE}(?:\s*,\s*{_RANGE})*)\s*")

SOFT_REMINDER = """\
[context-manager] Your last response did not start with the two metadata lines. Start this one with them, then continue:
PROGRESS: <one short line on what THIS step does>
STALE: <step numbers you are done with, or `-`>"""
FIRM_REMINDER = (
    "[context-manager] FORMAT VIOLATION ({misses} in a row): every response MUST start with the PROGRESS and STALE "
    "lines. Write them FIRST, before anything else, right now."
)


def parse_signals(content: str, *, asked: bool) -> Signals:
    """Read the two lines of a reply; the first of each wins, case and markdown emphasis do not matter.

    `STALE: 3,4`, `3-5`, `[3, 4]`, `step 3`, `-` and `none` are understood; what follows the numbers is ignored.
    """
    quick = _QUICK.match(content)
    if quick is not None:
        labels = () if quick[2] == "-" else tuple(map(int, quick[2].split(",")))
        return Signals(_one_line(quick[1]) or None, labels, asked, NO_SIGNALS.extra)
    lowered = content.lower()
    progress = _PROGRESS.search(content) if "progress" in lowered else None
    stale = _STALE.search(content) if "stale" in lowered else None
    if progress is None and stale is None:
        return Signals(asked=True) if asked else NO_SIGNALS
    text = _one_line(progress[1]) if progress else ""
    labels = parse_labels(stale[1]) if stale else ()
    return Signals(progress=text or None, stale=labels, asked=asked, extra=NO_SIGNALS.extra)


def _one_line(text: str) -> str:
    """A PROGRESS text without markdown marks; carriage returns, U+2028 and other odd line ends become blanks."""
    return " ".join(text.replace("`", "").split()).strip(" *_")[:MAX_PROGRESS_CHARS].rstrip()


def parse_labels(text: str) -> tuple[int, ...]:
    """The step labels a STALE line names, ranges expanded, in the order written."""
    leading = _LIST.match(text)
    labels: list[int] = []
    for item in _ITEM.finditer(leading[0] if leading else ""):
        first = int(item[1])
        last = int(item[2]) if item[2] else first
        if last < first:
            labels += [first, last]
        else:
            labels += range(first, min(last, first + MAX_RANGE - 1) + 1)
    return tuple(labels)


def accepted(turn: Turn, window: int) -> list[int]:
    """Turn indices (1-based) that a turn's STALE line may fold: STALE_t within {t-k..t-1} (Eq. 4)."""
    first, last = max(1, turn.index - window), turn.index - 1
    return [label + 1 for label in turn.signals.stale if first <= label + 1 <= last]


def reminder(misses: int) -> str:
    """The text for the `misses`-th reply in a row without the PROGRESS line; the first gets the soft form."""
    return SOFT_REMINDER if misses == 1 else FIRM_REMINDER.format(misses=misses)


def restored(history: History, command: str, tool_call_id: str | None) -> Observation | None:
    """Answer `restore 3`, `restore 3-5` or `restore 3,5-7`; None when the command is anything else.

    Returns:
        The outputs as first shown (one output alone keeps its frame, several are labelled), or a one-line error for a
        label that does not exist.
    """
    match = _RESTORE.fullmatch(command)
    if match is None:
        return None
    labels: list[int] = []
    for part in match[1].split(","):
        ends = sorted(int(end) for end in part.split("-"))
        if ends[-1] >= len(history):
            return _unknown(history, ends[-1], tool_call_id)
        labels += range(ends[0], ends[-1] + 1)
    labels = list(dict.fromkeys(labels))
    outputs = [observation for label in labels for observation in history.turn(label + 1).observations]
    if len(outputs) == 1:
        only = outputs[0]
        return Observation(only.body, only.head, only.tail, only.returncode, tool_call_id, only.num_output_chars)
    if len(labels) == 1:
        return Observation("\n".join(output.shown for output in outputs), tool_call_id=tool_call_id)
    texts = [
        f"[step {label}]\n{observation.shown}"
        for label in labels
        for observation in history.turn(label + 1).observations
    ]
    return Observation("\n".join(texts), tool_call_id=tool_call_id)


def _unknown(history: History, label: int, tool_call_id: str | None) -> Observation:
    known = f"steps 0 to {len(history) - 1} exist" if len(history) else "no step exists yet"
    return Observation(f"[context-manager] restore: there is no step {label}; {known}.", tool_call_id=tool_call_id)

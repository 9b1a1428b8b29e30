"""ARSM's structured replies, Z_t -> (tau_t, u_t): the tags of a reply and the routing signal (sections 3.1 and D.1).

    <conclusion> [REFLECTION] Where: .. Result: .. Conclusion: .. [STATUS] ONGOING [PITFALL] N/A </conclusion>
    <reasoning type="CONTINUE"> [CURRENT_STEP] .. [AIM] .. </reasoning>

A reply speaks about the turn before it (reflection, status, pitfall) and about its own action (step, aim). What is
read goes into `Signals.extra` by name; `metadata_of` makes the controller's view of it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from workers.actions import without_blocks
from workers.history import Signals


class Status(StrEnum):
    """The routing signal u_t, one-hot over four branches."""

    ongoing = "ongoing"
    milestone = "milestone"
    failure = "failure"
    success = "success"


@dataclass(frozen=True, slots=True)
class Metadata:
    """What one reply says.

    Attributes:
        status, reflection, conclusion, pitfall, summary: about the turn before; empty text is "nothing said".
        aim, step: the hypothesis of its own action and the checklist step it belongs to.
        checklist, candidates: items of a new plan, lines `name: note` for the candidate ledger.
        is_miss: the status was asked for, but is missing or unknown (then it is `ongoing`).
    """

    status: Status = Status.ongoing
    reflection: str = ""
    conclusion: str = ""
    pitfall: str = ""
    summary: str = ""
    aim: str = ""
    step: str = ""
    checklist: tuple[str, ...] = ()
    candidates: tuple[str, ...] = ()
    is_miss: bool = False


NOTHING_SAID = Metadata()

_MARK = re.compile(
    r"\[(REFLECTION|STATUS|PITFALL|SUMMARY|CURRENT_STEP|AIM|CHECKLIST|CANDIDATES)\]"
    r"|</?(?:conclusion|reasoning)\b[^>\n]*>|<\w*bash_command>",
    re.I,
)
_TYPE = re.compile(r"<reasoning\b[^>\n]*\btype\s*=\s*\\?[\"']?([\w-]+)", re.I)
_FIELD = re.compile(r"\b(Where|Result|Conclusion)\s*:", re.I)
_ITEM = re.compile(r"^\s*(?:[-*]\s+)?(?:\[[ xX]?\]\s*)?(?:\d+[.)]\s*)?")
_FRAME = " \t\r\n*_`:"
_NOTHING = frozenset({"", "n/a", "na", "none", "nothing", "-"})


def parse_reply(content: str) -> Signals:
    """Read the tags of a reply; the first of each counts, case and markdown emphasis do not matter.

    Returns:
        Signals whose `extra` holds what was found (status, aim, reflection, where, result, conclusion, pitfall,
        current_step, summary, checklist, candidates, type) and `parse_miss` for a missing or unknown status; `progress`
        is the aim, or None on a miss, so that misses are counted as ReFold's are.
    """
    extra = _tagged(without_blocks(content)) if "[" in content or "<" in content else {}
    if "reflection" in extra:
        extra |= _fields(extra["reflection"])
    word = re.match(r"\w*", extra.get("status", ""))
    extra["status"] = word[0].lower() if word else ""
    if extra["status"] not in list(Status):
        extra |= {"status": Status.ongoing.value, "parse_miss": "1"}
        return Signals(asked=True, extra=extra)
    return Signals(progress=extra.get("aim", ""), asked=True, extra=extra)


def metadata_of(signals: Signals) -> Metadata:
    """The controller's view of what was read from a reply."""
    extra = signals.extra
    if not extra:
        return NOTHING_SAID
    status = extra.get("status", "")
    return Metadata(
        status=Status(status) if status in list(Status) else Status.ongoing,
        reflection=_reflection(extra),
        conclusion=_said(extra.get("conclusion", "")),
        pitfall=_said(extra.get("pitfall", "")),
        summary=_said(extra.get("summary", "")),
        aim=_said(extra.get("aim", "")),
        step=_said(extra.get("current_step", "")),
        checklist=_items(extra.get("checklist", "")),
        candidates=_items(extra.get("candidates", "")),
        is_miss="parse_miss" in extra,
    )


def _tagged(text: str) -> dict[str, str]:
    """Tag name -> text up to the next tag; reading stops at the action."""
    found: dict[str, str] = {}
    kind = _TYPE.search(text)
    if kind:
        found["type"] = kind[1]
    marks = list(_MARK.finditer(text))
    for mark, following in zip(marks, [*marks[1:], None], strict=False):
        if mark[1] is None:
            if mark[0].endswith("bash_command>"):
                break
            continue
        end = following.start() if following else len(text)
        found.setdefault(mark[1].lower(), text[mark.end() : end].strip(_FRAME))
    return found


def _fields(reflection: str) -> dict[str, str]:
    """The Where, Result and Conclusion of a reflection, as far as it has them."""
    marks = list(_FIELD.finditer(reflection))
    ends = [mark.start() for mark in marks[1:]] + [len(reflection)]
    found: dict[str, str] = {}
    for mark, end in zip(marks, ends, strict=False):
        found.setdefault(mark[1].lower(), reflection[mark.end() : end].strip(_FRAME))
    return found


def _reflection(extra: Mapping[str, str]) -> str:
    """Result and conclusion (the place is in the action already, D.2), or the whole text where it has no fields."""
    parts = [_said(extra.get(name, "")) for name in ("result", "conclusion")]
    return " ".join(part for part in parts if part) or _said(extra.get("reflection", ""))


def _said(text: str) -> str:
    """One line of text, empty for the ways to say nothing."""
    line = " ".join(text.split())
    return "" if line.strip(". ").lower() in _NOTHING else line


def _items(text: str) -> tuple[str, ...]:
    """The items of a list, one a line, without bullets, boxes and numbers."""
    items = (_said(_ITEM.sub("", line, count=1)) for line in text.split("\n"))
    return tuple(item for item in items if item)

"""The prompt layers of ARSM and its Table 6 variants: what every reply is asked to begin with.

The tags are the paper's (D.1), the text is our own: the paper prints no prompt. A layer takes the place of the
harness's item on open-ended reasoning and leaves its action format alone.
"""

from __future__ import annotations

_MEMORY = """\
Your memory: only the newest {window} of your past steps {are} shown in full. Everything older reaches you through a \
block headed [Internal State Update], which is kept from what you write in the tags below. What you do not write down \
there is gone once its step is no longer shown."""

_GUARD = """
Repeating an action on the same target without new evidence raises an alert in the block{refused}."""

_HAR_TAGS = """\
Begin every reply with these tags, filled in, then give your command as the format asks:
<conclusion>
[REFLECTION] Where: <what the last command looked at> Result: <what it showed, with the names and numbers you will \
need> Conclusion: <what follows from it>
[STATUS] <ONGOING, MILESTONE, FAILURE or SUCCESS>
[PITFALL] <after a FAILURE, one general lesson that prevents it; otherwise N/A>
</conclusion>
<reasoning type="CONTINUE">
[CURRENT_STEP] <the step of your checklist that you are working on>
[AIM] <what the next command is to find out or change, in one sentence>
</reasoning>"""

_GENERIC_TAGS = """\
Begin every reply with these tags, filled in, then give your command as the format asks:
[SUMMARY] <what the last command did and what came of it, in one sentence>
[STATUS] <ONGOING, MILESTONE, FAILURE or SUCCESS>
[PITFALL] <after a FAILURE, one general lesson that prevents it; otherwise N/A>
[CURRENT_STEP] <the step of your checklist that you are working on>"""

_STATUS = """
[STATUS] judges the last command: ONGOING while the step it belongs to is open, MILESTONE when that step is settled \
(its records are folded into one line and the checklist moves on), FAILURE when it went wrong or led nowhere, SUCCESS \
when it confirmed what you expected.
In your first reply there is no last command: write N/A for what speaks about it, ONGOING as status, and add a plan of \
about five steps, one a line:
[CHECKLIST]
1. <first step>
2. <second step>"""

_LEDGER = """
When you compare candidates (products, answers, places in the code), add a line for each that you learnt about:
[CANDIDATES]
<name>: <what speaks for or against it>"""

_RECORDS = """\
Your memory: only the newest {window} of your past steps {are} shown in full. Older ones are shown as records of their \
hypothesis, action and result, which are kept from what you write in the tags below; the oldest are dropped when the \
context is full."""

_RECORD_TAGS = """\
Begin every reply with these tags, filled in, then give your command as the format asks:
[REFLECTION] Result: <what the last command showed, with the names and numbers you will need> Conclusion: <what \
follows from it; N/A in your first reply>
[AIM] <what the next command is to find out or change, in one sentence>"""


def machine_layer(*, window: int, is_generic: bool, has_guard: bool, has_ledger: bool) -> str:
    """The layer of ARSM (HAR records) and of SM-only (generic summaries)."""
    text = _MEMORY.format(window=window, are="is" if window == 1 else "are")
    text += _GUARD.format(refused="; going on after the alert is refused" if has_guard else "")
    text += "\n\n" + (_GENERIC_TAGS if is_generic else _HAR_TAGS) + "\n" + _STATUS
    return text + (_LEDGER if has_ledger else "")


def records_layer(window: int) -> str:
    """The layer of HAR-only."""
    return _RECORDS.format(window=window, are="is" if window == 1 else "are") + "\n\n" + _RECORD_TAGS

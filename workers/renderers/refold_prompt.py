"""ReFold's prompt layer: what it adds to a harness's system prompt and response format (appendix C.2).

The wording is the paper's, with the blanks its text version lost put back; the number of steps that can still be named
is k. Without reversibility the sentences about `restore` are left out, without folding the two-line protocol is.
"""

from __future__ import annotations

from workers.interfaces import HarnessTemplate
from workers.renderers.prompt_layers import with_paragraph, with_text

_OMISSIONS = (
    "Context management: to save tokens, the harness omits parts of earlier tool outputs that already appear elsewhere"
    "{folds}. Every omission is marked by a `[context-manager]` note, which is NOT a shell error: it says what was "
    "omitted and where the same content still is. "
)
_FOLDS = " and folds steps you have marked STALE"
_RESTORE = (
    "The bash command `restore <step>` shows a step's output again exactly as first shown, without running anything; "
    "re-running the original command shows its current state instead. Trust the provided context and proceed; restore "
    "or re-run only when the omitted output is necessary for your next step, since each one adds a step and token tax."
)
_RERUN = (
    "Re-running the original command shows its current state. Trust the provided context and proceed; re-run only when "
    "the omitted output is necessary for your next step, since each one adds a step and token tax."
)
_PROTOCOL = """\
Begin every response with these two lines, then your reasoning and your bash tool call:
PROGRESS: <one short line on what THIS step does>
STALE: <step numbers whose output you will not read again, or `-` if none>

Each earlier tool output is labeled `[step N]`.
STALE is about OUTPUT you are finished reading, not about the action. Name a step once you have taken what you needed \
from its output and will not consult that text again: you read a file and drew your conclusion, a search led nowhere, \
a check ruled a guess out.
Do NOT name a step whose output you will still consult: the file you are about to change, the test results you are \
working against, the read that pinned down the root cause. Never name the step you are writing right now, it has no \
result yet.
Name steps AS SOON AS you are done with them. Only the last {k} steps before this one can still be named; older \
numbers are ignored, so saving up a big cleanup for later is wasted.
{again}
Example first lines:
PROGRESS: reading serializer.py to find the encode path
STALE: 3,4
These two lines are metadata, never let them replace your bash tool call."""
_AGAIN_RESTORE = (
    "Named steps are folded into a `[context-manager]` note that keeps their PROGRESS lines and a signature skeleton. "
    "To see a folded or omitted output again, run `restore <step>` as your bash command (for example `restore 7` or "
    "`restore 3-5`): it shows the output exactly as first shown and runs nothing. Re-run the original command instead "
    "when you need its current state."
)
_AGAIN_RERUN = (
    "Named steps are folded into a `[context-manager]` note that keeps their PROGRESS lines and a signature skeleton. "
    "Re-run the original command when you need its current state."
)


def protocol(k: int, *, is_reversible: bool) -> str:
    """The two-line protocol that replaces the reasoning item of the response format."""
    return _PROTOCOL.format(k=k, again=_AGAIN_RESTORE if is_reversible else _AGAIN_RERUN)


def with_layer(template: HarnessTemplate, *, k: int, folds: bool, is_reversible: bool) -> HarnessTemplate:
    """A template with the context-management paragraph and, when turns can be folded, the two-line protocol.

    The protocol takes the place of `format_item` and keeps its list number; without such an item it follows the task.

    Raises:
        ConfigurationError: `format_item` is in neither the system nor the task message.
    """
    paragraph = _OMISSIONS.format(folds=_FOLDS if folds else "") + (_RESTORE if is_reversible else _RERUN)
    layered = with_paragraph(template, paragraph)
    return with_text(layered, protocol(k, is_reversible=is_reversible)) if folds else layered

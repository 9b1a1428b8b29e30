"""Fold notes: what a folded turn leaves behind, f_i = PROGRESS_i + e_i (ReFold Eq. 5, limits after appendix C.3).

The limits are counted off the paper's worked example: a command is cut at 40 characters, four output lines at 70 each,
a signature list at 180, and a detail line is indented by six blanks.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from posixpath import basename

from workers.actions import command_kind
from workers.history import Turn, TurnKind
from workers.renderers.signatures import signatures
from workers.shell_reads import Read, parse_read

COMMAND_CHARS = 40
OUTPUT_LINES = 4
OUTPUT_LINE_CHARS = 70
SIGNATURES_CHARS = 180
INDENT = " " * 6
_EDGE_CHARS = OUTPUT_LINES * 400  # enough text to hold the first output lines without splitting a long output


@dataclass(frozen=True, slots=True)
class FoldedTurn:
    """One folded turn: its label, its PROGRESS text (or None) and its detail lines e_i, one per command."""

    label: int
    progress: str | None
    details: tuple[str, ...]


@lru_cache(maxsize=8192)
def read_of(command: str, cwd: str) -> Read | None:
    """The one file a command shows, or None when it shows none or several."""
    reads = parse_read(command, cwd)
    if not reads or any(read.path != reads[0].path for read in reads):
        return None
    return reads[0] if len(reads) == 1 else Read(reads[0].path, None, None)


def folded_turn(turn: Turn, *, cwd: str, keep_test_summary: bool) -> FoldedTurn:
    """What a note keeps of a turn."""
    details = []
    if turn.kind is TurnKind.command:
        for action, observation in zip(turn.actions, turn.observations, strict=False):
            detail = _detail(action.command, observation.body, cwd, keep_test_summary=keep_test_summary)
            if detail:
                details.append(detail)
    return FoldedTurn(turn.label, turn.signals.progress, tuple(details))


def _detail(command: str, body: str, cwd: str, *, keep_test_summary: bool) -> str:
    """e_i of one command: signatures of a read, first lines of a search or listing, else empty."""
    if not body or body.isspace():
        return ""
    read = read_of(command, cwd)
    if read is not None:
        found = "; ".join(signatures(body, read.path, top_level_only=False))
        return f"{basename(read.path)}: {found[:SIGNATURES_CHARS]}" if found else ""
    kind = command_kind(command)
    if not (kind == "search" or (kind == "run" and keep_test_summary)):
        return ""
    shown_command = " ".join(command.split("\n", 1)[0].split())[:COMMAND_CHARS]
    if kind == "search":
        edge = body if len(body) <= _EDGE_CHARS else body[:_EDGE_CHARS]
        lines = edge.split("\n")[:OUTPUT_LINES]
    else:
        lines = body.rstrip().rsplit("\n", 1)[-1:]
    return f"$ {shown_command} -> " + " | ".join(line[:OUTPUT_LINE_CHARS] for line in lines)


def note_text(turns: list[FoldedTurn], *, is_reversible: bool, max_progress: int = 0) -> str:
    """The note of a run of adjacent folded turns: a header, then one line per detail.

    `turns` are at least one, in order, labels without gaps. At most `max_progress` PROGRESS texts, the newest, are in
    the header; 0 keeps all. Equal ones count once.
    """
    first, last = turns[0].label, turns[-1].label
    steps, which, them = f"steps {first}-{last}", f"{first}-{last}", "them"
    if first == last:
        steps, which, them = f"step {first}", f"{first}", "it"
    texts = list(dict.fromkeys(turn.progress.rstrip(" .") for turn in turns if turn.progress))
    progress = " · ".join(text for text in texts[-max_progress:] if text)
    header = f"[context-manager] {steps} folded"
    header += f": {progress}." if progress else "."
    if is_reversible:
        header += f" `restore {which}` shows {them} again."
    return "\n".join([header, *(INDENT + detail for turn in turns for detail in turn.details)])

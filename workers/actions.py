"""Commands in replies, and what kind of step a command makes.

For harnesses, trajectory readers and the replay policy. Text formats carry one fenced block (```` ```bash ````,
```` ```mswea_bash_command ````), tool-call formats a tool `bash{command}`. Kinds follow the classifier behind the
calibration figures (search, read, run, write, edit, submit, none, other), so that recorded, synthetic and live steps
are counted alike; it works on regular expressions and is approximate.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import Final

from serving.calls import Message, ToolCall
from workers.history import Action
from workers.shell_reads import without_heredocs

SUBMIT_MARKERS: Final = ("COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT", "MINI_SWE_AGENT_FINAL_OUTPUT")
_BLOCKS: Final = {
    "bash": re.compile(r"```bash[ \t]*\n(.*?)\n?```", re.S),
    "mswea_bash_command": re.compile(r"```mswea_bash_command[ \t]*\n(.*?)\n?```", re.S),
}
_ANY_BLOCK = re.compile(r"```[\w+-]*[ \t]*\n.*?(?:```|\Z)", re.S)

_SUBMIT = re.compile("|".join(SUBMIT_MARKERS) + r"|^\s*submit\s*$")
_WRITE = re.compile(
    r"(?:cat|tee)\b[^\n|]*<<|<<-?\s*['\"]?\w+['\"]?[^\n]*>\s*\S|(?:echo|printf)\b.*[^2&]>\s*[^&\s]|^\s*create\s"
)
_EDIT = re.compile(
    r"\bsed\s+(?:-\w+\s+)*-i|\bpatch\b\s+-|\bgit\s+(?:apply|checkout|stash|restore|revert|reset)\b|\bperl\s+-\w*i"
    r"|^\s*(?:edit|str_replace_editor|insert)\s|\b(?:mv|cp|rm)\s"
)
_RUN = re.compile(
    r"\b(?:python3?|pytest|tox|make|npm|npx|node|cargo|go\s+(?:test|run|build)|mvn|gradle|pip3?|conda|ruby|bundle|"
    r"sh|bash|java|javac|gcc|unittest|nosetests|ctest|apt(?:-get)?)\b(?!\.)|\./\S+"
)
_READ = re.compile(
    r"^(?:cd\s+\S+\s*(?:&&|;)\s*)?\s*"
    r"(?:cat|nl|sed\s+-n|head|tail|less|more|bat|open|goto|scroll_down|scroll_up|awk\s+'?NR)\b"
)
_SEARCH = re.compile(
    r"\b(?:grep|rg|ag|find|ls|tree|git\s+(?:log|show|diff|status|blame|grep)|which|wc|locate|"
    r"find_file|search_dir|search_file|pwd)\b"
)


def fenced_commands(text: str, fence: str = "bash") -> tuple[str, ...]:
    """The commands in the fenced blocks of a reply, stripped, in order. `fence` is bash or mswea_bash_command."""
    return tuple(block.strip() for block in _BLOCKS[fence].findall(text))


def without_blocks(text: str) -> str:
    """The reply's prose: everything outside fenced blocks."""
    return _ANY_BLOCK.sub("", text) if "```" in text else text


def tool_call_command(call: ToolCall) -> str | None:
    """The command of one `bash` tool call, or None when its arguments are not `{"command": text}`."""
    try:
        arguments = json.loads(call.arguments)
    except json.JSONDecodeError:
        return None
    command = arguments.get("command") if isinstance(arguments, dict) else None
    return command if isinstance(command, str) else None


def tool_call_actions(message: Message) -> tuple[Action, ...]:
    """The commands of a reply's `bash` tool calls; calls of other tools or with broken arguments are left out."""
    actions = []
    for call in message.tool_calls:
        command = tool_call_command(call) if call.name == "bash" else None
        if command is not None:
            actions.append(Action(command, call.id))
    return tuple(actions)


@lru_cache(maxsize=8192)
def command_kind(command: str) -> str:
    """search | read | run | edit | write | submit | none | other of one command (`none` when it is empty)."""
    if not command.strip():
        return "none"
    if _SUBMIT.search(command):
        return "submit"
    if _WRITE.search(command):
        return "write"
    bare = without_heredocs(command)
    if _EDIT.search(bare):
        return "edit"
    if _READ.search(bare):
        return "read"
    # A search piped into python is a run, a python script named in a grep is a search: the first program decides.
    first = _first_program(bare)
    if _SEARCH.match(first):
        return "search"
    if _RUN.search(bare):
        return "run"
    if _SEARCH.search(bare):
        return "search"
    return "other"


def _first_program(command: str) -> str:
    """The command from its first program on, behind `cd dir &&` and `NAME=value` prefixes."""
    return re.sub(r"^(?:\s*(?:cd\s+\S+\s*(?:&&|;)|\w+=\S+|timeout\s+\S+|sudo))+\s*", "", command).lstrip()


def step_kind(actions: tuple[Action, ...]) -> str:
    """The kind of a step: of its first command, `submit` when any command submits, `none` without a command."""
    if not actions:
        return "none"
    kinds = [command_kind(action.command) for action in actions]
    return "submit" if "submit" in kinds else kinds[0]


def is_submission(command: str) -> bool:
    """Whether the command asks to submit (mini-swe-agent's marker line, SWE-agent's `submit`)."""
    return _SUBMIT.search(command) is not None

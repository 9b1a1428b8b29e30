"""Which file and lines a shell command shows: `parse_read("cd src && sed -n '3,9p' a.py", "/testbed")`.

For the hindsight analysis of replay, for renderers that ask whether a file was read before, and for the fate of
removed text (reproducible or not). Approximate by design: it knows `cat`, `nl`, `sed -n`, `head`, `tail`, `awk` line
ranges, pagers and SWE-agent's `open`, follows `cd` inside one command and skips here-documents. Output that goes to a
file is no read. Searches (`grep`) are no reads: their range is not known.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from posixpath import isabs, join, normpath

_HEREDOC = re.compile(r"<<-?\s*(['\"]?)(\w+)\1([^\n]*)\n(?:.*?\n)??\s*\2(?=\n|$)", re.S)
_TOKEN = re.compile(
    r"""(?P<break>&&|\|\||;|\n|&(?!>))|(?P<pipe>\|)|(?P<out>\d?&?>>?(?:&\d)?)|(?P<in><)|"""
    r"""(?P<word>(?:'[^']*'|"(?:\\.|[^"\\])*"|\\.|[^\s'"|;&<>\\])+)""",
    re.S,
)
_UNQUOTE = re.compile(r"""'([^']*)'|"((?:\\.|[^"\\])*)"|\\(.)""", re.S)
_HAS_READER = re.compile(r"\b(?:cat|nl|sed|head|tail|awk|less|more|bat|open)\b")
_SED_RANGE = re.compile(r"^(\d+)(?:,(\d+|\$|\+\d+))?p;?(?:\d+q)?$")
_AWK_RANGE = re.compile(r"NR\s*>=?\s*(\d+)\s*&&\s*NR\s*<=?\s*(\d+)")
_AWK_LINE = re.compile(r"^\s*NR\s*==\s*(\d+)\s*(?:,\s*NR\s*==\s*(\d+))?")
_WHOLE = {"cat", "nl", "less", "more", "bat", "tail", "col", "fold", "expand"}
_FLAGS_WITH_VALUE = {"-n", "-c", "-v", "-w", "-s", "-b", "-e", "-f"}
LineRange = tuple[int | None, int | None]  # first and last line, 1-based; None is open-ended
DEFAULT_LINES = 10  # what head and tail show without a count
OPEN_WINDOW = 100  # lines of SWE-agent's file viewer (its default WINDOW)


@dataclass(frozen=True, slots=True)
class Read:
    """A file shown: absolute or cwd-joined normalized path, 1-based inclusive lines; None is open-ended.

    `Read(path, None, None)` is the whole file (or lines that cannot be known, such as `tail`).
    """

    path: str
    first_line: int | None
    last_line: int | None

    def overlaps(self, other: Read) -> bool:
        """Whether both show at least one common line of one file."""
        if self.path != other.path:
            return False
        starts_before = self.first_line is None or other.last_line is None or self.first_line <= other.last_line
        ends_after = self.last_line is None or other.first_line is None or other.first_line <= self.last_line
        return starts_before and ends_after


@lru_cache(maxsize=8192)
def parse_read(command: str, cwd: str = "") -> tuple[Read, ...]:
    """The files that `command`, started in `cwd`, shows; empty when it shows none."""
    if not _HAS_READER.search(command):
        return ()
    reads: list[Read] = []
    for pipeline, directory in pipelines(command, cwd):
        reads.extend(_pipeline_reads(pipeline, directory))
    return tuple(reads)


def pipelines(command: str, cwd: str = "") -> list[tuple[list[list[str]], str]]:
    """The pipelines of a command with the directory each starts in; a pipeline is a list of argument lists.

    An output redirection leaves the marker `>` and its target among the arguments.
    """
    found: list[tuple[list[list[str]], str]] = []
    directory, pipeline, words = cwd, list[list[str]](), list[str]()

    def end_pipeline() -> None:
        nonlocal directory, pipeline, words
        if words:
            pipeline.append(words)
        if pipeline:
            found.append((pipeline, directory))
            first = pipeline[0]
            if first[0] == "cd" and len(pipeline) == 1:
                directory = resolve(first[1], directory) if len(first) > 1 else ""
        pipeline, words = [], []

    for token in _TOKEN.finditer(without_heredocs(command)):
        kind = token.lastgroup
        if kind == "word":
            words.append(_unquote(token.group()))
        elif kind == "break":
            end_pipeline()
        elif kind == "pipe":
            if words:
                pipeline.append(words)
            words = []
        elif kind == "out" and not token.group().startswith("2") and "&" not in token.group()[1:]:
            words.append(">")
        elif kind == "out" and "&" not in token.group()[1:]:
            words.append("2>")
    end_pipeline()
    return found


def without_heredocs(command: str) -> str:
    """The command with here-document bodies cut out: they are data, not commands."""
    return _HEREDOC.sub(r"<<\2 \3", command) if "<<" in command else command


def resolve(path: str, cwd: str) -> str:
    """`path` seen from `cwd`, without `.`, `..` and doubled slashes."""
    return normpath(path if isabs(path) or not cwd else join(cwd, path))


def _unquote(word: str) -> str:
    if "'" not in word and '"' not in word and "\\" not in word:
        return word
    return _UNQUOTE.sub(lambda m: next(group for group in m.groups() if group is not None), word)


def _pipeline_reads(pipeline: list[list[str]], cwd: str) -> list[Read]:
    """What the first program of a pipeline reads, narrowed by the ranges of the filters behind it."""
    words = pipeline[0]
    if any(">" in stage for stage in pipeline):
        return []
    found = _program_range(words)
    if found is None:
        return []
    paths, (first, last) = found
    for stage in pipeline[1:]:
        narrowed = _program_range(stage)
        if narrowed is None:
            return []
        first, last = _inside((first, last), narrowed[1])
    return [Read(resolve(path, cwd), first, last) for path in paths]


def _inside(outer: LineRange, inner: LineRange) -> LineRange:
    """Lines `inner` of the text that shows lines `outer`."""
    start = 1 if outer[0] is None else outer[0]
    first = outer[0] if inner[0] is None else start + inner[0] - 1
    last = outer[1] if inner[1] is None else start + inner[1] - 1
    if outer[1] is not None and last is not None:
        last = min(last, outer[1])
    return first, last


def _program_range(words: list[str]) -> tuple[list[str], LineRange] | None:
    """(files, line range) of one program, or None when it shows no file."""
    program, arguments = words[0].rsplit("/", 1)[-1], words[1:]
    if "2>" in arguments:
        cut = arguments.index("2>")
        arguments = arguments[:cut] + arguments[cut + 2 :]
    if program in _WHOLE:
        return _files(arguments, values=program != "cat"), (None, None)
    if program == "head":
        return _head(arguments)
    if program == "sed":
        return _sed(arguments)
    if program == "awk":
        return _awk(arguments)
    if program == "open" and arguments:
        middle = int(arguments[1]) if len(arguments) > 1 and arguments[1].isdigit() else OPEN_WINDOW // 2
        first = max(1, middle - OPEN_WINDOW // 2)
        return arguments[:1], (first, first + OPEN_WINDOW - 1)
    return None


def _files(arguments: list[str], *, values: bool) -> list[str]:
    """The arguments that are file names; with `values` an option such as `-n` takes the next argument."""
    files: list[str] = []
    skip = False
    for argument in arguments:
        if skip:
            skip = False
        elif argument.startswith("-") and len(argument) > 1:
            skip = values and argument in _FLAGS_WITH_VALUE
        elif argument != "-":
            files.append(argument)
    return files


def _head(arguments: list[str]) -> tuple[list[str], LineRange]:
    count, files, rest = DEFAULT_LINES, list[str](), iter(arguments)
    for argument in rest:
        if argument == "-n":
            count = _count(next(rest, ""), count)
        elif argument.startswith("-"):
            count = _count(argument.lstrip("-n").lstrip("="), count)
        else:
            files.append(argument)
    return files, (1, count)


def _count(text: str, default: int) -> int:
    return int(text) if text.isdigit() else default


def _sed(arguments: list[str]) -> tuple[list[str], LineRange] | None:
    """`sed -n '3,9p' file`; any other sed script shows what cannot be known (None)."""
    if "-n" not in arguments:
        return None
    rest = [argument for argument in arguments if not argument.startswith("-")]
    match = _SED_RANGE.match(rest[0].replace(" ", "")) if rest else None
    if match is None:
        return None
    first, end = int(match[1]), match[2]
    if end is None:
        return rest[1:], (first, first)
    if end == "$":
        return rest[1:], (first, None)
    return rest[1:], (first, first + int(end[1:]) if end[0] == "+" else int(end))


def _awk(arguments: list[str]) -> tuple[list[str], LineRange] | None:
    if not arguments:
        return None
    match = _AWK_RANGE.search(arguments[0])
    if match is not None:
        return arguments[1:], (int(match[1]), int(match[2]))
    match = _AWK_LINE.match(arguments[0])
    if match is None:
        return None
    return arguments[1:], (int(match[1]), int(match[2] or match[1]))

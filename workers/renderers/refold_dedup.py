"""ReFold's deduplication: parts of an observation that an earlier, visible turn already shows become stubs (Eq. 2).

File reads are compared by runs of lines within the same path, everything else by its whole body. A stub points to text
that is visible in full in the same render, is at least `min_span_chars` long and is replaced only by something shorter.
One object walks the turns of one render in order and learns what is visible; it never forgets.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from workers.history import Observation, Turn, TurnKind
from workers.renderers.common import num_lines
from workers.renderers.refold_notes import read_of
from workers.renderers.signatures import signatures
from workers.shell_reads import Read

MAX_PLACES = 16  # places remembered per run start; blank and boilerplate lines occur everywhere
_POSITION_BITS = 32
_NUMBERED = re.compile(r"[ \t]*(\d+)[\t:]")
_POINTER = re.compile(r"^(\[context-manager\] .* omitted: identical to step (\d+))\.", re.M)
_NUM_PROBES = 12  # leading lines that are looked at to tell numbered output


@dataclass(frozen=True, slots=True)
class DedupSettings:
    """The deduplication part of ReFold's settings, see `Refold`."""

    min_span_lines: int
    min_span_chars: int
    signature_lines: int
    is_reversible: bool
    cwd: str


@dataclass(frozen=True, slots=True)
class Block:
    """Visible lines of an output of turn `label`: from `start` (0-based) up to `end` (excluded; None: the last one)."""

    label: int
    body: str
    start: int = 0
    end: int | None = None

    def lines(self) -> list[str]:
        """The lines without line-number prefixes; split anew, because held lines would cost more than the output."""
        return _plain_lines(self.body.split("\n"))[self.start : self.end]


class Places:
    """Where runs of `size` lines of one file are visible.

    A run is known by the hash of its lines, and a match is compared by its text. A block is taken in when it is first
    looked for: most files are read once.
    """

    __slots__ = ("_blocks", "_num_indexed", "_places", "_size")

    def __init__(self, size: int) -> None:
        self._size = size
        self._blocks: list[Block] = []
        self._num_indexed = 0
        self._places: dict[int, int | tuple[int, ...]] = {}  # hash -> block * 2**_POSITION_BITS + position, or several

    def add(self, blocks: list[Block]) -> None:
        """Learn that these are visible too."""
        self._blocks += blocks

    def keys(self, lines: list[str]) -> Iterator[int]:
        """The hash of the run that begins at each line."""
        return map(hash, zip(*(lines[shift:] for shift in range(self._size)), strict=False))

    def known(self) -> dict[int, int | tuple[int, ...]]:
        """The first places of every run, see `of`."""
        places = self._places
        for number in range(self._num_indexed, len(self._blocks)):
            for place, key in enumerate(self.keys(self._blocks[number].lines()), start=number << _POSITION_BITS):
                known = places.setdefault(key, place)
                if known is place:
                    continue
                several = known if isinstance(known, tuple) else (known,)
                if len(several) < MAX_PLACES:
                    places[key] = (*several, place)
        self._num_indexed = len(self._blocks)
        return places

    def of(self, place: int) -> tuple[Block, int]:
        """The block and the position in it."""
        return self._blocks[place >> _POSITION_BITS], place & ((1 << _POSITION_BITS) - 1)


@dataclass(frozen=True, slots=True)
class Run:
    """Lines `start`..`end` (end excluded) of an observation that turn `label` shows too."""

    start: int
    end: int
    label: int


@dataclass(slots=True)
class Deduplicator:
    """Walks turns in order: `shorten` the ones that may become stubs, `show` the ones that stay whole.

    Attributes:
        whole: body -> label of the first turn that shows it whole.
        places: path -> where runs of its lines are visible.
    """

    settings: DedupSettings
    whole: dict[str, int] = field(default_factory=dict)
    places: dict[str, Places] = field(default_factory=dict)

    def show(self, turn: Turn) -> None:
        """Learn that a turn is visible in full."""
        for position, observation in enumerate(turn.observations):
            body = observation.body
            if len(body) >= self.settings.min_span_chars:
                self.whole.setdefault(body, turn.label)
                read = self._read(turn, position)
                if read is not None:
                    self._learn(read.path, [Block(turn.label, body)])

    def shorten(self, turn: Turn) -> list[str | None]:
        """The texts in place of a turn's observations (without the `[step N]` line), None where one stays whole.

        What stays visible of the turn is learnt after all its observations are compared, so no stub points to its
        own turn.
        """
        texts: list[str | None] = []
        wholes: list[str] = []
        blocks: list[tuple[str, list[Block]]] = []
        for position, observation in enumerate(turn.observations):
            body = observation.body
            if len(body) < self.settings.min_span_chars:
                texts.append(None)
                continue
            read = self._read(turn, position)
            text = self._whole_stub(turn, observation, self.whole.get(body), read)
            if text is None and read is not None:
                text, visible = self._stub_runs(turn, observation, read)
                blocks.append((read.path, visible))
            if text is None or not self.settings.is_reversible:
                wholes.append(body)
            texts.append(text)
        for body in wholes:
            self.whole.setdefault(body, turn.label)
        for path, visible in blocks:
            self._learn(path, visible)
        return texts

    def _read(self, turn: Turn, position: int) -> Read | None:
        """The file that one observation shows; None for anything but a read."""
        if turn.kind is not TurnKind.command or position >= len(turn.actions):
            return None
        return read_of(turn.actions[position].command, self.settings.cwd)

    def _learn(self, path: str, blocks: list[Block]) -> None:
        places = self.places.get(path)
        if places is None:
            places = self.places[path] = Places(self.settings.min_span_lines)
        places.add(blocks)

    def _whole_stub(self, turn: Turn, observation: Observation, label: int | None, read: Read | None) -> str | None:
        """The stub of an output that turn `label` shows whole, in the form of appendix C.3; None when it saves nothing.

        The frame's return-code line stays beside the note.
        """
        if label is None:
            return None
        body = observation.body
        count = num_lines(body)
        note = f"[context-manager] output omitted: identical to step {label}.{self._hint(turn)}"
        region = f"... ({count} {'line' if count == 1 else 'lines'}) ..."
        kept = self._signatures(body, count, read)
        if len(note) + len(region) + sum(map(len, kept)) + 2 + len(kept) >= len(body):
            return None
        frame = observation.head.split("\n", 1)[0]
        return "\n".join([note, *([frame] if frame.startswith("<returncode>") else []), region, *kept])

    def _stub_runs(self, turn: Turn, observation: Observation, read: Read) -> tuple[str | None, list[Block]]:
        """(framed text with stubs in place of repeated runs or None without any, what stays visible)."""
        body = observation.body
        if read.path not in self.places:
            return None, [Block(turn.label, body)]
        shown = body.split("\n")
        pieces: list[str] = []
        visible: list[Block] = []
        done = 0
        for run in self._runs(self.places[read.path], _plain_lines(shown)):
            if run.end - run.start == len(shown):
                text = self._whole_stub(turn, observation, run.label, read)
                return text, [] if text and self.settings.is_reversible else [Block(turn.label, body)]
            span = "\n".join(shown[run.start : run.end])
            stub = self._run_stub(turn, observation, read, run, shown=shown, span=span)
            if stub is None:
                continue
            if run.start > done:
                pieces += shown[done : run.start]
                visible.append(Block(turn.label, body, done, run.start))
            pieces.append(stub)
            done = run.end
        if not done:
            return None, [Block(turn.label, body)]
        pieces += shown[done:]
        visible.append(Block(turn.label, body, done))
        if not self.settings.is_reversible:
            visible = [Block(turn.label, body)]
        return observation.head + "\n".join(pieces) + observation.tail, visible

    def _runs(self, places: Places, lines: list[str]) -> list[Run]:
        """Maximal runs of lines that one visible block of the same path holds too, leftmost and longest first."""
        runs: list[Run] = []
        known = places.known()
        lines_of: dict[Block, list[str]] = {}
        free = 0
        for start, key in enumerate(places.keys(lines)):
            if start < free or key not in known:
                continue
            length, label = 0, 0
            found = known[key]
            for place in found if isinstance(found, tuple) else (found,):
                block, position = places.of(place)
                if block not in lines_of:
                    lines_of[block] = block.lines()
                same = _common_lines(lines, start, lines_of[block], position)
                if same > length:
                    length, label = same, block.label
            if sum(map(len, lines[start : start + length])) + length > self.settings.min_span_chars:
                runs.append(Run(start, start + length, label))
                free = start + length
        return runs

    def _run_stub(
        self, turn: Turn, observation: Observation, read: Read, run: Run, *, shown: list[str], span: str
    ) -> str | None:
        """The stub of one run, or None when it saves nothing or the span is too short."""
        where = _line_numbers(turn, observation, read, run, shown)
        note = f"[context-manager] {where} omitted: identical to step {run.label}.{self._hint(turn)}"
        stub = "\n".join([note, *self._signatures(span, run.end - run.start, read)])
        return stub if len(span) >= self.settings.min_span_chars and len(stub) < len(span) else None

    def _signatures(self, text: str, num_lines: int, read: Read | None) -> list[str]:
        """One line with the top-level signatures of a long span of source code, or nothing."""
        if read is None or num_lines < self.settings.signature_lines:
            return []
        found = signatures(text, read.path, top_level_only=True)
        return ["; ".join(found)] if found else []

    def _hint(self, turn: Turn) -> str:
        return f" `restore {turn.label}` shows it again." if self.settings.is_reversible else ""


def with_stored_targets(text: str, stored_turns: frozenset[int]) -> str:
    """A stubbed output whose notes say so where an outer renderer put the copy they point to into a store."""

    def noted(match: re.Match[str]) -> str:
        return f"{match[1]}, which is stored." if int(match[2]) + 1 in stored_turns else match[0]

    return _POINTER.sub(noted, text)


def _plain_lines(lines: list[str]) -> list[str]:
    """The lines without the numbers that `cat -n`, `nl` or a viewer put before them; numbers must follow each other."""
    previous: int | None = None
    for line in lines[:_NUM_PROBES]:
        match = _NUMBERED.match(line)
        if match is not None and previous is not None and int(match[1]) == previous + 1:
            return [_NUMBERED.sub("", line, count=1) for line in lines]
        previous = int(match[1]) if match is not None else None
    return lines


def _common_lines(first: list[str], start: int, second: list[str], position: int) -> int:
    """How many lines from `start` on equal those from `position` on."""
    limit = min(len(first) - start, len(second) - position)
    count = 0
    while count < limit and first[start + count] == second[position + count]:
        count += 1
    return count


def _line_numbers(turn: Turn, observation: Observation, read: Read, run: Run, shown: list[str]) -> str:
    """`lines 120-180`: of the file where that is known, otherwise of this output."""
    first, last = _NUMBERED.match(shown[run.start]), _NUMBERED.match(shown[run.end - 1])
    if first is not None and last is not None and int(last[1]) - int(first[1]) == run.end - run.start - 1:
        return f"lines {first[1]}-{last[1]}"
    num_chars = observation.num_output_chars
    is_cut = "<output_head>" in observation.head or (num_chars is not None and num_chars > len(observation.body) + 1)
    if not is_cut and len(turn.actions) == 1 and _starts_where_it_says(turn.actions[0].command):
        offset = 1 if read.first_line is None else read.first_line
        return f"lines {offset + run.start}-{offset + run.end - 1}"
    return f"lines {run.start + 1}-{run.end} of this output"


def _starts_where_it_says(command: str) -> bool:
    """Whether the output holds nothing but the lines the command names: no `tail`, no program before the read."""
    rest = command.rsplit("&&", 1)
    is_alone = len(rest) == 1 or rest[0].lstrip().startswith("cd ") and "&&" not in rest[0]
    return is_alone and ";" not in rest[-1].split("'")[0] and "\n" not in command.strip() and "tail" not in command

"""Find and parse trajectory files: gz or not, JSON or JSON lines, one file or a folder of them.

Nothing is half-loaded: a torn or unreadable file ends loading with one line that names the file and the remedy.
Files that are no trajectory (notes, tables, other JSON) are foreign: listed with the reason, and refused unless asked.
"""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NoReturn

from workers.benchmarks.formats import atif, lmcache, mini_swe_agent, mooncake, neutral, swe_agent, weka
from workers.benchmarks.formats.common import LoadedRun
from workers.errors import BenchmarkError

FORMATS: Final[tuple[ModuleType, ...]] = (mini_swe_agent, swe_agent, atif, neutral, lmcache, weka, mooncake)
MAX_LINE_CHARS: Final = 64 * 1024 * 1024  # one JSON line; a longer one is a file without line ends or a wrong file
_NAMES = re.compile(r"\.(?:json|jsonl|traj|ndjson)(?:\.gz)?$")
_GZIP_MAGIC = b"\x1f\x8b"


@dataclass(frozen=True, slots=True)
class Skipped:
    """A file that was not loaded, and why."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class FolderReport:
    """What a path held: `loaded` is (file name, number of runs)."""

    runs: tuple[LoadedRun, ...]
    loaded: tuple[tuple[str, int], ...]
    skipped: tuple[Skipped, ...]

    def lines(self) -> list[str]:
        """One line per file, for people."""
        loaded = [f"loaded {name}: {num} run{'s' if num != 1 else ''}" for name, num in self.loaded]
        return loaded + [f"skipped {skip.name}: {skip.reason}" for skip in self.skipped]


def load_path(path: Path) -> FolderReport:
    """Load a file, or every file below a folder in name order.

    Raises:
        BenchmarkError: the path is missing, a folder holds nothing to load, or a trajectory file is broken.
    """
    if not path.exists():
        raise BenchmarkError(f"benchmark.path={path} does not exist: give a trajectory file or a folder of them")
    if path.is_file():
        runs = load_file(path)
        if runs is None:
            raise BenchmarkError(f"{path} is in no known trajectory format; known: {known_formats()}")
        return FolderReport(tuple(runs), ((path.name, len(runs)),), ())
    return _load_folder(path)


def known_formats() -> str:
    """The formats, for error messages."""
    return "; ".join(f"{module.NAME} ({module.HINT})" for module in FORMATS)


def _load_folder(folder: Path) -> FolderReport:
    files = sorted(item for item in folder.rglob("*") if item.is_file() and not item.name.startswith("."))
    if not files:
        raise BenchmarkError(f"benchmark.path={folder} is an empty folder: put trajectory files into it")
    runs: list[LoadedRun] = []
    loaded: list[tuple[str, int]] = []
    skipped: list[Skipped] = []
    for file in files:
        name = str(file.relative_to(folder))
        if not _NAMES.search(file.name):
            skipped.append(Skipped(name, "its name ends in none of .json .jsonl .traj (.gz)"))
            continue
        found = load_file(file)
        if found is None:
            skipped.append(Skipped(name, "in no known trajectory format"))
        else:
            runs.extend(found)
            loaded.append((name, len(found)))
    return FolderReport(tuple(runs), tuple(loaded), tuple(skipped))


def load_file(file: Path) -> list[LoadedRun] | None:
    """The runs of one file; None when it is sound JSON in no known format.

    Raises:
        BenchmarkError: torn gzip, invalid UTF-8 or JSON, or a known format with fields that do not fit it.
    """
    documents = parse_documents(file)
    module = next((module for module in FORMATS if module.matches(documents[0])), None)
    if module is None:
        return None
    odd = next((i for i, document in enumerate(documents) if not module.matches(document)), None)
    if odd is not None:
        _broken(file, f"line {odd + 1} is not {module.NAME} as the first line is", "split the file by format")
    try:
        runs: list[LoadedRun] = module.read(documents, _origin(file))
    except (KeyError, TypeError, AttributeError, IndexError, ValueError) as error:
        raise BenchmarkError(
            f"{file} looks like {module.NAME} but does not fit it ({_reason(error)}): "
            f"expected {module.HINT}; take the file out or repair it"
        ) from error
    return runs


def _reason(error: Exception) -> str:
    text = " ".join(str(error).split())
    return f"missing field {text}" if isinstance(error, KeyError) else text


def _origin(file: Path) -> str:
    """The file's name without its trajectory suffixes."""
    return re.sub(r"(?:\.traj)?\.(?:json|jsonl|traj|ndjson)(?:\.gz)?$", "", file.name) or file.name


def parse_documents(file: Path) -> Sequence[Any]:
    """The JSON values of a file: one, or one per line.

    Raises:
        BenchmarkError: the file cannot be read as UTF-8 JSON.
    """
    text = _text(file)
    if not text.strip():
        _broken(file, "is empty", "take it out")
    try:
        return [_json(text)]
    except json.JSONDecodeError as error:
        if error.msg != "Extra data":
            _bad_json(file, error, error.lineno)
    documents = []
    for number, line in enumerate(text.split("\n"), start=1):
        if len(line) > MAX_LINE_CHARS:
            _broken(file, f"line {number} has {len(line)} characters, more than {MAX_LINE_CHARS}", "split it")
        if line.strip():
            try:
                documents.append(_json(line))
            except json.JSONDecodeError as error:
                _bad_json(file, error, number)
    return documents


def _text(file: Path) -> str:
    data = file.read_bytes()
    try:
        return (gzip.decompress(data) if data[:2] == _GZIP_MAGIC else data).decode("utf-8-sig")
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise BenchmarkError(f"{file} is a torn or damaged gzip file ({error}): fetch or write it again") from error
    except UnicodeDecodeError as error:
        raise BenchmarkError(f"{file} is not UTF-8 (byte {error.start}): convert it to UTF-8") from error


def _json(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        raise json.JSONDecodeError("nested too deeply", "", 0) from None


def _refuse_constant(name: str) -> NoReturn:
    raise json.JSONDecodeError(f"{name} is not JSON", name, 0)


def _bad_json(file: Path, error: json.JSONDecodeError, line: int) -> NoReturn:
    raise BenchmarkError(
        f"{file} is not valid JSON (line {line}: {error.msg}): it may be cut off; fetch or write it again"
    ) from error


def _broken(file: Path, what: str, remedy: str) -> NoReturn:
    raise BenchmarkError(f"{file}: {what}; {remedy}")

"""Which files a shell command may change: `parse_writes("sed -i s/a/b/ x.py")`. Static and approximate by design.

For the fate of removed observation tokens (ReFold appendix B.3): a read can be reproduced by running it again as long
as nothing changed the file since. Knows redirections, `tee`, in-place `sed` and `perl`, `mv`, `cp`, `rm`, `patch`, git
commands that rewrite the working tree, and Python's `open(path, "w")` and `write_text` in here-documents or `-c`
(methods 1A.14). A program that changes files on its own (a formatter, a build) goes unseen.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from workers.shell_reads import pipelines, resolve

_GIT_TREE = "checkout stash apply reset restore revert merge rebase pull am clean switch".split()
_MAY_WRITE = re.compile(
    r"(?<!2)>(?!&)|\bsed\b.*\s(?:-\w*i|--in-place)|\bperl\b.*\s-\w*i|\bgit\b.*\b(?:" + "|".join(_GIT_TREE) + r")\b"
    r"|\b(?:tee|mv|cp|rm|patch|truncate|dd|install|write_text|write_bytes|open|create|edit|insert|str_replace|undo_edit)\b"
)
_OPEN_W = re.compile(r"""\bopen\(\s*r?(['"])(.+?)\1\s*,\s*(?:mode\s*=\s*)?(['"])[wax+][^'"]*\3""")
_WRITE_TEXT = re.compile(r"""\bPath\(\s*r?(['"])(.+?)\1\s*\)\.write_(?:text|bytes)\(""")
_EDITOR_COMMANDS = {"edit", "insert", "str_replace", "undo_edit"}  # SWE-agent: they change the file that is open


@dataclass(frozen=True, slots=True)
class Writes:
    """Changed paths (a directory stands for all below it); `anything` when the paths cannot be known."""

    paths: tuple[str, ...] = ()
    anything: bool = False

    def touches(self, path: str) -> bool:
        """Whether a file read as `path` may have changed.

        Relative and absolute spellings of one file match by their common end.
        """
        return self.anything or any(_same_or_below(path, changed) for changed in self.paths)


NO_WRITES = Writes()


@lru_cache(maxsize=4096)
def parse_writes(command: str, cwd: str = "") -> Writes:
    """The files that `command`, started in `cwd`, may change."""
    if not _MAY_WRITE.search(command):
        return NO_WRITES
    paths = [match[2] for match in _OPEN_W.finditer(command)] if "open(" in command else []
    if ".write_" in command:
        paths += [match[2] for match in _WRITE_TEXT.finditer(command)]
    anything = False
    for pipeline, directory in pipelines(command, cwd):
        for words in pipeline:
            targets, unknown = _program_writes(words)
            paths.extend(resolve(target, directory) for target in targets)
            anything = anything or unknown
    return Writes(tuple(dict.fromkeys(path for path in paths if path != "/dev/null")), anything)


def _same_or_below(path: str, changed: str) -> bool:
    if path == changed or path.startswith(changed + "/"):
        return True
    return path.endswith("/" + changed) or changed.endswith("/" + path)


def _program_writes(words: list[str]) -> tuple[list[str], bool]:
    """(changed paths, whether others may have changed too) of one program and its arguments."""
    targets = [word for mark, word in zip(words, words[1:], strict=False) if mark == ">"]
    redirected = {index + shift for index, word in enumerate(words) if word in {">", "2>"} for shift in (0, 1)}
    arguments = [word for index, word in enumerate(words) if index not in redirected]
    program, rest = (arguments[0].rsplit("/", 1)[-1], arguments[1:]) if arguments else ("", [])
    plain = [word for word in rest if not word.startswith("-")]
    if program == "tee" or program in {"mv", "rm", "truncate", "create"}:
        targets += plain
    elif program in {"cp", "install"}:
        targets += plain[-1:]
    elif program == "sed" and any(word.startswith(("-i", "--in-place")) for word in rest):
        scripts = {index + 1 for index, word in enumerate(rest) if word in {"-e", "-f", "--expression", "--file"}}
        files = [word for index, word in enumerate(rest) if index not in scripts and not word.startswith("-")]
        targets += files if scripts else files[1:]
    elif program == "perl" and any(re.match(r"-\w*i", word) for word in rest):
        targets += plain[1:]
    elif program == "dd":
        targets += [word[3:] for word in rest if word.startswith("of=")]
    elif program == "git" and plain and plain[0] in _GIT_TREE:
        named = rest[rest.index("--") + 1 :] if "--" in rest else []
        return targets + named, not named
    elif program == "patch" or program in _EDITOR_COMMANDS:
        return targets, True
    return targets, False

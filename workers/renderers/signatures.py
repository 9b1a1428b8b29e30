"""Signature lines of source code in tool outputs: what a long stub and a fold note keep of a file (ReFold Eq. 2, 5).

A regular expression per language, no parser: an output shows pieces of a file, and the note only has to remind. A
signature is its line as written, without indentation and without a line-number prefix.
"""

from __future__ import annotations

import re
from posixpath import splitext

_NUMBER = r"(?:[ \t]*\d+(?:\t|[:-]))?"
# No pattern looks beyond its line: a signature is one line, and the work stays linear in the text.
_MODIFIERS = (
    r"(?:(?:public|private|protected|internal|static|final|abstract|async|override|open|data|sealed|virtual)[ \t]+)*"
)
_C_HEAD = (
    r"(?:struct|enum|union|class|namespace)[ \t]+\w+"
    r"|[A-Za-z_][\w:<>,*& ]*[ *&][A-Za-z_]\w*(?:::[\w~]+)*\([^;\n]*$"
)
_KEYWORDS = {
    "python": r"(?:async[ ]+def|def|class)[ ]+\w",
    "go": r"(?:func|type)[ ]+[\w(]",
    "javascript": r"(?:export[ \t]+)?(?:default[ \t]+)?(?:async[ \t]+)?"
    r"(?:function\b|(?:class|interface)[ \t]+\w|type[ \t]+\w+[ \t]*=)"
    r"|(?:export[ \t]+)?const[ \t]+\w+[ \t]*=[ \t]*(?:async[ \t]*)?\([^)\n]*\)[ \t]*(?::[^=\n]+)?=>",
    "java": _MODIFIERS + r"(?:class|interface|enum|record|struct|object|fun)[ \t]+\w"
    r"|(?:public|private|protected|internal|static)[ \t]+(?:[\w<>\[\],?]+[ \t]+)+\w+[ \t]*\(",
    "rust": r"(?:pub(?:\([^)\n]*\))?[ \t]+)?(?:(?:async|unsafe|const)[ \t]+)*(?:fn|struct|enum|trait|impl|mod)\b",
    "c": _C_HEAD,
    "php": _MODIFIERS + r"(?:function|class|interface|trait)[ \t]+\w",
    "ruby": r"(?:def|class|module)[ \t]+\w",
}
_EXTENSIONS = {
    ".py": "python", ".pyi": "python", ".pyx": "python", ".go": "go",
    ".js": "javascript", ".jsx": "javascript", ".ts": "javascript", ".tsx": "javascript", ".mjs": "javascript",
    ".java": "java", ".cs": "java", ".kt": "java", ".scala": "java", ".rs": "rust",
    ".c": "c", ".h": "c", ".cc": "c", ".cpp": "c", ".hpp": "c", ".cxx": "c", ".php": "php", ".rb": "ruby",
}  # fmt: skip
_ANYWHERE = {name: re.compile(rf"^{_NUMBER}[ \t]*((?:{words}).*)", re.M) for name, words in _KEYWORDS.items()}
_TOP_LEVEL = {name: re.compile(rf"^{_NUMBER}((?:{words}).*)", re.M) for name, words in _KEYWORDS.items()}


def signatures(text: str, path: str, *, top_level_only: bool) -> list[str]:
    """The signature lines of `text`, shown from the file `path`, in order.

    `top_level_only` leaves indented ones (methods) out: stubs keep top-level ones, fold notes all (methods 1A.6).
    The list is empty when the file's extension is not of a known language.
    """
    language = _EXTENSIONS.get(splitext(path)[1])
    if language is None:
        return []
    pattern = (_TOP_LEVEL if top_level_only else _ANYWHERE)[language]
    return [line.rstrip() for line in pattern.findall(text)]

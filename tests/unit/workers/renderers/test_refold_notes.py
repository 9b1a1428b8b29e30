"""Fold notes, against the worked example of appendix C.3."""

from tests.unit.workers.renderers.histories import command_turn
from workers.history import Turn, TurnKind
from workers.renderers.refold_notes import folded_turn, note_text

LISTING = """\
total 1236
drwxrwxrwx 2 root root   4096 Aug 13 04:34 .
drwxrwxrwx 9 root root   4096 Aug 13 04:34 ..
-rw-r--r-- 1 root root      0 Aug 13 04:34 __init__.py
-rw-r--r-- 1 root root  10000 Aug 13 04:34 alignment.py"""
HITS = '''\
790:        NB. __getitem__ and __setitem__ implement xarray-style indexing, where
849:    def __setitem__(self, key, value):
850:        """__setitem__ is overloaded to access the underlying numpy values with
2553:    def __setitem__(self, key, value):'''
VARIABLE = """\
    def __setitem__(self, key, value):
        dims, index_tuple, new_order = self._broadcast_indexes(key)
    @property
    def attrs(self) -> Dict[Hashable, Any]:
    @attrs.setter
    def attrs(self, value: Mapping[Hashable, Any]) -> None:
    @property
    def encoding(self):
    @encoding.setter
    def encoding(self, value):"""
FUNCTION = """\
def as_compatible_data(data, fastpath=False):
    \"\"\"Prepare and wrap data to put in a Variable.

def _as_array_or_item(data):"""
FILE = "/testbed/xarray/core/variable.py"


# The note of steps 1-6 as the paper prints it: its text lost the blanks, `--` became a dash and backticks quotes.
PRINTED = (
    "[context-manager]steps 1-6 folded:Reading variable.py to understand the __setitem__ issue with.values property "
    "coercion·Examining the __setitem__ method in variable.py to understand the coercion issue·Now I need to find the "
    "as_compatible_data function to understand where the coercion happens.‘restore 1-6‘shows them again.",
    "$ls-la/testbed/xarray/core/->total 1236|drwxrwxrwx 2 root root 4096 Aug 13 04:34.|drwxrwxrwx 9 root root 4096 Aug "
    "13 04:34..|-rw-r–r–1 root root 0 Aug 13 04:34 __init__ .py",
    '$grep-n" __setitem__ "/testbed/xarray/co->790:NB. __getitem__ and __setitem__ implement xarray-style ind|849:'
    'def __setitem__ (self,key,value):|850:""" __setitem__ is overloaded to access the underlying nump|2553:'
    "def __setitem__ (self,key,value):",
    "variable.py:def __setitem__ (self,key,value):;def attrs(self)->Dict[Hashable,Any]:;def attrs(self,value:"
    "Mapping[Hashable,Any])->None:;def encoding(self):;def encoding(self,value)",
    '$grep-n"def as_compatible_data"/testbe->189:def as_compatible_data(data,fastpath=False):',
    "variable.py:def as_compatible_data(data,fastpath=False):;def _as_array_or_item(data):",
)


def as_printed(line: str) -> str:
    """A line without blanks, with the paper's dashes and quotes."""
    return "".join(line.split()).replace("--", "–").replace("`", "‘")


def note(*turns: Turn, **settings: bool) -> str:
    """The note of these turns with the default settings."""
    kept = [folded_turn(turn, cwd="/testbed", keep_test_summary=settings.get("tests", False)) for turn in turns]
    return note_text(kept, is_reversible=settings.get("reversible", True))


def test_note_of_the_worked_example_has_1219_characters() -> None:
    """Six turns, three PROGRESS texts, five detail lines: 1,219 characters.

    Limits 40, 70, 180, four lines, six blanks (C.3, methods 1A.6).
    """
    text = note(
        command_turn(
            1,
            "ls -la /testbed/xarray/core/",
            LISTING,
            progress="Reading variable.py to understand the __setitem__ issue with .values property coercion",
        ),
        command_turn(2, f'grep -n "__setitem__" {FILE}', HITS),
        command_turn(
            3,
            f"sed -n '840,900p' {FILE}",
            VARIABLE,
            progress="Examining the __setitem__ method in variable.py to understand the coercion issue",
        ),
        command_turn(
            4,
            f'grep -n "def as_compatible_data" {FILE}',
            "189:def as_compatible_data(data, fastpath=False):",
            progress="Now I need to find the as_compatible_data function to understand where the coercion happens.",
        ),
        command_turn(5, "python -c 'import xarray'"),
        command_turn(6, f"sed -n '189,290p' {FILE}", FUNCTION),
    )
    header, *details = text.split("\n")
    assert [as_printed(line) for line in (header, *details)] == [as_printed(line) for line in PRINTED]
    assert header.startswith("[context-manager] steps 1-6 folded: Reading variable.py")
    assert header.endswith("where the coercion happens. `restore 1-6` shows them again.")
    assert details[0].endswith("Aug 13 04:34 .. | -rw-r--r-- 1 root root      0 Aug 13 04:34 __init__.py")
    assert details[1].startswith('      $ grep -n "__setitem__" /testbed/xarray/co -> 790:        NB.')
    assert details[3] == (
        '      $ grep -n "def as_compatible_data" /testbe -> 189:def as_compatible_data(data, fastpath=False):'
    )
    assert details[4] == (
        "      variable.py: def as_compatible_data(data, fastpath=False):; def _as_array_or_item(data):"
    )
    signatures = details[2].removeprefix("      variable.py: ")
    assert len(signatures) == 180
    assert signatures.endswith("def encoding(self, value)")
    assert len(text) == 1219


def test_limits_of_a_detail_line() -> None:
    """Command cut at 40 characters, four output lines at 70 each, joined by ` | `."""
    detail = note(command_turn(0, "grep -rn " + "p" * 100, "\n".join(["q" * 100] * 6))).split("\n")[1]
    assert detail == "      $ " + ("grep -rn " + "p" * 100)[:40] + " -> " + " | ".join(["q" * 70] * 4)


def test_single_turn_and_missing_progress() -> None:
    """One turn has a singular note; without PROGRESS the header names only the steps."""
    assert note(command_turn(4, progress="look")) == (
        "[context-manager] step 4 folded: look. `restore 4` shows it again."
    )
    assert note(command_turn(4), command_turn(5)) == (
        "[context-manager] steps 4-5 folded. `restore 4-5` shows them again."
    )


def test_equal_progress_counts_once() -> None:
    """Non-empty, distinct texts in order (methods 1A.6)."""
    text = note(*(command_turn(n, progress=p) for n, p in enumerate(["read.", "run", "read", None])))
    assert text.startswith("[context-manager] steps 0-3 folded: read · run. ")


def test_edits_and_tests_leave_no_detail() -> None:
    """e_i is empty for edits, runs and restores; `keep_test_summary` adds a run's last line."""
    run = command_turn(0, "python -m pytest -q", "....\n4 passed in 0.1s", progress="test")
    edit = command_turn(1, "sed -i s/a/b/ a.py", "def changed():", progress="edit")
    restored = command_turn(2, "restore 0", "def shown():", kind=TurnKind.restore)
    assert "\n" not in note(run, edit, restored)
    assert note(run, edit, tests=True).split("\n")[1:] == ["      $ python -m pytest -q -> 4 passed in 0.1s"]


def test_without_restore_the_note_does_not_offer_it() -> None:
    """`reversible: false`."""
    assert note(command_turn(4, progress="look"), reversible=False) == "[context-manager] step 4 folded: look."

"""Python-like source text, line by line: the files that synthetic sessions read, search, run and edit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from workers.benchmarks.generator.dice import Dice
from workers.benchmarks.generator.lexicon import Lexicon

# a, b, d: variables; f, g: functions; c: a class; n: a number.
_STATEMENTS: Final = (
    "{a} = self.{f}({b})",
    "if {a} is None:\n    {a} = self.{b}",
    "return {f}({a}, {b}={d})",
    "for {a} in self.{b}:\n    self.{f}({a}, {d})",
    "{a}, {b} = {f}({d})",
    'if not isinstance({a}, {c}):\n    raise TypeError(f"{b} expected, got {{type({a}).__name__}}")',
    "self.{a} = {b} or {c}()",
    "{a}.append({f}({b}[{n}:]))",
    "# The {a} has to be set before {f} runs.",
    "with self.{f}() as {a}:\n    {a}.{g}({b})",
    "try:\n    {a} = {f}({b})\nexcept (KeyError, ValueError) as error:\n    raise {c}Error({d}) from error",
    'assert len({a}) == {n}, "{b}"',
    "{a} = [{f}(item) for item in {b} if item.{d}]",
    'logger.debug("%s: {a} %s", {b}, {n})',
    "self.{f}({a}, {b}, {d}=True)",
    '{a} = {{"{b}": {d}, "{f}": {n}}}',
    "return {a} if {b} else {c}.{g}({d})",
    "{a} += {n} * len({b})",
    "self._{a}_{b} = {f}(self._{d})",
    "",
)
_IMPORTS: Final = ("from {p}.{m} import {c}", "from .{m} import {f}, {g}", "import {m}", "from {p} import {m} as {a}")


def code_lines(dice: Dice, lexicon: Lexicon) -> Iterator[str]:
    """An endless module: imports, then classes and functions with their bodies."""
    yield f'"""{lexicon.prose(dice, 70)}"""'
    yield ""
    for _ in range(dice.between(4, 10)):
        yield _filled(dice, lexicon, dice.pick(_IMPORTS))
    while True:
        yield from ("", "")
        if dice.chance(0.25):
            first, second = dice.pick(lexicon.variables), dice.pick(lexicon.variables)
            yield f"def {dice.pick(lexicon.functions)}({first}, {second}=None):"
            yield from _body(dice, lexicon, "    ")
            continue
        yield f"class {dice.pick(lexicon.classes)}({dice.pick(lexicon.classes)}):"
        yield f'    """{lexicon.prose(dice, dice.between(40, 72))}"""'
        for _ in range(dice.between(2, 7)):
            yield ""
            yield f"    def {dice.pick(lexicon.functions)}(self, {dice.pick(lexicon.variables)}):"
            yield from _body(dice, lexicon, " " * 8)


def script_lines(dice: Dice, lexicon: Lexicon) -> Iterator[str]:
    """An endless script that checks a behaviour and prints what it finds."""
    yield "import sys"
    yield _filled(dice, lexicon, _IMPORTS[0])
    yield ""
    while True:
        yield f"def test_{dice.pick(lexicon.functions)}():"
        yield from _body(dice, lexicon, "    ", longest=5)
        yield f'    print("{dice.pick(lexicon.variables)}:", {dice.pick(lexicon.variables)})'
        yield ""


def statement_line(dice: Dice, lexicon: Lexicon) -> str:
    """One line of code without indentation, never empty."""
    return _filled(dice, lexicon, dice.pick(_STATEMENTS[:-1])).split("\n", 1)[0]


def _body(dice: Dice, lexicon: Lexicon, indent: str, longest: int = 9) -> Iterator[str]:
    if dice.chance(0.4):
        yield f'{indent}"""{lexicon.prose(dice, dice.between(30, 66))}"""'
    for _ in range(dice.between(2, longest)):
        deeper = "    " if dice.chance(0.2) else ""
        for line in _filled(dice, lexicon, dice.pick(_STATEMENTS)).split("\n"):
            yield f"{indent}{deeper}{line}" if line else ""


def _filled(dice: Dice, lexicon: Lexicon, pattern: str) -> str:
    if not pattern:
        return ""
    variables, functions = lexicon.variables, lexicon.functions
    return pattern.format(
        a=dice.pick(variables),
        b=dice.pick(variables),
        d=dice.pick(variables),
        f=dice.pick(functions),
        g=dice.pick(functions),
        c=dice.pick(lexicon.classes),
        m=dice.pick(lexicon.modules),
        p=lexicon.package,
        n=dice.between(1, 64),
    )

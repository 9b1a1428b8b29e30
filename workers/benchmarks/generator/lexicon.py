"""Names and sentences of a made-up repository: identifiers, classes, modules, prose of a given length."""

from __future__ import annotations

from typing import Final

from workers.benchmarks.generator.dice import Dice

_NOUNS: Final = (
    "field value model query header token buffer record schema index cache parser node layer frame column table unit "
    "offset window signal option context session widget locale filter format stream batch cursor handle mapping key "
    "shape axis region route template serializer validator encoder decoder registry backend manager loader writer "
    "transform period zone angle weight matrix vector kernel pixel channel segment label alias scope prefix suffix"
).split()
_VERBS: Final = (
    "get set load parse build check resolve convert apply merge update render clean collect register validate encode "
    "decode compute expand prepare normalize split join filter dump restore find match compare copy handle emit"
).split()
_ADJECTIVES: Final = (
    "base default raw local nested inner cached lazy partial strict legacy abstract bound mixed empty"
).split()
_SENTENCES: Final = (
    "The {a} is built in {m}, but {f} overwrites it before the {b} is read.",
    "Calling {f} with a {b} of None raises instead of returning the default.",
    "It looks like {c} keeps the old {a} when {g} is called a second time.",
    "This happens because {f} compares the {a} and not the {b}.",
    "I expect {c} to pass the {a} on, the way {g} already does.",
    "The check in {m} should run after the {a} was converted, not before.",
    "With the change, {f} handles an empty {b} the same way as a missing one.",
    "There is one more caller in {m} that relies on the {a} being a list.",
    "So {g} never sees the {b}, and the wrong {a} ends up in the output.",
    "The tests for {c} only cover the case without a {b}.",
    "Next I want to see how {c} uses {f} and where the {a} comes from.",
    "A small script that builds a {c} and prints its {a} will show whether {f} is at fault.",
    "If {f} returned the {b} unchanged, {c} would not need its own {a}.",
    "The order matters here: {g} must run before {f} does.",
)
_OPENERS: Final = (
    "Let me look at how {f} works",
    "Now I will check {c} in {m}",
    "The output shows that {f} ignores the {a}",
    "I need to see the part of {m} around {f}",
    "That confirms the problem with the {a}",
    "Next I run the check for {c} again",
    "Let me search for other uses of {f}",
    "The {b} is still wrong after this change",
)


class Lexicon:
    """The names of one repository."""

    def __init__(self, dice: Dice) -> None:
        self.package = f"{dice.pick(_ADJECTIVES)}{dice.pick(_NOUNS)}"
        self.functions = [f"{dice.pick(_VERBS)}_{_noun(dice)}" for _ in range(260)]
        self.variables = [_noun(dice) for _ in range(200)]
        self.classes = [_camel(f"{dice.pick(_ADJECTIVES)}_{_noun(dice)}") for _ in range(90)]
        self.modules = [_noun(dice) for _ in range(60)]
        self.folders = [self.package, *(f"{self.package}/{dice.pick(_NOUNS)}s" for _ in range(6)), "tests"]

    def prose(self, dice: Dice, num_chars: int, *, opener: bool = False) -> str:
        """Sentences of about `num_chars` characters in paragraphs of a few; cut at a blank so that it fits."""
        parts: list[str] = []
        length, in_paragraph = 0, 0
        while length < num_chars:
            pattern = f"{dice.pick(_OPENERS)}." if opener and not parts else dice.pick(_SENTENCES)
            sentence = pattern.format(
                a=dice.pick(self.variables),
                b=dice.pick(self.variables),
                c=dice.pick(self.classes),
                f=dice.pick(self.functions),
                g=dice.pick(self.functions),
                m=f"{dice.pick(self.modules)}.py",
            )
            in_paragraph += 1
            separator = "\n\n" if in_paragraph > 3 else " "
            in_paragraph = 0 if in_paragraph > 3 else in_paragraph
            parts.append(sentence + separator)
            length += len(sentence) + len(separator)
        text = "".join(parts).strip()
        return text if len(text) <= num_chars else text[:num_chars].rsplit(" ", 1)[0].strip()


def _noun(dice: Dice) -> str:
    return dice.pick(_NOUNS) if dice.chance(0.3) else f"{dice.pick(_NOUNS)}_{dice.pick(_NOUNS)}"


def _camel(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))

"""One synthetic run: kinds by the Markov chain, lengths by kind, repeats out of what the session has seen.

What an output repeats is decided per output (none, part, all) with the shares of its kind. Early steps have little to
repeat and late ones much, so the shares are scaled by a factor that grows with the step as recorded runs do.
Lengths inside one run go together: all of them are scaled by one factor per run.
"""

from __future__ import annotations

import math
from collections import defaultdict
from itertools import pairwise
from typing import Final

from serving.calls import Message
from workers.actions import step_kind
from workers.benchmarks.generator.code_text import script_lines
from workers.benchmarks.generator.dice import Dice
from workers.benchmarks.generator.lexicon import Lexicon
from workers.benchmarks.generator.outputs import (
    FORMAT_ERROR,
    Source,
    again,
    fresh_lines,
    new_run,
    new_search,
    partly_again,
    run_lines,
)
from workers.benchmarks.generator.profiles import KindFigures, Profile, Quantiles
from workers.benchmarks.generator.reading import Reader, Shown
from workers.benchmarks.generator.repository import Repository
from workers.harnesses.minimal import Minimal
from workers.history import Action, Observation
from workers.interfaces import RecordedRun, RecordedStep

RUN_SIGMA: Final = 0.2  # lognormal factor on all lengths of a run
MIN_REPEAT_CHARS: Final = 200  # the repeat shares were measured on outputs of this length and more
CAP_CHARS: Final = 9_900  # an output that the harness does not truncate
MAX_FORMAT_ERRORS: Final = 2  # in a row; a third would end a session, which recorded runs of this set never did
SUBMIT_COMMAND: Final = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT && cat patch.txt"
_HARNESS: Final = Minimal()


def generate_run(profile: Profile, *key: object) -> RecordedRun:
    """The run that `key` names: opening, steps up to and with the submission."""
    return _Session(profile, key).run()


class _Session:
    """The state of one run while it is made."""

    def __init__(self, profile: Profile, key: tuple[object, ...]) -> None:
        self._profile = profile
        self._dice = Dice(*key, "session")
        self._lexicon = Lexicon(Dice(*key, "lexicon"))
        self._repository = Repository(self._lexicon, *key, "file")
        self._reader = Reader(self._dice, self._repository)
        self._past: dict[str, list[Shown]] = defaultdict(list)
        self._factor = self._dice.lognormal(-(RUN_SIGMA**2) / 2, RUN_SIGMA)

    def run(self) -> RecordedRun:
        statement = self._statement()
        num_steps = self._num_steps()
        kinds = self._kinds(num_steps)
        steps = tuple(self._step(kind, index) for index, kind in enumerate(kinds, start=1))
        patch = "\n".join(self._patch()) + "\n"
        return RecordedRun(_HARNESS.template(statement).opening(), steps, "synthetic", patch, exit_status="Submitted")

    def _num_steps(self) -> int:
        drawn = round(self._dice.lognormal(*self._profile.steps))
        return max(self._profile.steps_min, min(self._profile.steps_max, drawn))

    def _kinds(self, num_steps: int) -> list[str]:
        """Kinds of all steps: the chain without submissions, then patch, look at it, submit."""
        kinds: list[str] = ["START"]
        while len(kinds) <= num_steps - 3:
            weights = dict(self._profile.following[kinds[-1]])
            weights.pop("submit", None)
            if kinds[-MAX_FORMAT_ERRORS:] == ["none"] * MAX_FORMAT_ERRORS:
                weights.pop("none", None)
            kinds.append(self._dice.weighted(weights))
        return [*kinds[1:], "patch", "check", "submit"]

    def _statement(self) -> str:
        """An issue: prose, a code example, prose; with the harness's own text it has the profile's length."""
        dice, lexicon = self._dice, self._lexicon
        opening = _HARNESS.template("").opening()
        frame = sum(len(message.content) for message in opening if message.role == "user")
        room = max(600, round(dice.lognormal(*self._profile.task_chars)) - frame)
        code = "\n".join(fresh_lines(script_lines(dice, lexicon), room // 4))
        title = lexicon.prose(dice, 70)
        before = lexicon.prose(dice, room // 2)
        after = lexicon.prose(dice, max(1, room - len(code) - len(before) - len(title) - 24))
        return f"{title}\n\n{before}\n\n```python\n{code}\n```\n\n{after}"

    def _step(self, kind: str, index: int) -> RecordedStep:
        named = {"patch": "search", "check": "read"}.get(kind, kind)
        figures = self._profile.kinds.get(named) or self._profile.kinds["search"]
        shown = self._shown(kind, figures, index)
        thought = self._thought(figures)
        base, chars_per_token = self._profile.reply_tokens
        actions = (Action(shown.command),) if shown.command else ()
        block = f"```bash\n{shown.command}\n```" if shown.command else ""
        text = "\n\n".join(part for part in (thought, block) if part)
        return RecordedStep(
            assistant=Message("assistant", text),
            actions=actions,
            observations=(_observation(kind, shown),),
            tool_s=_quantile(figures.tool_s, self._dice.uniform()) if actions else None,
            num_completion_tokens=round(base + len(text) / chars_per_token),
            kind=step_kind(actions),
        )

    def _thought(self, figures: KindFigures) -> str:
        if self._dice.chance(figures.thoughtless):
            return ""
        num_chars = max(20, round(self._dice.lognormal(*figures.thought_chars) * self._factor))
        return self._lexicon.prose(self._dice, num_chars, opener=True)

    def _shown(self, kind: str, figures: KindFigures, index: int) -> Shown:
        """Command and output of one step."""
        if kind == "submit":
            return Shown(SUBMIT_COMMAND, [])
        if kind == "none":
            return Shown("", list(FORMAT_ERROR))
        if kind == "patch":
            return Shown("git diff > patch.txt", [])
        if kind == "check":
            return Shown("cat patch.txt", self._patch())
        num_chars = 0 if self._dice.chance(figures.empty) else self._output_chars(figures)
        shown = self._of_kind(kind, figures, num_chars, index)
        if shown.lines:
            self._past[kind].append(shown)
        return shown

    def _output_chars(self, figures: KindFigures) -> int:
        if self._dice.chance(figures.capped):
            return CAP_CHARS + self._dice.between(200, 6000)
        return max(2, min(CAP_CHARS, round(self._dice.lognormal(*figures.output_chars) * self._factor)))

    def _of_kind(self, kind: str, figures: KindFigures, num_chars: int, index: int) -> Shown:
        repeat, part = self._repeat(figures, num_chars, index)
        if kind == "read":
            return self._read(repeat, part, max(2, num_chars))
        if kind == "edit":
            return self._edit(repeat, part, num_chars)
        dice, repository = self._dice, self._repository
        if kind == "write":
            source = Source(self._write(figures, num_chars), run_lines(dice, repository))
        elif kind == "run":
            source = new_run(dice, repository)
        else:
            source = new_search(dice, repository)
        if num_chars == 0:
            return Shown(source.command, [], 1 if kind == "search" else 0)
        past = self._past["run"] if kind == "write" else self._past[kind]
        shown = None
        if repeat == "full":
            shown = again(dice, past, num_chars)
        elif repeat == "partial":
            shown = partly_again(dice, past, num_chars, part, source)
        if shown is None:
            failed = kind == "run" and dice.chance(0.3)
            return Shown(source.command, fresh_lines(source.lines, num_chars), 1 if failed else 0)
        return Shown(source.command, shown.lines, shown.returncode) if kind == "write" else shown

    def _repeat(self, figures: KindFigures, num_chars: int, index: int) -> tuple[str, float]:
        """none, partial or full, and the repeated share of a partly repeated output."""
        start, slope, most = self._profile.repeat_growth
        scale = min(most, start + slope * index) if num_chars >= MIN_REPEAT_CHARS else 0.0
        mark = self._dice.uniform()
        part = min(0.93, max(0.1, figures.repeats.part + 0.5 * (self._dice.uniform() - 0.5)))
        full = min(0.75, figures.repeats.full * scale)
        if mark < full:
            return "full", 1.0
        if mark < full + min(1.0 - full, figures.repeats.partial * scale):
            return "partial", part
        return "none", 0.0

    def _read(self, repeat: str, part: float, num_chars: int) -> Shown:
        shown = None
        if repeat == "full":
            shown = self._reader.again(num_chars)
        elif repeat == "partial":
            shown = self._reader.overlapping(num_chars, part)
        return shown or self._reader.fresh(num_chars)

    def _edit(self, repeat: str, part: float, num_chars: int) -> Shown:
        """Change a line; with output, show lines of a file after it."""
        words = " ".join(self._lexicon.prose(self._dice, 60).replace("/", " ").replace("'", "").split())
        command, _, _ = self._reader.changed(f"# {words}")
        if num_chars == 0:
            return Shown(command, [])
        look = self._read(repeat, part, num_chars)
        return Shown(f"{command} && {look.command}", look.lines)

    def _write(self, figures: KindFigures, num_chars: int) -> str:
        """A here-document that creates a script; with output, the script is run at once."""
        dice = self._dice
        name = f"{dice.pick(('test', 'check', 'reproduce', 'debug'))}_{dice.pick(self._lexicon.variables)}.py"
        size = max(40, min(CAP_CHARS, round(dice.lognormal(*figures.command_chars) * self._factor)) - 40)
        body = "\n".join(fresh_lines(script_lines(dice, self._lexicon), size))
        self._repository.scripts.append(name)
        return f"cat > {name} <<'EOF'\n{body}\nEOF" + (f"\npython {name}" if num_chars else "")

    def _patch(self) -> list[str]:
        """A diff of the edited lines; it is submitted and looked at before."""
        file = next(iter(self._repository.files.values()), None) or self._repository.new_file(self._dice)
        lines = file.slice(1, 8)
        head = [
            f"diff --git a/{file.path} b/{file.path}",
            f"--- a/{file.path}",
            f"+++ b/{file.path}",
            "@@ -1,8 +1,8 @@",
        ]
        return head + [f" {line}" for line in lines[:4]] + [f"-{line}\n+{line}  # changed" for line in lines[4:5]]


def _observation(kind: str, shown: Shown) -> Observation:
    """The output in the frame of the minimal harness; a format error and the submission have none."""
    if kind == "none":
        return Observation("\n".join(shown.lines))
    if kind == "submit":
        return Observation("")
    output = "".join(f"{line}\n" for line in shown.lines)
    return _HARNESS.observation(output, shown.returncode, None)


def _quantile(quantiles: Quantiles, probability: float) -> float | None:
    """The value at `probability`, log-linear between the known quantiles and flat outside; milliseconds precise."""
    if not quantiles:
        return None
    if probability <= quantiles[0][0]:
        return quantiles[0][1]
    for (low, value), (high, larger) in pairwise(quantiles):
        if probability <= high:
            share = (probability - low) / (high - low)
            return round(math.exp(math.log(value) + share * (math.log(larger) - math.log(value))), 3)
    return quantiles[-1][1]

"""`python -m orchestrator rerender`: recorded runs rendered again, without an engine, as cells like any other.

    python -m orchestrator rerender benchmark.path=runs/ renderer=refold,mask,compact+refold
    python -m orchestrator rerender +sweep=rerender_ablations benchmark.path=runs/
    python -m db table rerender

Every named renderer is an arm, `base` is added as the arm the others are compared with. `engine=prefix_cache` gives
each call its best possible cache hit and no time. Cell keys, states, `rerun` and rows are those of any study; a sweep
of conf/ is stored as `rerender_<its name>`, so that it never mixes with a study that has times.
Source: ReFold (arXiv 2610.07863) section 4.4, Figures 2b, 2e and 2f.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from orchestrator.compose import Composer
from orchestrator.errors import UserError
from orchestrator.inline_executor import InlineExecutor
from orchestrator.interfaces import Executor
from orchestrator.overrides import Override
from orchestrator.plan import SweepPlan, make_plan, read_sweep
from orchestrator.runner import run_plan
from orchestrator.stop import StopFlag
from orchestrator.sweep import SweepReader, SweepSpec

NAME = "rerender"
_REFERENCE = "base"


def run_rerender(composer: Composer, command: Sequence[str], *, write: Callable[[str], None], stop: StopFlag) -> int:
    """Run the subcommand and return the exit code; arguments and errors as in `runner.run_plan`."""
    plan = rerender_plan(composer, command)
    code = run_plan(plan, write=write, stop=stop, make_executor=_inline)
    if plan.name != NAME and not plan.shared["dry_run"]:
        write(f"what each renderer removes: python -m db table {NAME} --sweep {plan.name}")
    return code


def rerender_plan(composer: Composer, command: Sequence[str]) -> SweepPlan:
    """The cells of the subcommand.

    Args:
        command: overrides; `renderer=a,b,c` names the arms, or `+sweep=` a sweep with arms of its own.
    Raises:
        UserError: one line for any mistake.
    """
    texts = [text for text in command if _key(text) != "renderer"]
    listed = [text for text in command if _key(text) == "renderer"]
    parsed = [composer.vocabulary.parse(text) for text in texts]
    sweep = next((override for override in parsed if override.key == "sweep"), None)
    if sweep is not None and listed:
        raise UserError(f"{listed[0]}: the sweep names the arms; choose some of them with arm=[...]")
    if not listed and sweep is None:
        raise UserError("rerender needs renderer=<one or more of conf/renderer, by commas>, or +sweep=<name>")
    if len(listed) > 1:
        raise UserError(f"renderer is given twice: {listed[0]} and {listed[1]}; write one list, renderer=a,b,c")
    spec = _of_sweep(composer, str(sweep.value)) if sweep is not None else _of_list(composer, listed[0])
    return make_plan(composer, [*_defaults(parsed), *texts], spec=spec)


def _key(text: str) -> str:
    return text.partition("=")[0]


def _of_sweep(composer: Composer, name: str) -> SweepSpec:
    spec = read_sweep(composer, name)
    return replace(spec, name=spec.name if spec.name.startswith(NAME) else f"{NAME}_{spec.name}")


def _of_list(composer: Composer, text: str) -> SweepSpec:
    """A sweep over the renderers of `renderer=a,b,c`; `compact+refold` puts refold inside compact."""
    labels = list(dict.fromkeys(label.strip() for label in text.partition("=")[2].strip("[]").split(",")))
    if not all(labels):
        raise UserError(f"{text}: an empty name; write renderer=a,b,c")
    if _REFERENCE not in labels:
        labels.insert(0, _REFERENCE)
    arms = {label: _arm(label) for label in labels}
    content = {"description": "recorded runs rendered again, no engine", "arms": arms, "axes": {"arm": labels}}
    return SweepReader(composer.vocabulary.parse, composer.vocabulary.override).read(NAME, content)


def _arm(label: str) -> list[str]:
    outer, *inner = label.split("+")
    places = [f"renderer@renderer{'.inner' * depth}" for depth in range(1, len(inner) + 1)]
    return [f"renderer={outer}", *(f"{place}={name}" for place, name in zip(places, inner, strict=True))]


def _defaults(given: Sequence[Override]) -> list[str]:
    """What re-rendering sets unless the command does: no engine, one session at a time, recorded tasks for a path."""
    chosen: Mapping[str, Any] = {override.key: override.value for override in given}
    if chosen.get("engine", "prefix_cache") != "prefix_cache":
        raise UserError(f"engine={chosen['engine']}: re-rendering has no engine; run the study without `rerender`")
    defaults = {"engine": "prefix_cache", "num_workers": "1"}
    if any(key.startswith("benchmark.path") for key in chosen):
        defaults["benchmark"] = "recorded"
    return [f"{key}={value}" for key, value in defaults.items() if key not in chosen]


def _inline(node: Mapping[str, Any]) -> Executor:
    return InlineExecutor()

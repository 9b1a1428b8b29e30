"""`--help` and `--cfg job`: what can be chosen and set, read from conf/ so that it is never out of date."""

from __future__ import annotations

from collections.abc import Sequence

from omegaconf import DictConfig, OmegaConf

from orchestrator.compose import Composer
from orchestrator.rerun import MODES

_HEAD = """\
usage: python -m orchestrator [+sweep=NAME] [GROUP=OPTION ...] [KEY=VALUE ...]

Runs a concurrent serving study, or one cell of it, and records every model call. Running the same command again
resumes it.

  python -m orchestrator +sweep=smoke                           a first try, no GPU needed
  python -m orchestrator +sweep=concurrency dry_run=true        the plan: cells, KV pool, step times, what is reused
  python -m orchestrator +sweep=concurrency num_workers=[16,32] other values for an axis
  python -m orchestrator renderer=refold num_workers=16         one cell
  python -m orchestrator +sweep=concurrency rerun=failed        run failed cells again
  python -m orchestrator rerender renderer=refold,mask          what renderers remove, no engine (benchmark.path=runs/)
  python -m db table concurrency                                the results

options:
  --help      this text
  --cfg job   the configuration these overrides give, as YAML
  --version   the version
"""


def help_lines(composer: Composer) -> list[str]:
    """The help, line by line."""
    groups = composer.vocabulary.groups()
    sweeps = groups.pop("sweep", ())
    width = max(len(name) for name in (*groups, *sweeps))
    lines = [*_HEAD.splitlines(), "", "sweeps (+sweep=NAME, or a YAML file of your own):"]
    lines += [f"  {name:<{width}}  {_description(composer, name)}" for name in sweeps]
    lines += ["", "groups (GROUP=OPTION; an inner renderer: renderer@renderer.inner=refold):"]
    lines += [f"  {name:<{width}}  {', '.join(options)}" for name, options in groups.items()]
    lines += ["", "keys (KEY=VALUE, with their defaults; a component's keys as renderer.k=5, shown by --cfg job):"]
    lines += [f"  {line}" for line in _root_keys(composer)]
    lines += ["", f"rerun: {', '.join(MODES)}, an exit class such as ReplicaLost, or a list of them"]
    return lines


def config_lines(composer: Composer, overrides: Sequence[str]) -> list[str]:
    """The composed configuration as YAML; a sweep's axes are not part of it."""
    parsed = [composer.vocabulary.parse(text) for text in overrides]
    config = composer.compose([override for override in parsed if override.key != "sweep"])
    return OmegaConf.to_yaml(OmegaConf.create(config)).rstrip("\n").splitlines()


def _description(composer: Composer, name: str) -> str:
    content = OmegaConf.load(composer.vocabulary.conf / "sweep" / f"{name}.yaml")
    return str(content.get("description", "")) if isinstance(content, DictConfig) else ""


def _root_keys(composer: Composer) -> list[str]:
    """The lines of config.yaml after its defaults list: keys, defaults and comments."""
    lines = (composer.vocabulary.conf / "config.yaml").read_text(encoding="utf-8").splitlines()
    start = lines.index("defaults:")
    keys = [line for line in lines[start + 1 :] if not line.startswith("  - ")]
    return [line for line in keys if line.strip()]

"""The command line as a user meets it, without running anything: help, configuration, plan, and mistakes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def convoy(*arguments: str, cwd: Path, pythonpath: str = str(ROOT)) -> subprocess.CompletedProcess[str]:
    """Run `python -m orchestrator` in a folder of its own."""
    environment = {**os.environ, "PYTHONPATH": pythonpath}
    command = [sys.executable, "-m", "orchestrator", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, env=environment, timeout=120, check=False)


def test_help_lists_what_exists(tmp_path: Path) -> None:
    """Every sweep, group, option and root key that is in conf/ is in the help, and nothing is written to the folder."""
    done = convoy("--help", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    names = [path.stem for path in (ROOT / "conf").glob("*/*.yaml")]
    assert [name for name in names if name not in done.stdout] == []
    assert "rerun: failed, tainted, lost, outdated, all" in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_cfg_job_shows_the_composed_configuration(tmp_path: Path) -> None:
    """The YAML holds what was set, with defaults and interpolations resolved."""
    done = convoy("--cfg", "job", "num_workers=3", "renderer=mask", cwd=tmp_path)
    assert done.returncode == 0
    assert "num_workers: 3\n" in done.stdout
    assert "_target_: workers.renderers.mask.Mask" in done.stdout
    assert "${" not in done.stdout


def test_dry_run_prints_the_plan_and_writes_nothing(tmp_path: Path) -> None:
    """Cells, keys, KV pool and step times; only our lines on stdout, nothing on stderr, no file, exit code 0."""
    done = convoy("+sweep=smoke", "dry_run=true", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0].startswith("sweep smoke: ")
    assert [line.split()[:2] for line in lines[1:3]] == [["RUN", "arm=base"], ["RUN", "arm=refold"]]
    assert all("  v1-" in line and "4 tasks" in line for line in lines[1:3])
    assert "num_kv_blocks=" in lines[3]
    assert "step_ms_prefill_2k=" in lines[3]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["+sweep=smok"], "error: unknown sweep 'smok'; did you mean 'smoke'? there are: "),
        (["renderer=refld"], "error: unknown renderer 'refld'; did you mean 'refold'? there are: "),
        (["num_workers=many"], "error: num_workers: Value 'many' of type 'str' could not be converted to Integer"),
        (["--dry-run"], "error: unknown option '--dry-run'; there are: --help, --version, --cfg job"),
        (["--cfg", "hydra"], "error: argument --cfg: invalid choice"),
        (["db.url=/nowhere/results.db", "num_workers=1"], "error: the folder /nowhere does not exist"),
    ],
)
def test_mistakes_are_one_line_and_exit_code_2(tmp_path: Path, arguments: list[str], message: str) -> None:
    """One line on stderr that names the value and the remedy, no traceback, nothing written."""
    done = convoy(*arguments, cwd=tmp_path)
    assert done.stderr.startswith(message)
    assert done.stderr.count("\n") == 1
    assert (done.returncode, done.stdout) == (2, "")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_hides_us_is_named(tmp_path: Path) -> None:
    """A user's own folder `serving` in the working directory hides ours under python -m: one line names it."""
    (tmp_path / "serving").mkdir()
    (tmp_path / "serving" / "__init__.py").touch()
    done = convoy("--help", cwd=tmp_path)
    assert done.returncode == 2
    hidden = f"the folder {tmp_path}/serving hides Convoy's own package 'serving' in {ROOT}"
    assert done.stderr == f"error: {hidden}; run from another directory\n"

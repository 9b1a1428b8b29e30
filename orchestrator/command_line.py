"""The command line: a few options, everything else is an override in Hydra's grammar. Called by `cli` after its check.

Exit codes: 0 every cell of this command is complete; 1 some are not; 2 a mistake in the command (one line, nothing was
started); 130 or 143 after SIGINT or SIGTERM.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from db.errors import DbError
from orchestrator.errors import ComponentBug, UserError, fail
from orchestrator.executors.errors import ClusterError, ClusterLost
from orchestrator.stop import StopFlag

EXIT_FAILED, EXIT_USER_ERROR = 1, 2


def run_command(argv: Sequence[str]) -> int:
    """Run a command line and return the exit code."""
    try:
        return _run(argv)
    except UserError as exc:
        return fail(str(exc), EXIT_USER_ERROR)
    except ClusterLost as exc:
        return fail(str(exc), EXIT_FAILED)
    except ClusterError as exc:
        return fail(str(exc), EXIT_USER_ERROR)
    except DbError as exc:
        return fail(str(exc), EXIT_FAILED)
    except ComponentBug as exc:
        return fail(f"a bug of Convoy's: {exc}", EXIT_FAILED)
    except KeyboardInterrupt:
        return fail("interrupted", 130)
    except BrokenPipeError:
        sys.stderr.close()  # the reader (head, less) has gone; nothing is left to tell
        return EXIT_FAILED


def _run(argv: Sequence[str]) -> int:
    from orchestrator.compose import Composer

    options, overrides = _parse(argv)
    composer = Composer()
    if options.help:
        from orchestrator.help_text import help_lines

        _write_all(help_lines(composer))
        return 0
    if options.version:
        from orchestrator.versions import installed_versions

        _write_all([f"convoy {installed_versions().get('convoy', 'not installed as a package')}"])
        return 0
    if options.cfg:
        from orchestrator.help_text import config_lines

        _write_all(config_lines(composer, overrides))
        return 0
    if overrides[:1] == ["rerender"]:
        from orchestrator.rerender import run_rerender

        return run_rerender(composer, overrides[1:], write=_write, stop=StopFlag())
    from orchestrator.plan import make_plan
    from orchestrator.runner import run_plan

    return run_plan(make_plan(composer, overrides), write=_write, stop=StopFlag())


class _Parser(argparse.ArgumentParser):
    """Errors as our one line."""

    def error(self, message: str) -> None:  # type: ignore[override]
        raise UserError(f"{message}; see python -m orchestrator --help")


def _parse(argv: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    parser = _Parser(add_help=False, allow_abbrev=False)
    parser.add_argument("-h", "--help", action="store_true")
    parser.add_argument("--version", action="store_true")
    parser.add_argument("--cfg", choices=["job"])
    options, rest = parser.parse_known_args(list(argv))
    for text in rest:
        if text.startswith("-"):
            raise UserError(f"unknown option {text!r}; there are: --help, --version, --cfg job; the rest are key=value")
    return options, rest


def _write(line: str) -> None:
    print(line, flush=True)


def _write_all(lines: Sequence[str]) -> None:
    for line in lines:
        _write(line)

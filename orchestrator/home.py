"""Where our packages and conf/ lie, and a check that nothing hides them. Imports none of the other rooms."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path

from orchestrator.errors import UserError

OUR_PACKAGES = ("orchestrator", "workers", "serving", "db")
HOME = Path(__file__).resolve().parent.parent
CONF = HOME / "conf"  # found by path, never imported: a user's own conf/ may hide it


def require_one_home(packages: Sequence[str] = OUR_PACKAGES, home: Path = HOME) -> None:
    """Refuse to run when a folder elsewhere hides one of our packages, or conf/ is not beside them.

    Raises:
        UserError: names the hiding folder.
    """
    for name in packages:
        spec = importlib.util.find_spec(name)
        found = None if spec is None else next(iter(spec.submodule_search_locations or ()), None)
        if found is None:
            raise UserError(f"the package {name!r} is missing beside {home}; install Convoy again")
        if Path(found).resolve().parent != home:
            raise UserError(
                f"the folder {found} hides Convoy's own package {name!r} in {home}; run from another directory"
            )
    if not (home / "conf" / "config.yaml").is_file():
        raise UserError(f"{home / 'conf'} holds no config.yaml; install Convoy again")

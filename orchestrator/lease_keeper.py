"""A thread that renews every held lease each fifth of its length: a busy driver never loses a cell by being busy."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from db.errors import DbError, LeaseLost
from db.store import Claim, Store

_RENEWALS_PER_LEASE = 5


class LeaseKeeper:
    """Renews claims until they are dropped; a context manager.

    A lease that another driver has taken is reported by `lost`, never raised. A database that cannot be reached is
    tried again at the next turn: the lease outlives four failures.
    """

    def __init__(self, store: Store, *, lease_s: float) -> None:
        self._store = store
        self._lease_s = lease_s
        self._claims: dict[str, Claim] = {}
        self._lost: set[str] = set()
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lease-keeper", daemon=True)

    def __enter__(self) -> LeaseKeeper:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        self._thread.join()

    def hold(self, claim: Claim) -> None:
        """Renew this claim from now on."""
        with self._lock:
            self._claims[claim.cell_key] = claim

    def drop(self, cell_key: str) -> None:
        """Renew it no longer."""
        with self._lock:
            self._claims.pop(cell_key, None)
            self._lost.discard(cell_key)

    def lost(self) -> Iterable[str]:
        """Keys of held cells that another driver has taken."""
        with self._lock:
            return tuple(self._lost)

    def renew_all(self) -> None:
        """Renew every held claim once."""
        with self._lock:
            claims = list(self._claims.values())
        for claim in claims:
            try:
                self._store.renew(claim, lease_s=self._lease_s)
            except LeaseLost:
                with self._lock:
                    # It may have been dropped meanwhile because its attempt ended: then nothing is lost.
                    if self._claims.get(claim.cell_key) is claim:
                        self._lost.add(claim.cell_key)
                        del self._claims[claim.cell_key]
            except DbError:
                continue

    def _run(self) -> None:
        while not self._stop.wait(self._lease_s / _RENEWALS_PER_LEASE):
            self.renew_all()

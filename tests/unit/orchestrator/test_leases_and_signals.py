"""Renewing leases while the driver is busy, and what signals do."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

from db.records import Cell
from db.store import Store
from orchestrator.lease_keeper import LeaseKeeper
from orchestrator.registration import register
from orchestrator.stop import StopFlag


def until_utc_s(store: Store) -> float:
    """When the only cell's lease ends."""
    (row,) = store.rows(Cell)
    assert isinstance(row, Cell)
    assert row.lease_until_utc_s is not None
    return row.lease_until_utc_s


def test_renews_what_is_held(store: Store, sweep_plan: Callable[..., Any], planned_cell: Callable[..., Any]) -> None:
    """A held claim's lease moves on; a dropped one's does not; a taken one is reported as lost."""
    register(store, sweep_plan(planned_cell("a")), now_utc_s=0.0)
    claim = store.claim("v1-a", owner="here:1", lease_s=10.0)
    assert claim is not None
    keeper = LeaseKeeper(store, lease_s=1000.0)
    keeper.hold(claim)
    before = until_utc_s(store)
    keeper.renew_all()
    assert until_utc_s(store) > before + 900
    assert keeper.lost() == ()
    store.mark_lost(["v1-a"])
    keeper.renew_all()
    assert keeper.lost() == ("v1-a",)
    keeper.drop("v1-a")
    assert keeper.lost() == ()


def test_thread_renews_by_itself(
    store: Store, sweep_plan: Callable[..., Any], planned_cell: Callable[..., Any]
) -> None:
    """With a lease of 0.2 s the thread renews every 40 ms, while the main thread does nothing."""
    register(store, sweep_plan(planned_cell("a")), now_utc_s=0.0)
    claim = store.claim("v1-a", owner="here:1", lease_s=0.2)
    assert claim is not None
    before = until_utc_s(store)
    with LeaseKeeper(store, lease_s=0.2) as keeper:
        keeper.hold(claim)
        for _ in range(200):
            StopFlag().wait(0.02)
            if until_utc_s(store) > before:
                break
    assert until_utc_s(store) > before


def test_a_broken_database_is_tried_again(
    store: Store, sweep_plan: Callable[..., Any], planned_cell: Callable[..., Any]
) -> None:
    """A failed renewal is no lost lease: the claim is kept for the next turn."""
    register(store, sweep_plan(planned_cell("a")), now_utc_s=0.0)
    claim = store.claim("v1-a", owner="here:1", lease_s=10.0)
    assert claim is not None

    class Broken(Store):
        def renew(self, claim: Any, *, lease_s: float) -> None:
            from db.errors import DbUnavailable

            raise DbUnavailable("the connection broke")

    keeper = LeaseKeeper(Broken(store.engine), lease_s=10.0)
    keeper.hold(claim)
    keeper.renew_all()
    assert keeper.lost() == ()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_first_signal_sets_the_flag_second_one_ends_at_once(number: signal.Signals, code: int) -> None:
    """The exit code is the shell's 128 + n; handlers are put back afterwards."""
    before = signal.getsignal(number)
    flag = StopFlag()
    with flag.handling():
        os.kill(os.getpid(), number)
        assert flag.wait(5.0)
        assert (flag.exit_code, flag.reason) == (code, f"interrupted by {number.name}")
        with pytest.raises(KeyboardInterrupt):
            _signal_and_wait(number, flag)
    assert signal.getsignal(number) is before


def _signal_and_wait(number: signal.Signals, flag: StopFlag) -> None:
    os.kill(os.getpid(), number)
    flag.wait(1.0)

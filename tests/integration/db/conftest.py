"""Databases for the tests: each test that asks for `location` runs on SQLite and on a private PostgreSQL server."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from db.records import (
    Attempt,
    AttemptEnd,
    Call,
    Cell,
    ServerSample,
    Session,
    Sweep,
    SweepCell,
    attempt_id_of,
    to_json,
)
from db.store import Claim, Store

MODEL = "qwen3.6-27b"


def _server_binaries() -> Path | None:
    """The newest Debian PostgreSQL's bin folder, else the folder of `initdb` on the PATH."""
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    if debian:
        return debian[-1].parent
    found = shutil.which("initdb")
    return Path(found).resolve().parent if found else None


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """A private server on a loopback port; yields its URL without a database name. Stopped at the end."""
    binaries = _server_binaries()
    if binaries is None:
        pytest.skip("no PostgreSQL server is installed (Debian: postgresql)")  # CONVOY_REQUIRE: see tests/conftest.py
    as_user = ["runuser", "-u", "postgres", "--"] if os.getuid() == 0 else []
    folder = Path(tempfile.mkdtemp(prefix="convoy-pg-"))
    if as_user:
        shutil.chown(folder, "postgres")
    data, port = folder / "data", _free_port()
    initdb = [str(binaries / "initdb"), "-D", str(data), "-A", "trust", "-U", "convoy", "--no-sync", "-E", "UTF8"]
    options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories='' -c fsync=off"
    pg_ctl = [str(binaries / "pg_ctl"), "-D", str(data), "-w"]
    try:
        subprocess.run([*as_user, *initdb, "--locale=C.UTF-8"], check=True, capture_output=True, cwd="/")
        started = subprocess.run(
            [*as_user, *pg_ctl, "-l", str(folder / "log"), "-o", options, "start"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
        )
        if started.returncode != 0:
            pytest.fail(f"PostgreSQL did not start: {(folder / 'log').read_text()[-300:]}")
        yield f"postgresql://convoy@127.0.0.1:{port}"
    finally:
        subprocess.run([*as_user, *pg_ctl, "-m", "immediate", "stop"], capture_output=True, cwd="/")
        shutil.rmtree(folder, ignore_errors=True)


BOTH = ["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)]


def _postgres_database(server: str, template: str) -> Iterator[str]:
    """A new database made from a template, dropped at the end."""
    import psycopg

    name = f"t{next(_numbers)}"
    with psycopg.connect(f"{server}/postgres", autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} TEMPLATE {template}".encode())
        yield f"{server}/{name}"
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


_numbers = count()


@pytest.fixture(scope="session")
def prepared_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with the schema and no rows, to copy: migrating costs more than a test."""
    path = tmp_path_factory.mktemp("prepared") / "results.db"
    Store.open(path).close()
    return path


@pytest.fixture(scope="session")
def prepared_postgres(postgres_server: str) -> str:
    """The name of a database with the schema and no rows."""
    import psycopg

    with psycopg.connect(f"{postgres_server}/postgres", autocommit=True) as connection:
        connection.execute("CREATE DATABASE prepared")
    Store.open(f"{postgres_server}/prepared").close()
    return "prepared"


@pytest.fixture(params=BOTH)
def blank_location(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A database without a schema, of each kind."""
    if request.param == "sqlite":
        yield str(tmp_path / "results.db")
    else:
        yield from _postgres_database(request.getfixturevalue("postgres_server"), "template0")


@pytest.fixture(params=BOTH)
def location(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A database with the schema and no rows, of each kind."""
    if request.param == "sqlite":
        path = tmp_path / "results.db"
        shutil.copy(request.getfixturevalue("prepared_sqlite"), path)
        yield str(path)
    else:
        template = request.getfixturevalue("prepared_postgres")
        yield from _postgres_database(request.getfixturevalue("postgres_server"), template)


@pytest.fixture
def store(location: str) -> Iterator[Store]:
    """An open store on a new database."""
    opened = Store.open(location)
    yield opened
    opened.close()


class Study:
    """Builds small, fully known studies: cells, attempts and rows with hand-made numbers."""

    CONFIG = {
        "prices": {MODEL: {"uncached": 0.30, "cached": 0.15, "completion": 2.70}},
        "kv": {MODEL: {"bytes_per_token": 65536, "state_bytes": 0}},
    }

    def cell(self, arm: str = "base", num_workers: int = 2, **changes: Any) -> Cell:
        """A cell whose key is its arm and w."""
        cell = Cell(
            cell_key=f"c1-{arm}-{num_workers}",
            spec_json="{}",
            arm=arm,
            num_workers=num_workers,
            renderer=arm,
            router="sticky",
            model=MODEL,
            engine="simulated",
            executor="virtual",
            benchmark="synthetic",
            context_budget_tokens=None,
            seed=0,
            replicate=0,
        )
        return replace(cell, **changes)

    def register(self, store: Store, *cells: Cell, sweep: str = "concurrency", **axes: Any) -> None:
        """Register a sweep over these cells."""
        members = [
            SweepCell(
                sweep=sweep,
                cell_key=cell.cell_key,
                ordinal=index,
                arm=cell.arm,
                axis_labels_json=to_json({"arm": cell.arm, "num_workers": cell.num_workers, **axes}),
            )
            for index, cell in enumerate(cells)
        ]
        store.register_sweep(Sweep(name=sweep, spec_json="{}", created_utc_s=1.0), cells, members)

    def claim(self, store: Store, cell: Cell, owner: str = "here:1", **options: Any) -> Claim:
        """Claim a cell that is free."""
        claim = store.claim(cell.cell_key, owner=owner, lease_s=60, **options)
        assert claim is not None
        return claim

    def attempt(self, claim: Claim, **changes: Any) -> Attempt:
        """The attempt that a claim allows."""
        attempt = Attempt(
            attempt_id=attempt_id_of(claim.cell_key, claim.number),
            cell_key=claim.cell_key,
            number=claim.number,
            lease_epoch=claim.epoch,
            owner=claim.owner,
            started_utc_s=10.0,
            num_tasks=2,
            engine_kind="simulated",
            policy_kind="replay",
            benchmark_source="synthetic",
            signals_source="hindsight",
            stale_coverage=0.5,
            generated="opaque",
            config_json=to_json(self.CONFIG),
        )
        return replace(attempt, **changes)

    def call(self, attempt_id: str, session_id: str = "t0", call_index: int = 1, **changes: Any) -> Call:
        """A successful main call of 1,000 prompt tokens, 800 of them cached, and 100 completion tokens."""
        call = Call(
            attempt_id=attempt_id,
            session_id=session_id,
            call_index=call_index,
            kind="main",
            state="ok",
            model=MODEL,
            num_prompt_tokens=1000,
            num_cached_tokens=800,
            num_completion_tokens=100,
            queue_delay_s=0.5,
            num_preemptions=0,
            replica="r0",
        )
        return replace(call, **changes)

    def session(self, attempt_id: str, ordinal: int = 0, **changes: Any) -> Session:
        """A submitted session `t<ordinal>` of 60 s."""
        session = Session(
            attempt_id=attempt_id,
            session_id=f"t{ordinal}",
            task_id=f"t{ordinal}",
            ordinal=ordinal,
            worker="w0",
            exit_status="Submitted",
            is_timed_out=False,
            is_exhausted=False,
            num_steps=1,
            num_main_calls=1,
            num_auxiliary_calls=0,
            started_s=0.0,
            finished_s=70.0,
            first_request_s=1.0,
            last_response_s=61.0,
            num_compactions=0,
        )
        return replace(session, **changes)

    def sample(self, attempt_id: str, t_s: float = 1.0, **changes: Any) -> ServerSample:
        """A sample of replica r0 with a peak of 90 %."""
        sample = ServerSample(
            attempt_id=attempt_id, replica="r0", t_s=t_s, kv_usage=0.4, kv_usage_peak=0.9, num_preemptions_total=3
        )
        return replace(sample, **changes)

    def run(self, store: Store, cell: Cell, *, state: str = "complete", scale: float = 1.0, **changes: Any) -> Attempt:
        """Run a registered cell: two sessions of one call each, tokens multiplied by `scale`."""
        claim = self.claim(store, cell, states=("planned", "complete", "tainted", "failed", "lost"))
        attempt = self.attempt(claim, **changes)
        recorder = store.recorder()
        recorder.start_attempt(attempt)
        for ordinal in range(2):
            recorder.record_call(
                self.call(
                    attempt.attempt_id,
                    f"t{ordinal}",
                    num_prompt_tokens=round(1000 * scale),
                    num_cached_tokens=round(800 * scale),
                    num_completion_tokens=round(100 * scale),
                )
            )
            recorder.record_session(self.session(attempt.attempt_id, ordinal))
        recorder.record_samples([self.sample(attempt.attempt_id)])
        reasons = to_json(["client lag 80 ms"]) if state == "tainted" else None
        recorder.finish_attempt(
            AttemptEnd(attempt_id=attempt.attempt_id, state=state, finished_utc_s=20.0, taint_reasons_json=reasons)
        )
        return attempt


@pytest.fixture
def study() -> Study:
    """The builder."""
    return Study()


@pytest.fixture
def started(store: Store, study: Study) -> Callable[[], Attempt]:
    """Registers and claims one cell and gives its attempt, not yet started."""

    def make() -> Attempt:
        cell = study.cell()
        study.register(store, cell)
        return study.attempt(study.claim(store, cell))

    return make

"""`python -m db`: every command, every format, and one line for every mistake."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from db.__main__ import main
from db.notes import HINDSIGHT_LINE
from db.store import Store

ENDLESS = "WITH RECURSIVE a(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM a) SELECT count(*) FROM a"


@pytest.fixture
def filled(store: Store, location: str, study: Any) -> str:
    """A sweep of base and refold at w=2 (complete), and at w=4 (base tainted, refold planned)."""
    cells = [study.cell(arm, w) for w in (2, 4) for arm in ("base", "refold")]
    study.register(store, *cells)
    study.run(store, cells[0])
    study.run(store, cells[1], scale=0.5)
    study.run(store, cells[2], state="tainted")
    return location


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of one command."""
    code = main(arguments)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_table_concurrency(filled: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Changes in brackets, missing and tainted cells said, the hindsight line below."""
    code, out, err = run(capsys, "table", "concurrency", "--db", filled, "--format", "markdown")
    assert (code, err) == (0, "")
    # by hand: 1,100 tokens -> 550 (-50 %); 450 USD/M = 0.045 cents -> 0.0225; hit 80 % both; 60 s = 1 min
    assert (
        "| qwen3.6-27b | full | 2 | base | - | 1.10 | 0.04 | 1.0 | 0.00 | 90% | 0.50 | 80.0% | 3 | 0 | 0 | 2.0 |" in out
    )
    assert (
        "| qwen3.6-27b | full | 2 | refold | - | 0.55 (-50%) | 0.02 (-50%) | 1.0 (0%) | 0.00 | 90% (0 pp) | 0.50 (0%)"
        " | 80.0% (0 pp) | 3 (0) | 0 (0) | 0 (0) | 2.0 |"
    ) in out
    assert "| qwen3.6-27b | full | 4 | base | tainted, left out |" in out
    assert "| qwen3.6-27b | full | 4 | refold | missing (planned) |" in out
    assert HINDSIGHT_LINE in out
    assert "Missing: 1 of 4 cells (planned 1): refold w=4." in out


def test_allow_tainted_marks(filled: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The tainted row is shown with a star and its reason."""
    _code, out, _err = run(capsys, "table", "concurrency", "--db", filled, "--allow-tainted")
    assert "base*" in out
    assert "* base w=4: client lag 80 ms" in out


def test_cells_lists_every_cell_with_its_state(filled: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Also those without results."""
    _code, out, _err = run(capsys, "cells", "--db", filled, "--format", "json", "--sweep", "concurrency")
    assert [(row["arm"], row["w"], row["state"], row["tokens"]) for row in json.loads(out)] == [
        ("base", 2, "complete", 1100.0),
        ("refold", 2, "complete", 550.0),
        ("base", 4, "tainted", None),
        ("refold", 4, "planned", None),
    ]


def test_calls_can_be_narrowed(filled: str, capsys: pytest.CaptureFixture[str]) -> None:
    """By cell, session and number; a cut is said on stderr, stdout stays pure data."""
    _code, out, err = run(capsys, "calls", "--db", filled, "--cell", "c1-refold", "--session", "t1", "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert [(row["session_id"], row["num_prompt_tokens"], row["is_priced_uncached"]) for row in rows] == [
        ("t1", "500", "False")
    ]
    assert err == ""
    _code, out, err = run(capsys, "calls", "--db", filled, "--limit", "3", "--format", "csv")
    assert len(list(csv.DictReader(io.StringIO(out)))) == 3
    assert err == "only the first 3 rows are shown; raise --limit\n"
    _code, out, _err = run(capsys, "calls", "--db", filled, "--cell", "x' OR '1'='1", "--format", "csv")
    assert list(csv.DictReader(io.StringIO(out))) == []


def test_calls_for_programs_are_complete(
    filled: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a table for people is cut by default: `calls --format csv > calls.csv` holds every row."""
    monkeypatch.setattr("db.__main__._MAX_CALLS_SHOWN", 1)
    _code, out, err = run(capsys, "calls", "--db", filled, "--format", "csv")
    _code, counted, _err = run(capsys, "sql", "SELECT count(*) AS n FROM v_calls", "--db", filled, "--format", "csv")
    assert len(list(csv.DictReader(io.StringIO(out)))) == int(counted.split()[1]) == 4
    assert err == ""
    assert run(capsys, "calls", "--db", filled)[2] == "only the first 1 rows are shown; raise --limit\n"


def test_sql_answers(filled: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The user's own SELECT, with a trailing semicolon, rows capped."""
    query = "SELECT arm, count(*) AS n FROM v_calls GROUP BY arm ORDER BY arm;"
    assert run(capsys, "sql", query, "--db", filled, "--format", "csv")[1] == "arm,n\nbase,2\nrefold,2\n"
    _code, out, err = run(capsys, "sql", query, "--db", filled, "--format", "csv", "--max-rows", "1")
    assert out == "arm,n\nbase,2\n"
    assert "only the first 1 rows" in err


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("DELETE FROM cell", ""),
        ("SELECT 1; DELETE FROM cell", ""),
        ("SELECT 1; COMMIT; DELETE FROM cell", ""),
        ("ATTACH 'other.db' AS other", ""),
        ("PRAGMA journal_mode = DELETE", ""),
        ("SET TRANSACTION READ WRITE", ""),
        ("SELECT nothing FROM v_cells", "nothing"),
        ("", "empty SQL"),
    ],
)
def test_sql_only_reads(filled: str, capsys: pytest.CaptureFixture[str], statement: str, message: str) -> None:
    """Anything but one SELECT is refused with one line and exit code 2, and changes nothing."""
    code, out, err = run(capsys, "sql", statement, "--db", filled)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert message in err
    assert run(capsys, "sql", "SELECT count(*) AS n FROM cell", "--db", filled, "--format", "csv")[1] == "n\n4\n"


def test_a_slow_query_is_ended(filled: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The time cap holds inside the database."""
    code, _out, err = run(capsys, "sql", ENDLESS, "--db", filled, "--timeout-s", "0.3")
    assert (code, err) == (2, "error: the query ran longer than 0.3 s; narrow it, or raise --timeout-s\n")


def test_export_in_every_format(filled: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """CSV and JSON to stdout or file, Parquet to a file with typed columns."""
    _code, out, _err = run(capsys, "export", "v_sessions", "--db", filled)
    assert len(list(csv.DictReader(io.StringIO(out)))) == 4
    parquet = tmp_path / "calls.parquet"
    code, out, err = run(capsys, "export", "v_calls", "--db", filled, "--format", "parquet", "--out", str(parquet))
    assert (code, out, err) == (0, "", f"4 rows to {parquet}\n")
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(parquet)
    assert table.column("num_prompt_tokens").to_pylist() == [1000, 1000, 500, 500]
    assert not list(tmp_path.glob("*.partial"))
    code, _out, err = run(capsys, "export", "v_calls", "--db", filled, "--format", "parquet")
    assert (code, err) == (2, "error: parquet is binary: name a file with --out FILE\n")


def test_migrate_reports(location: str, capsys: pytest.CaptureFixture[str]) -> None:
    """An up-to-date database is said to be so."""
    assert run(capsys, "migrate", "--db", location)[:2] == (0, "schema 0001 is up to date\n")


def test_mistakes_are_one_line_and_exit_code_two(
    filled: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unknown names list what exists; a missing results.db in this folder says what to do."""
    code, out, err = run(capsys, "table", "nope", "--db", filled)
    assert (code, out, err) == (2, "", "error: no sweep 'nope' in this database; it holds: concurrency\n")
    code, _out, err = run(capsys, "export", "v_runs", "--db", filled)
    assert code == 2
    assert "v_calls" in err
    monkeypatch.chdir(tmp_path / "..")
    code, _out, err = run(capsys, "cells")
    assert code == 2
    assert err.startswith("error: no results database at ")
    code, _out, err = run(capsys, "export", "v_calls", "--db", filled, "--out", "/nowhere/x.csv")
    assert code == 2
    assert err.count("\n") == 1


def test_as_a_program_with_a_closed_pipe(filled: str, repo_root: Path) -> None:
    """`python -m db ... | head -1` ends quietly."""
    command = f"{sys.executable} -m db export v_calls --db '{filled}' | head -1"
    done = subprocess.run(["bash", "-c", command], cwd=repo_root, capture_output=True, text=True)
    assert done.stdout.startswith("cell_key,arm,")
    assert done.stderr == ""

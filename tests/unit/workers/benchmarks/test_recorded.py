"""Recorded runs as tasks: ids, digests, prompts, and every way a path can be wrong."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path

import pytest

from workers.benchmarks.recorded import Recorded
from workers.errors import BenchmarkError
from workers.harnesses.minimal import Minimal
from workers.interfaces import Task

FIXTURES = Path(__file__).resolve().parents[3] / "fixtures" / "trajectories"


def tasks(path: Path, **settings: object) -> list[Task]:
    """The tasks of a path."""
    return list(Recorded(path=str(path), **settings).tasks())  # type: ignore[arg-type]


def refused(path: Path, **settings: object) -> str:
    """The one line with which a path is refused."""
    with pytest.raises(BenchmarkError) as caught:
        tasks(path, **settings)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_a_folder_gives_all_runs_in_id_order() -> None:
    """All fixtures load: nine files, thirteen runs; sorted by id."""
    found = tasks(FIXTURES)
    assert len(found) == 13
    ids = [task.task_id for task in found]
    assert ids == sorted(ids)
    assert {"made__up-1", "made__up-5", "made-up-7", "made-up-7-2", "lmcache-feedbeef"} <= set(ids)


def test_num_tasks_and_min_steps_choose() -> None:
    """The first n in id order, after runs that are too short were left out."""
    long = tasks(FIXTURES, min_steps=3)
    assert all(task.run is not None and len(task.run.steps) >= 3 for task in long)
    assert tasks(FIXTURES, min_steps=3, num_tasks=2) == long[:2]
    assert "benchmark.min_steps=99" in refused(FIXTURES, min_steps=99)
    assert "benchmark.num_tasks=50" in refused(FIXTURES, num_tasks=50)


def test_the_digest_is_of_the_content_not_of_the_path(tmp_path: Path) -> None:
    """The same run under another name, gzipped or not, is the same task; a changed output is another."""
    source = FIXTURES / "mini_v2.traj.json"
    copy = tmp_path / "other.json.gz"
    copy.write_bytes(gzip.compress(source.read_bytes()))
    (one,), (other,) = tasks(source), tasks(copy)
    assert one == other
    changed = tmp_path / "changed.json"
    changed.write_text(source.read_text().replace("total = 1", "total = 2"))
    assert tasks(changed)[0].digest != one.digest


def test_runs_of_one_instance_are_numbered_by_content(tmp_path: Path) -> None:
    """Two runs of one instance get `id` and `id#2`, whatever their files are called; copies are one task."""
    text = (FIXTURES / "mini_v2.traj.json").read_text()
    changed = text.replace("total = 1", "total = 2")
    for names in (("a.json", "b.json"), ("b.json", "a.json")):
        folder = tmp_path / names[0][0]
        folder.mkdir()
        (folder / names[0]).write_text(text)
        (folder / names[1]).write_text(changed)
        (folder / "copy.json").write_text(text)
    first, second = tasks(tmp_path / "a"), tasks(tmp_path / "b")
    assert [task.task_id for task in first] == ["made__up-1", "made__up-1#2"]
    assert first == second


def test_the_prompt_is_the_recorded_opening() -> None:
    """The template is the recorded opening with the list item that a prompt layer replaces, whatever the harness."""
    (task,) = tasks(FIXTURES / "mini_v2.traj.json")
    assert task.run is not None
    template = Recorded(path="unused").prompt(task, Minimal())
    assert template.opening() == task.run.opening
    assert template.observation_role == "tool"
    assert template.format_item is not None
    assert template.format_item in template.task
    (text,) = tasks(FIXTURES / "mini_v1.traj.json")
    assert Recorded(path="unused").prompt(text, Minimal()).observation_role == "user"
    with pytest.raises(BenchmarkError, match="no recorded run"):
        Recorded(path="unused").prompt(Task("t", "s", "d"), Minimal())


def test_a_changed_file_is_loaded_again(tmp_path: Path) -> None:
    """Tasks are cached per process, but not past a change of the file."""
    file = tmp_path / "run.json"
    shutil.copy(FIXTURES / "bare_list.json", file)
    before = tasks(file)
    file.write_text(file.read_text().replace("hello", "goodbye"))
    assert tasks(file) != before


def test_foreign_files_are_listed_and_refused(tmp_path: Path) -> None:
    """A folder with other files names each with its reason; `skip_foreign` leaves them out."""
    shutil.copy(FIXTURES / "bare_list.json", tmp_path)
    (tmp_path / "NOTES.md").write_text("notes")
    (tmp_path / "figures.json").write_text('{"a": 1}')
    message = refused(tmp_path)
    assert "NOTES.md" in message
    assert "figures.json (in no known trajectory format)" in message
    assert "benchmark.skip_foreign=true" in message
    assert len(tasks(tmp_path, skip_foreign=True)) == 1
    report = Recorded(path=str(tmp_path)).report()
    assert report.loaded == (("bare_list.json", 1),)
    assert [skip.name for skip in report.skipped] == ["NOTES.md", "figures.json"]
    assert report.lines()[0] == "loaded bare_list.json: 1 run"


def test_wrong_paths_are_one_line(tmp_path: Path) -> None:
    """No path, a missing one, an empty folder and an unknown format each name the path and the remedy."""
    with pytest.raises(BenchmarkError, match="needs benchmark.path"):
        Recorded().tasks()
    assert "does not exist" in refused(tmp_path / "missing")
    (tmp_path / "empty").mkdir()
    assert "empty folder" in refused(tmp_path / "empty")
    other = tmp_path / "other.json"
    other.write_text('{"a": 1}')
    assert "no known trajectory format; known: mini-swe-agent" in refused(other)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (gzip.compress(b'[{"role": "user"}]')[:-9], "torn or damaged gzip"),
        (b"\x1f\x8bnot gzip at all", "torn or damaged gzip"),
        (b'{"trajectory_format": "mini-swe-agent-1.1", "messages": [', "not valid JSON (line 1"),
        (b'{"a": NaN}', "NaN is not JSON"),
        (b'{"a": "\xff"}', "not UTF-8 (byte 7)"),
        (b"", "is empty"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"trajectory_format": "mini-swe-agent-1.1"}', "missing field 'messages'"),
        (b'{"trajectory_format": "mini-swe-agent-1.1", "messages": [{"role": "user", "content": "x"}]}', "no reply"),
        (b'[{"role": "assistant", "content": "x"}]', "no task message"),
        (b'{"input_length": -1, "output_length": 1, "hash_ids": []}\n{}', "is no token count"),
    ],
)
def test_broken_files_are_one_line(tmp_path: Path, content: bytes, words: str) -> None:
    """Torn, misencoded and ill-shaped files are named with what is wrong; a good file beside them does not help."""
    shutil.copy(FIXTURES / "bare_list.json", tmp_path / "good.json")
    (tmp_path / "bad.json").write_bytes(content)
    for path in (tmp_path / "bad.json", tmp_path):
        message = refused(path, skip_foreign=True)
        assert "bad.json" in message
    if words != "is no token count":
        assert words in message


def test_a_broken_line_is_named(tmp_path: Path) -> None:
    """In JSON lines the number of the broken or foreign line is given."""
    good = (FIXTURES / "neutral.jsonl").read_text().splitlines()
    file = tmp_path / "runs.jsonl"
    file.write_text("\n".join([good[0], good[1][:-5]]))
    assert "line 2" in refused(file)
    file.write_text("\n".join([good[0], json.dumps({"x": 1})]))
    assert "line 2 is not neutral" in refused(file)


def test_an_over_long_line_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line over the limit names its number and length (the limit is lowered here)."""
    monkeypatch.setattr("workers.benchmarks.trajectory_files.MAX_LINE_CHARS", 100)
    assert "line 1 has" in refused(FIXTURES / "neutral.jsonl")


def test_lone_surrogates_are_refused(tmp_path: Path) -> None:
    """JSON can hold half a surrogate pair; no tokenizer or database can."""
    file = tmp_path / "run.json"
    file.write_text((FIXTURES / "bare_list.json").read_text().replace("Say hello.", "Say \\ud800."))
    assert "lone surrogate" in refused(file)


def test_all_original_runs_load(shared_dir: Path) -> None:
    """The 69 text runs have the steps, observation characters and last prompt tokens that were counted elsewhere.

    SWE-agent's counts leave out its own lines behind each output, the fixtures' the submission message.
    """
    folder = shared_dir / "trajectories"
    index = json.loads((folder / "index.json").read_text())
    assert len(index) == 69
    for entry in index:
        (task,) = tasks(folder / entry["file"])
        assert task.run is not None
        steps = task.run.steps
        assert len(steps) == entry["steps"], entry["traj_id"]
        assert steps[-1].num_prompt_tokens == entry.get("prompt_tokens_last")
        assert (steps[0].num_completion_tokens is not None) == entry["has_usage"]
        assert any(step.tool_s is not None for step in steps) == entry["has_tool_s"]
        if entry["fmt"] in ("mini-swe-agent-1.1", "lmcache-call-jsonl"):
            num_chars = sum(len(observation.shown) for step in steps for observation in step.observations)
            assert num_chars == entry["obs_chars"], entry["traj_id"]
        template = Recorded(path="unused").prompt(task, Minimal())
        assert template.opening() == task.run.opening
        if entry["fmt"] == "mini-swe-agent-1.1":
            assert template.format_item == (
                "1. Include a THOUGHT section explaining your reasoning and what you're trying to accomplish"
            )


def test_all_folders_load_together(shared_dir: Path) -> None:
    """82 tasks: 69 with text and the 13 chains of 8 length-only traces; derived files hold the same runs."""
    found = tasks(shared_dir / "trajectories" / "original")
    assert sum(task.run is not None and task.run.has_text for task in found) == 69
    assert len(found) == 82
    atif = tasks(shared_dir / "trajectories" / "derived" / "atif_v1.8.jsonl.gz")
    assert [len(task.run.steps) for task in atif if task.run] == [48, 42, 55, 53]
    assert atif[0].task_id == "deepseek-chat_swebench-lite-test_django__django-10914"

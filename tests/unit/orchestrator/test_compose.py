"""Configurations from overrides: every mistake on a command line is one line that says what exists."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.compose import Composer
from orchestrator.errors import ConfigError, UserError
from orchestrator.home import require_one_home


@pytest.fixture(scope="module")
def composer() -> Composer:
    """The project's own conf/."""
    return Composer()


def compose(composer: Composer, *texts: str) -> dict[str, object]:
    """A configuration from override texts."""
    return composer.compose([composer.vocabulary.parse(text) for text in texts])


def test_values_are_set_and_typed(composer: Composer) -> None:
    """Scalars arrive with the declared type; a component's key and a nested limit are set; defaults stay elsewhere."""
    config = compose(
        composer, "num_workers=16", "temperature=1", "renderer=mask", "renderer.keep_recent=3", "limits.max_steps=9"
    )
    assert config["num_workers"] == 16
    assert isinstance(config["temperature"], float)
    assert config["renderer"]["keep_recent"] == 3  # type: ignore[index]
    assert config["limits"]["max_steps"] == 9  # type: ignore[index]
    assert compose(composer)["num_workers"] == 8


def test_second_model_is_optional(composer: Composer) -> None:
    """Without a choice there is no second model; model@second_model puts one there; null takes it away again."""
    assert compose(composer)["second_model"] is None
    chosen = compose(composer, "model@second_model=qwen3_6_35b_a3b")
    assert chosen["second_model"]["name"] == "Qwen3.6-35B-A3B"  # type: ignore[index]
    assert compose(composer, "model@second_model=null")["second_model"] is None


def test_interpolations_are_resolved(composer: Composer) -> None:
    """The executor's address is the cluster's."""
    assert compose(composer, "cluster=auto")["executor"]["address"] == "auto"  # type: ignore[index]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("renderer=refld", r"unknown renderer 'refld'; did you mean 'refold'\? there are: .*base, "),
        ("renderer=null", "unknown renderer 'None'"),
        ("num_worker=3", r"unknown key 'num_worker'; did you mean 'num_workers'\? there are: .*replicate"),
        ("limits.max_step=3", r"limits: unknown key 'max_step'; did you mean 'max_steps'\?"),
        ("renderer.keep_recent=3", "renderer: unknown key 'keep_recent'"),
        ("num_workers.x=3", "'num_workers' holds no keys"),
        ("num_workers=many", "num_workers: Value 'many' of type 'str' could not be converted to Integer"),
        ("num_workers=null", "num_workers: Incompatible value 'None' for field of type 'int'"),
        ("deadline_s=inf", "deadline_s=inf: give a finite number"),
        ("policy.coverage=nan", r"policy\.coverage=nan: give a finite number"),
        ("num_workers=8,16", r"several values are written as a list, num_workers=\["),
        ("+colour=red", "keys cannot be added"),
        ("++num_workers=3", "keys cannot be added"),
        ("~renderer", "a key cannot be deleted"),
        ("num_workers", "is not an override; write key=value"),
        ("limits=3", r"limits holds keys; set one of them, limits\.<key>=\.\.\. \(max_steps"),
        ("renderer={a: 1}", "unknown renderer"),
        ("db=postgresql", r"db\.url has no default, give it a value: db\.url="),
        ("renderer@renderer.inner=mask", "renderer@renderer.inner=mask: nothing at 'renderer.inner' takes a renderer"),
    ],
)
def test_mistakes_are_one_line(composer: Composer, text: str, message: str) -> None:
    """A misspelt option, key or value, `+`, `~` and a wrong place for a group."""
    with pytest.raises(ConfigError, match=message) as caught:
        compose(composer, text)
    assert "\n" not in str(caught.value)


def test_composing_writes_nothing_and_stays_here(
    composer: Composer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No output folder appears and the working directory is unchanged."""
    monkeypatch.chdir(tmp_path)
    compose(composer, "hardware=h200")
    assert Path.cwd() == tmp_path
    assert list(tmp_path.iterdir()) == []


def test_group_choices_are_composed_once(composer: Composer) -> None:
    """Two configurations with the same groups share one composition but no data."""
    first = compose(composer, "hardware=a100", "num_workers=1")
    count = len(composer._composed)
    second = compose(composer, "hardware=a100", "num_workers=2")
    assert len(composer._composed) == count
    assert (first["num_workers"], second["num_workers"]) == (1, 2)


def test_a_hiding_folder_is_named(tmp_path: Path) -> None:
    """Our packages found elsewhere than beside conf/ would run other code than it seems: refused, with the folder."""
    require_one_home()
    with pytest.raises(UserError, match=f"hides Convoy's own package 'orchestrator' in {tmp_path}"):
        require_one_home(home=tmp_path)
    with pytest.raises(UserError, match="the package 'orchestratorx' is missing"):
        require_one_home(packages=("orchestratorx",))


def test_a_mandatory_value_can_be_given() -> None:
    """conf/db/postgresql.yaml holds `url: ???`: a key that exists and waits for its value."""
    composer = Composer()
    url = "postgresql+psycopg://user@host/convoy"
    overrides = [composer.vocabulary.parse(text) for text in ("db=postgresql", f"db.url={url}")]
    assert composer.compose(overrides)["db"]["url"] == url
    with pytest.raises(ConfigError, match="url"):
        composer.compose([composer.vocabulary.parse("db=postgresql")])

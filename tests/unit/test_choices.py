"""docs/choices.md agrees with conf/ and with the decision notes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from scripts.measure_choices import GROUPS

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "choices.md").read_text(encoding="utf-8")


def literal_settings() -> list[str]:
    """Settings of renderers whose comment says that another value is the paper's letter."""
    names = set()
    for path in (ROOT / "conf" / "renderer").glob("*.yaml"):
        for line in path.read_text(encoding="utf-8").splitlines():
            if (key := re.match(r"([a-z_]+):", line)) and "letter" in line.partition("#")[2]:
                names.add(key[1])
    return sorted(names)


@pytest.mark.parametrize("name", literal_settings())
def test_every_setting_with_a_letter_is_listed(name: str) -> None:
    """A setting that can be put back to the paper's letter stands in docs/choices.md."""
    assert f"`{name}" in TEXT


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: group.renderer)
def test_every_measured_option_exists_and_is_shown(group: object) -> None:
    """What scripts.measure_choices measures is a setting of that renderer and has its row in docs/choices.md."""
    renderer, options = group.renderer, group.options  # type: ignore[attr-defined]
    settings = yaml.safe_load((ROOT / "conf" / "renderer" / f"{renderer}.yaml").read_text(encoding="utf-8"))
    section = TEXT.split(f"### {renderer}")[1].split("###")[0]
    for option in options:
        assert f"`{option.text.removesuffix(' *')}`" in section
        for override in option.overrides:
            assert re.match(r"renderer\.([a-z_]+)=", override)[1] in settings  # type: ignore[index]


def test_every_linked_note_exists() -> None:
    """Links to decision notes lead somewhere."""
    links = re.findall(r"\]\((decisions/[^)]+)\)", TEXT)
    assert links
    assert [link for link in links if not (ROOT / "docs" / link).is_file()] == []

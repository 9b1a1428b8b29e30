"""clip cuts observations that are no longer among the newest."""

import pytest

from tests.unit.workers.renderers.histories import command_turn, history_of, started, text_of
from workers.errors import ConfigurationError
from workers.renderers.clip import Clip, clipped


def test_cap_of_1000_keeps_666_and_334() -> None:
    """Head floor(2C/3) = 666, tail C - 666 = 334 characters around the marker (methods 1A.15 row 14)."""
    text = "a" * 666 + "b" * 2000 + "c" * 334
    cut = clipped(text, 1000)
    assert cut.startswith("a" * 666 + "\n[")
    assert cut.endswith("]\n" + "c" * 334)
    assert "b" not in cut.replace("clipped", "")
    assert "2000 characters" in cut


def test_short_text_stays() -> None:
    """Nothing is cut when the marker would make it longer."""
    assert clipped("x" * 1000, 1000) == "x" * 1000
    assert clipped("x" * 1010, 1000) == "x" * 1010


def test_only_observations_older_than_the_three_newest_are_cut() -> None:
    """Of five long observations the first two are cut, the three most recent stay whole (appendix B.1)."""
    history = history_of(*(command_turn(label, "cat x", "y" * 3000) for label in range(5)))
    rendered = started(Clip()).render(history)
    assert ["clipped" in text_of(rendered, index) for index in range(1, 6)] == [True, True, False, False, False]
    assert (rendered.num_stubs, rendered.boundary) == (2, 2)


@pytest.mark.parametrize("settings", [{"cap_chars": 2}, {"keep_recent": -1}])
def test_impossible_settings_are_refused(settings: dict[str, int]) -> None:
    """A user's mistake is one line that names the value."""
    with pytest.raises(ConfigurationError, match=next(iter(settings))):
        Clip(**settings)

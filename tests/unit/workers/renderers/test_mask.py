"""mask puts one line in place of old observations."""

import pytest

from tests.unit.workers.renderers.histories import command_turn, history_of, started, text_of
from workers.errors import ConfigurationError
from workers.history import History
from workers.renderers.mask import Mask


def long_history(num_turns: int) -> History:
    """Turns with three output lines of 100 characters."""
    return history_of(*(command_turn(label, "ls", "\n".join(["z" * 100] * 3)) for label in range(num_turns)))


def masked(renderer: Mask, num_turns: int) -> int:
    """How many observations show the placeholder."""
    rendered = started(renderer).render(long_history(num_turns))
    return sum("[old output omitted" in text_of(rendered, index) for index in range(1, num_turns + 1))


def test_all_but_the_newest_ten_become_one_line() -> None:
    """N = 10 (Table 8): of 13 observations three are placeholders, replies stay in place."""
    rendered = started(Mask()).render(long_history(13))
    assert text_of(rendered, 3) == "[old output omitted: 3 lines, 302 characters]"
    assert "z" * 100 in text_of(rendered, 4)
    assert sum(segment.part == "agent" for segment in rendered.segments) == 13
    assert rendered.num_stubs == 3


def test_sliding_moves_every_step() -> None:
    """polling=1: t - N observations are masked."""
    assert [masked(Mask(), t) for t in (10, 11, 12, 25)] == [0, 1, 2, 15]


def test_polling_moves_only_every_p_steps() -> None:
    """polling=5, N=10: nothing before t=15, then steps of five; 10 to 14 observations stay."""
    assert [masked(Mask(polling=5), t) for t in range(10, 22)] == [0, 0, 0, 0, 0, 5, 5, 5, 5, 5, 10, 10]


def test_an_observation_shorter_than_the_placeholder_stays() -> None:
    """Masking never makes a prompt longer."""
    history = history_of(*(command_turn(label, "true", "") for label in range(12)))
    rendered = started(Mask(keep_recent=1)).render(history)
    assert sum(len(message.content) for message in rendered.messages) <= sum(
        len(message.content) for message in started(Mask(keep_recent=99)).render(history).messages
    )


def test_impossible_settings_are_refused() -> None:
    """A user's mistake is one line that names the value."""
    with pytest.raises(ConfigurationError, match="polling=0"):
        Mask(polling=0)

"""base renders the history as it is."""

from tests.unit.workers.renderers.histories import OPENING, command_turn, history_of, started
from workers.history import Form, Part
from workers.renderers.base import Base


def test_base_is_the_history() -> None:
    """c_t = h_t (ReFold section 3.1): opening, then reply and observation of every turn, as first shown."""
    history = history_of(command_turn(0, "ls", "a"), command_turn(1, "cat a", "b"))
    rendered = started(Base()).render(history)
    assert [message.content for message in rendered.messages] == [
        *(message.content for message in OPENING),
        history.turn(1).assistant.content,
        "<returncode>0</returncode>\n<output>\na\n</output>",
        history.turn(2).assistant.content,
        "<returncode>0</returncode>\n<output>\nb\n</output>",
    ]
    assert {segment.form for segment in rendered.segments} == {Form.full}
    assert [segment.part for segment in rendered.segments] == [
        Part.opening, Part.agent, Part.observation, Part.agent, Part.observation,
    ]  # fmt: skip


def test_base_leaves_earlier_turns_to_the_outer_renderer() -> None:
    """With visible_from=2 the opening and turns 2.. remain."""
    history = history_of(*(command_turn(label) for label in range(3)))
    rendered = started(Base()).render(history, visible_from=2)
    assert [segment.first_turn for segment in rendered.segments] == [0, 2, 2, 3, 3]


def test_base_starts_again_for_another_history() -> None:
    """A cache follows one history; another one is rendered from its own turns."""
    renderer = started(Base())
    renderer.render(history_of(command_turn(0, "ls", "old")))
    assert "new" in renderer.render(history_of(command_turn(0, "ls", "new"))).messages[-1].content

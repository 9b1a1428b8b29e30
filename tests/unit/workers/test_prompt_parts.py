"""Composition of a prompt and the longest common prefix of two prompts, by hand."""

from __future__ import annotations

import numpy as np

from serving.calls import Message, Prompt
from workers.history import Form, Part, Rendered, Segment
from workers.prompt_parts import PartTokens, shared_tokens, tokens_by_part


def prompt(*pieces: list[int]) -> Prompt:
    """A prompt of the given pieces."""
    arrays = tuple(np.array(piece, dtype=np.int64) for piece in pieces)
    return Prompt(arrays, sum(piece.size for piece in arrays), "digest")


def segment(part: Part, num_messages: int = 1) -> Segment:
    """A segment of `num_messages` messages."""
    return Segment((Message("user", "x"),) * num_messages, 1, 1, Form.full, part)


def test_tokens_are_summed_by_the_part_of_their_segment() -> None:
    """Opening of two messages (2 + 3 tokens), an agent message (4), two observations (1 + 1), a note (5, left out)."""
    rendered = Rendered(
        (segment(Part.opening, 2), segment(Part.agent), segment(Part.observation, 2), segment(Part.note))
    )
    tokens = prompt([1, 1], [2, 2, 2], [3, 3, 3, 3], [4], [5], [6] * 5, [7])
    assert tokens_by_part(rendered, tokens) == PartTokens(opening=5, agent=4, observation=2)


def test_no_earlier_prompt_shares_nothing() -> None:
    """The first prompt of a session has no best possible hit of its own."""
    assert shared_tokens(None, prompt([1, 2])) == 0


def test_prefix_ends_inside_a_piece() -> None:
    """[1 2 | 3 4 5] against [1 2 | 3 9 5]: three tokens."""
    assert shared_tokens(prompt([1, 2], [3, 4, 5]), prompt([1, 2], [3, 9, 5])) == 3


def test_shorter_last_piece_counts_whole() -> None:
    """The generation prompt [7] opens the assistant message [7 8 9] of the next prompt."""
    assert shared_tokens(prompt([1, 2], [7]), prompt([1, 2], [7, 8, 9], [4])) == 3


def test_equal_content_in_other_arrays_is_shared() -> None:
    """Identity of arrays is only a short cut."""
    assert shared_tokens(prompt([1], [2, 3], [4]), prompt([1], [2, 3], [5])) == 3

"""The limits of a session, part of a cell's identity (ReFold section 4.1, Table 5)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """When a session is stopped.

    Attributes:
        max_steps: main-loop calls (250).
        max_completion_tokens: generated tokens a step (16,384).
        idle_timeout_s: a call that streams no token for so long, queue included, ends the session (600 s).
        max_format_errors: replies in a row without a valid action that end the session (3, as mini-swe-agent).
        budget_tokens: usable context B; a longer prompt is not sent and ends the session as exhausted.
    """

    budget_tokens: int
    max_steps: int = 250
    max_completion_tokens: int = 16_384
    idle_timeout_s: float = 600.0
    max_format_errors: int = 3

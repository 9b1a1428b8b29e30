"""Who judges the lines for `prune`: the released SWE-Pruner behind HTTP, or BM25 over lines.

The released scorer (a 0.6 B model) is served by its own package; its `/prune` API takes a question and a text and
returns, among others, the numbers of the lines it keeps. The lexical scorer is a stand-in that needs no download: it
knows words, not meaning, and how much it keeps is not fitted to the released one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from serving.clock import aside
from workers.errors import ConfigurationError
from workers.renderers.lexical_scores import bm25_scores, words_of

# Share of a line's score that the lines 1, 2, 3 away from it get, so that a hit keeps its surroundings. [choice]
_SPREAD = (0.8, 0.65, 0.5)


class ScorerError(Exception):
    """The scorer gave no answer; one line."""


class Scorer(Protocol):
    """Decides which lines of an output bear on a question.

    Attributes:
        name: stored with every decision.
        is_stand_in: whether its own time says nothing about the released scorer's.
    """

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def is_stand_in(self) -> bool:
        """Whether a declared time stands for its own."""
        ...

    async def kept_lines(self, question: str, text: str, threshold: float) -> list[int]:
        """Numbers (from 1, ascending) of the lines whose score reaches `threshold`.

        Raises:
            ScorerError: no answer.
        """
        ...


class LexicalScorer:
    """BM25 of each line for the question's words, in shares of the best line, spread to its neighbours.

    A question that shares no word with the output keeps everything: word overlap then says nothing about it.
    """

    name = "lexical"
    is_stand_in = True

    async def kept_lines(self, question: str, text: str, threshold: float) -> list[int]:
        """See `Scorer`."""
        scores = self.scores(question, text.split("\n"))
        return [number for number, score in enumerate(scores, start=1) if score >= threshold]

    def scores(self, question: str, lines: list[str]) -> list[float]:
        """(n,) scores in [0, 1]; all 1 when the question says nothing about the lines."""
        own = bm25_scores([words_of(line) for line in lines], question)
        best = max(own)
        if best <= 0.0:
            return [1.0] * len(lines)
        own = [score / best for score in own]
        return [self._spread(own, position) for position in range(len(own))]

    @staticmethod
    def _spread(own: list[float], position: int) -> float:
        around = [own[position]]
        for distance, share in enumerate(_SPREAD, start=1):
            if position >= distance:
                around.append(share * own[position - distance])
            if position + distance < len(own):
                around.append(share * own[position + distance])
        return max(around)


class HttpScorer:
    """The released scorer behind its HTTP API.

    Args:
        url: base address; `/prune` is added.
        timeout_s: of one try.
        num_tries: tries before a call counts as failed (3, as in SWE-Pruner's own evaluation).
        post: called as `httpx.post`, which it is by default.
    Raises:
        ConfigurationError: the package httpx is not installed.
    """

    name = "http"
    is_stand_in = False

    def __init__(self, url: str, *, timeout_s: float, num_tries: int, post: Callable[..., Any] | None = None) -> None:
        try:
            import httpx
        except ImportError as exc:
            raise ConfigurationError(
                "renderer prune: scorer=http needs the package httpx: pip install 'convoy[pruner]', or scorer=lexical"
            ) from exc
        self._errors: tuple[type[Exception], ...] = (httpx.HTTPError, ValueError)
        self._post: Callable[..., Any] = post or httpx.post
        self._url = url.rstrip("/") + "/prune"
        self._timeout_s = timeout_s
        self._num_tries = num_tries

    async def kept_lines(self, question: str, text: str, threshold: float) -> list[int]:
        """See `Scorer`."""
        body = {"query": question, "code": text, "threshold": threshold}
        failure = ""
        for _ in range(self._num_tries):
            try:
                answer = await aside(lambda: self._ask(body))
            except self._errors as exc:
                failure = f"{type(exc).__name__}: {exc}".splitlines()[0]
                continue
            if answer.get("error_msg"):
                raise ScorerError(f"{self._url} answered: {answer['error_msg']}")
            kept = answer.get("kept_frags")
            if not isinstance(kept, list) or not all(isinstance(number, int) for number in kept):
                raise ScorerError(f"{self._url}: the answer has no list kept_frags; is it SWE-Pruner's /prune API?")
            return sorted(kept)
        raise ScorerError(f"{self._url}: {self._num_tries} tries failed, last {failure}")

    def _ask(self, body: dict[str, Any]) -> dict[str, Any]:
        response = self._post(self._url, json=body, timeout=self._timeout_s)
        response.raise_for_status()
        answer = response.json()
        return answer if isinstance(answer, dict) else {}

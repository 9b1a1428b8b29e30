"""BM25 over short documents, for `memory` (chunks of outputs) and `prune` (lines); scores are those of bm25s.

bm25s cannot add to an index. Each search therefore indexes the documents anew, but only over the words of the query:
every other word becomes one and the same filler, which keeps the lengths and so the scores as they are and is a tenth
of the work.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from functools import lru_cache

import bm25s

logging.getLogger("bm25s").setLevel(logging.WARNING)  # it sets itself to DEBUG and reports every index

_WORD = re.compile(r"\w\w+")
_CAMEL = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+")
_STOP_WORDS = frozenset(bm25s.stopwords.STOPWORDS_EN)
_FILLER = 0
_LONGEST_CACHED = 64  # characters of a word; a longer one (base64) is not kept


def bm25_scores(documents: Sequence[Sequence[str]], query: str) -> list[float]:
    """(n,) BM25 scores of n documents, given as their words, for a query text; 0 where no word is shared."""
    terms = {word: number for number, word in enumerate(dict.fromkeys(words_of(query)), start=_FILLER + 1)}
    number_of = terms.get
    numbered = [[number_of(word, _FILLER) for word in words] for words in documents]
    if not any(map(any, numbered)):
        return [0.0] * len(documents)
    index = bm25s.BM25()
    index.index((numbered, {"": _FILLER, **terms}), show_progress=False)
    scores: list[float] = index.get_scores(list(terms)).tolist()
    return scores


def words_of(text: str) -> list[str]:
    """Lower-case words, identifiers also in their parts: `as_compatible_data` gives itself, compatible, data."""
    return [
        part
        for word in _WORD.findall(text)
        for part in (_parts(word) if len(word) <= _LONGEST_CACHED else _parts.__wrapped__(word))
    ]


@lru_cache(maxsize=16_384)
def _parts(word: str) -> tuple[str, ...]:
    lowered = word.lower()
    if lowered in _STOP_WORDS:
        return ()
    pieces = [piece.lower() for piece in _CAMEL.findall(word) if len(piece) > 1]
    if len(pieces) < 2:
        return (lowered,)
    return (lowered, *(piece for piece in pieces if piece not in _STOP_WORDS))

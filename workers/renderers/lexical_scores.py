"""BM25 over short documents, for `memory` (chunks of outputs) and `prune` (lines); scores are those of bm25s.

bm25s makes a whole index before it can answer and cannot add to one. A search needs only the documents that share a
word with the query, so the scores are computed here from those, operation by operation as bm25s does.
"""

from __future__ import annotations

import logging
import math
import re
from array import array
from collections import Counter
from collections.abc import Iterable, Sequence

import bm25s
import numpy as np
import numpy.typing as npt

logging.getLogger("bm25s").setLevel(logging.WARNING)  # it sets itself to DEBUG and reports every index

_WORD = re.compile(r"\w\w+")
_CAMEL = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+")
_STOP_WORDS = frozenset(bm25s.stopwords.STOPWORDS_EN)
_K1, _B = 1.5, 0.75  # bm25s's defaults
_COUNT_BITS = 32  # of a posting: document number, then how often the word is in it


def bm25_scores(documents: Sequence[Sequence[str]], query: str) -> list[float]:
    """(n,) BM25 scores of n documents, given as their words, for a query text; 0 where no word is shared."""
    wanted = dict.fromkeys(words_of(query))
    places: dict[str, dict[int, int]] = {word: {} for word in wanted}  # word -> document -> how often
    for number, words in enumerate(documents):
        for word in wanted.keys() & words:
            places[word][number] = words.count(word)
    scores = np.zeros(len(documents), dtype=np.float32)
    lengths = np.array([len(words) for words in documents])
    for found in places.values():
        if found:
            _add_scores(scores, lengths, np.array(list(found)), np.array(list(found.values()), dtype=np.float64))
    return scores.tolist()


def _add_scores(
    scores: npt.NDArray[np.float32],
    lengths: npt.NDArray[np.int64],
    found: npt.NDArray[np.int64],
    counts: npt.NDArray[np.float64],
) -> None:
    """Add one word's scores, which is in the documents `found` so often as `counts` says.

    The operations and their precision are those of bm25s (Lucene's variant): float64, each word's score rounded to
    float32 before the sum.
    """
    idf = np.float32(math.log(1 + (len(lengths) - len(found) + 0.5) / (len(found) + 0.5)))
    share = counts / (_K1 * ((1 - _B) + _B * lengths[found] / lengths.mean()) + counts)
    scores[found] += (np.float64(idf) * share).astype(np.float32)


class GrowingIndex:
    """Documents added one by one and searched in between; scores are those of bm25s over all of them.

    A search looks only at the documents that share a word with the query.
    """

    def __init__(self) -> None:
        self._lengths = array("q")  # words of each document
        self._postings: dict[str, int | array[int]] = {}  # word -> posting, or several; most words are in one document

    def add(self, words: Sequence[str]) -> None:
        """Add a document, given as its words."""
        number = len(self._lengths)
        self._lengths.append(len(words))
        for word, count in Counter(words).items():
            posting = number << _COUNT_BITS | count
            known = self._postings.get(word)
            if known is None:
                self._postings[word] = posting
            elif isinstance(known, int):
                self._postings[word] = array("q", (known, posting))
            else:
                known.append(posting)

    def scores(self, query: str) -> npt.NDArray[np.float32]:
        """(n,) scores of the n documents for a query text; 0 where no word is shared."""
        scores = np.zeros(len(self._lengths), dtype=np.float32)
        lengths = np.array(self._lengths)
        for word in dict.fromkeys(words_of(query)):
            known = self._postings.get(word)
            if known is not None:
                postings = np.array([known] if isinstance(known, int) else known, dtype=np.int64)
                counts = (postings & ((1 << _COUNT_BITS) - 1)).astype(np.float64)
                _add_scores(scores, lengths, postings >> _COUNT_BITS, counts)
        return scores


def words_of(text: str) -> list[str]:
    """Lower-case words, identifiers also in their parts: `as_compatible_data` gives itself, compatible, data."""
    (words,) = words_of_each([text])
    return words


def words_of_each(texts: Iterable[str]) -> list[list[str]]:
    """`words_of` for each of some texts with many words in common."""
    parts = _Parts()
    return [[part for word in _WORD.findall(text) for part in parts[word]] for text in texts]


class _Parts(dict[str, tuple[str, ...]]):
    """Word as written -> the words it gives; filled while one output is read and then let go."""

    def __missing__(self, word: str) -> tuple[str, ...]:
        parts = self[word] = _parts(word)
        return parts


def _parts(word: str) -> tuple[str, ...]:
    lowered = word.lower()
    if lowered in _STOP_WORDS:
        return ()
    pieces = [piece.lower() for piece in _CAMEL.findall(word) if len(piece) > 1]
    if len(pieces) < 2:
        return (lowered,)
    return (lowered, *(piece for piece in pieces if piece not in _STOP_WORDS))

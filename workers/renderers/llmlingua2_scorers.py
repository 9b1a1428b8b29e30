"""Which tokens of an output stay: the released LLMLingua-2 classifier, or a count of how rare each token is."""

from __future__ import annotations

import importlib
import re
from collections import Counter
from functools import lru_cache
from typing import Any, Protocol

from serving.clock import aside
from workers.errors import ConfigurationError

# A token is a piece of an identifier, a number or one mark, with the blanks before it; a line end is one too.
_TOKEN = re.compile(r"\n|[^\S\n]*(?:[A-Za-z]+|\d+|[^\sA-Za-z\d])|[^\S\n]+")
_CLASS_RANK = {"word": 2, "number": 1, "mark": 0}


class TokenScorer(Protocol):
    """Compresses a text by dropping tokens.

    Attributes:
        name: stored with every compression.
    """

    @property
    def name(self) -> str:
        """Its name."""
        ...

    async def compress(self, text: str, rate: float) -> str:
        """The text with about `rate` of its tokens."""
        ...


class RarityScorer:
    """Keeps the tokens that are rare in the text; a stand-in for machines without the classifier.

    Of equally rare tokens words go before numbers before marks, longer ones and earlier ones first. It drops exactly as
    many tokens as asked and knows nothing of meaning, so sizes are comparable, task success is not.
    """

    name = "rarity"

    async def compress(self, text: str, rate: float) -> str:
        """See `TokenScorer`. Keeps round-half-up(n * rate) of the n tokens, line ends included."""
        tokens: list[str] = _TOKEN.findall(text)
        num_kept = int(len(tokens) * rate + 0.5)
        words = [token.strip() for token in tokens]
        counts = Counter(words)
        ranks = {word: (count, -_CLASS_RANK[_class_of(word)], -len(word)) for word, count in counts.items()}
        order = sorted(range(len(tokens)), key=lambda position: ranks[words[position]])
        return "".join(tokens[position] for position in sorted(order[:num_kept]))


@lru_cache(maxsize=65_536)
def _class_of(word: str) -> str:
    if word.isalpha():
        return "word"
    return "number" if word.isdigit() else "mark"


class LlmLingua:
    """The released classifier in the package llmlingua, which is loaded at the first use.

    Args:
        model: a name on the model hub or a local folder.
        device: `cuda`, `cpu`, ...
    """

    name = "llmlingua"

    def __init__(self, model: str, device: str) -> None:
        try:
            importlib.import_module("llmlingua")
        except ImportError as exc:
            raise ConfigurationError(
                "renderer llmlingua2: scorer=llmlingua needs the package llmlingua: pip install 'convoy[llmlingua]', "
                "or scorer=rarity"
            ) from exc
        self._model = model
        self._device = device

    async def compress(self, text: str, rate: float) -> str:
        """See `TokenScorer`."""
        return await aside(lambda: self._compress(text, rate))

    def _compress(self, text: str, rate: float) -> str:
        compressor = _loaded(self._model, self._device)
        result = compressor.compress_prompt_llmlingua2([text], rate=rate, force_tokens=["\n"])
        return str(result["compressed_prompt"])


@lru_cache(maxsize=1)
def _loaded(model: str, device: str) -> Any:
    """One classifier per process; it is 2 GB."""
    package = importlib.import_module("llmlingua")
    return package.PromptCompressor(model_name=model, use_llmlingua2=True, device_map=device)

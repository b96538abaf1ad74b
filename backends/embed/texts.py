"""Texts as token ids, with the tokens that an encoder wants around them, and within the length that it takes."""

from collections.abc import Sequence
from typing import Any

from tokenizers import Tokenizer

from gateway.errors import ContextTooLong, InvalidTensor, LoadFailed

TOKENS = "prompt_token_ids"
"""The parameter that has token ids instead of texts."""


class Texts:
    """An encoder's tokenizer."""

    def __init__(self, tokenizer_json: str, most_tokens: int) -> None:
        try:
            self._whole = Tokenizer.from_str(tokenizer_json)
            self._cut = Tokenizer.from_str(tokenizer_json)
        except Exception as error:
            raise LoadFailed(f"tokenizer.json cannot be used: {str(error)[:200]}") from None
        # NOTE: many files have a length baked in, to which every text would be cut and filled up.
        self._whole.no_truncation()
        self._cut.enable_truncation(most_tokens)
        for tokenizer in (self._whole, self._cut):
            tokenizer.no_padding()
        self.most_tokens = most_tokens
        self.size = self._whole.get_vocab_size(with_added_tokens=True)

    def encode(self, texts: Sequence[str], *, cut: bool) -> list[list[int]]:
        """The tokens of each; `cut` shortens those that are too long. Raises InvalidTensor or ContextTooLong."""
        tokenizer = self._cut if cut else self._whole
        try:
            encoded = [one.ids for one in tokenizer.encode_batch_fast(list(texts))]
        except (UnicodeEncodeError, TypeError):
            raise InvalidTensor("text is not valid Unicode text") from None
        return self._checked(encoded)

    def given(self, value: Any, *, cut: bool) -> list[list[int]]:
        """Token ids as the caller has them. Raises InvalidTensor or ContextTooLong."""
        if not isinstance(value, list) or not all(isinstance(one, list) for one in value):
            raise InvalidTensor(f"parameters.{TOKENS}: expected a list of lists of token ids")
        for token in (token for one in value for token in one):
            if isinstance(token, bool) or not isinstance(token, int) or not 0 <= token < self.size:
                raise InvalidTensor(f"parameters.{TOKENS}: expected token ids from 0 to {self.size - 1}")
        return self._checked([one[: self.most_tokens] if cut else one for one in value])

    def _checked(self, encoded: list[list[int]]) -> list[list[int]]:
        for place, tokens in enumerate(encoded):
            if not tokens:
                raise InvalidTensor(f"text {place} has no tokens")
            if len(tokens) > self.most_tokens:
                raise ContextTooLong(
                    f"text {place} has {len(tokens)} tokens; the model takes {self.most_tokens}, "
                    "or set the parameter truncate to true"
                )
        return encoded

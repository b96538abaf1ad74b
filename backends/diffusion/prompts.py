"""Prompts as the text encoder takes them: CLIP's tokens, cut and filled to the length that it was trained with."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from gateway.errors import LoadFailed

_WORDS = r"""'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"""
"""What CLIP takes for a word."""

Ids = np.ndarray[Any, np.dtype[Any]]


class Prompts:
    """Texts to token ids. Shapes: [texts] -> [texts, length]."""

    def __init__(self, tokenizer: Tokenizer, length: int, filler: str, dtype: np.dtype[Any]) -> None:
        self._tokenizer = tokenizer
        self._length = length
        filling = tokenizer.token_to_id(filler)
        if filling is None:
            raise LoadFailed(f"tokenizer/tokenizer_config.json: the vocabulary has no pad_token {filler!r}")
        self._filling: int = filling
        self._dtype = dtype
        tokenizer.no_padding()
        tokenizer.enable_truncation(length)

    def encode(self, texts: Sequence[str]) -> Ids:
        """The ids of each text, its beginning and its end marked; what does not fit is cut off."""
        ids = np.full((len(texts), self._length), self._filling, self._dtype)
        # PERF: 20 us for each text that differs; encode_batch wakes threads of its own, which takes 300 us.
        known = {text: self._tokenizer.encode(text).ids for text in dict.fromkeys(texts)}
        for row, text in enumerate(texts):
            ids[row, : len(known[text])] = known[text]
        return ids


def from_json(text: str) -> Tokenizer:
    """The tokenizer that tokenizer.json describes. Raises LoadFailed."""
    try:
        return Tokenizer.from_str(text)
    except Exception:  # tokenizers raises nothing more special
        raise LoadFailed("tokenizer/tokenizer.json is not a tokenizer") from None


def from_vocabulary(vocabulary: dict[str, int], merges: Sequence[str], begin: str, end: str) -> Tokenizer:
    """CLIP's tokenizer from the two files that older exports have. Raises LoadFailed."""
    lines = [line.split() for line in merges if line.strip() and not line.startswith("#version")]
    try:
        pairs = [(left, right) for left, right in lines]
        model = models.BPE(
            vocabulary, pairs, unk_token=end, end_of_word_suffix="</w>", continuing_subword_prefix="", fuse_unk=False
        )
        tokenizer = Tokenizer(model)
        tokenizer.normalizer = normalizers.Sequence(
            [normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()]
        )
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(Regex(_WORDS), behavior="removed", invert=True),
                pre_tokenizers.ByteLevel(add_prefix_space=False),
            ]
        )
        tokenizer.decoder = decoders.ByteLevel()
        tokenizer.post_processor = processors.RobertaProcessing(
            (end, vocabulary[end]), (begin, vocabulary[begin]), trim_offsets=False, add_prefix_space=False
        )
    except Exception:
        raise LoadFailed("tokenizer/vocab.json and merges.txt do not make a tokenizer") from None
    return tokenizer

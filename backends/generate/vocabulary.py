"""A model's tokens: text to ids and back to bytes, with no way for a client's text to become a control token."""

import re
from collections.abc import Iterable
from typing import Any

import msgspec
from tokenizers import Tokenizer

from gateway.errors import InvalidTensor, LoadFailed

GUARD = "\ufdd0"
"""A noncharacter that keeps the text on both of its sides apart: it is cut out, and each side is encoded alone."""

_BYTE_PIECE = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_SPACE = "\u2581"


class Vocabulary:
    """A tokenizer, and the bytes of each of its tokens."""

    def __init__(self, tokenizer_json: str, size: int) -> None:
        try:
            self._tokenizer = Tokenizer.from_str(tokenizer_json)
        except Exception as error:
            raise LoadFailed(f"tokenizer.json cannot be used: {str(error)[:200]}") from None
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self.json = self._tokenizer.to_str()
        described = msgspec.json.decode(self.json)
        self.size = size
        self.added = {one["id"]: one["content"] for one in described.get("added_tokens") or () if one["content"]}
        self.special = frozenset(one["id"] for one in described.get("added_tokens") or () if one["special"])
        self.bytes, self.strips_space = _bytes_of(self._tokenizer, described, self.added, size)
        self.longest = max(map(len, self.bytes))
        self._control = re.compile("|".join(map(re.escape, sorted(self.added.values(), key=len, reverse=True))) or "$^")

    def encode(self, text: str, where: str, bare: bool = False) -> list[int]:
        """The tokens of the text. `bare`: without tokens around them, and what is between two guards alone.

        Raises InvalidTensor for half a surrogate pair.
        """
        parts = [part for part in text.split(GUARD) if part] if bare else [text]
        try:
            encoded = self._tokenizer.encode_batch_fast(parts, add_special_tokens=not bare)
        except (UnicodeEncodeError, TypeError):
            raise InvalidTensor(f"{where} is not valid Unicode text") from None
        return [token for part in encoded for token in part.ids]

    def guarded(self, value: Any) -> Any:
        """The JSON value with every text in it made unable to hold a control token."""
        if isinstance(value, str):
            return self._guarded_text(value)
        if isinstance(value, list):
            return [self.guarded(item) for item in value]
        if isinstance(value, dict):
            return {self._guarded_text(key): self.guarded(item) for key, item in value.items()}
        return value

    def _guarded_text(self, text: str) -> str:
        text = text.replace(GUARD, "\ufffd")
        while True:
            apart = self._control.sub(lambda match: match[0][0] + GUARD + match[0][1:], text)
            if apart == text:
                return text
            text = apart

    def token_named(self, text: str) -> int | None:
        """The added token with this content."""
        return next((token for token, content in self.added.items() if content == text), None)

    def shown(self, tokens: Iterable[int]) -> str:
        """The tokens as text, invalid UTF-8 replaced."""
        return b"".join(self.bytes[token] for token in tokens).decode("utf-8", "replace")


def _bytes_of(
    tokenizer: Tokenizer, described: dict[str, Any], added: dict[int, str], size: int
) -> tuple[list[bytes], bool]:
    """The bytes of every token, and whether a text's first space is dropped. Ids without a token have none."""
    kinds = {one["type"] for one in _decoders(described.get("decoder"))}
    if "ByteLevel" in kinds:
        piece_bytes = _byte_level
    elif kinds & {"ByteFallback", "Metaspace", "Replace"}:
        piece_bytes = _metaspace
    else:
        raise LoadFailed(f"tokenizer.json: a decoder of kind {', '.join(sorted(kinds)) or 'none'} is not supported")
    found = []
    for token in range(size):
        piece = tokenizer.id_to_token(token)
        found.append(b"" if piece is None else added[token].encode() if token in added else piece_bytes(piece))
    return found, bool(kinds & {"Strip", "Metaspace"})


def _decoders(decoder: dict[str, Any] | None) -> list[dict[str, Any]]:
    if not decoder:
        return []
    return decoder["decoders"] if decoder["type"] == "Sequence" else [decoder]


def _metaspace(piece: str) -> bytes:
    byte = _BYTE_PIECE.fullmatch(piece)
    return bytes([int(byte[1], 16)]) if byte else piece.replace(_SPACE, " ").encode()


def _byte_level(piece: str) -> bytes:
    return b"".join(_BYTES.get(char) or char.encode() for char in piece)


def _byte_characters() -> dict[str, bytes]:
    """The printable character that stands for each byte, as GPT-2's tokenizer has it, and back."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table = {chr(byte): bytes([byte]) for byte in printable}
    rest = [byte for byte in range(256) if byte not in set(printable)]
    return table | {chr(256 + place): bytes([byte]) for place, byte in enumerate(rest)}


_BYTES = _byte_characters()

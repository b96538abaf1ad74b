"""Codes of keys and their hashes: fast ones for codes that were generated here, slow ones for codes of people.

A generated code has 192 bits of chance, so nobody finds it from its SHA-256. What a person chose can be guessed, so
each guess must cost: scrypt, with the parameters that OWASP's password storage cheat sheet gives for 16 MiB.
"""

import hashlib
import hmac
import secrets
from collections.abc import Iterable

GENERATED, CHOSEN = "sha256", "scrypt"
_N, _R, _P = 16384, 8, 5
_SALT_BYTES = 16
_PREFIX = "tg_"
_MEMORY = 64 << 20
LONGEST = 1024
"""Characters of a code."""


def generate() -> tuple[str, str]:
    """A new code, to be shown once, and its hash."""
    code = f"{_PREFIX}{secrets.token_urlsafe(24)}"
    return code, f"{GENERATED}:{hashlib.sha256(code.encode()).hexdigest()}"


def chosen(code: str, salt: bytes | None = None) -> str:
    """The hash of a code that a person chose; takes a fifth of a second, so call it on a thread.

    Codes that are hashed with the same salt are checked at the price of one. Raises ValueError for what is no code.
    """
    if not may_be_chosen(code) or code != code.strip() or not code.isprintable():
        raise ValueError(
            f"a code must have 1 to {LONGEST} printable characters, no space at either end and no {_PREFIX} before them"
        )
    salt = salt or secrets.token_bytes(_SALT_BYTES)
    return f"{CHOSEN}:{_N}:{_R}:{_P}:{salt.hex()}:{_stretched(code.encode(), salt).hex()}"


def may_be_chosen(code: str) -> bool:
    """Whether a person may have chosen it; one that looks generated need not be checked slowly."""
    return 1 <= len(code) <= LONGEST and not code.startswith(_PREFIX)


def is_slow(hashed: str) -> bool:
    """Whether a check of it takes long."""
    return hashed.startswith(CHOSEN)


def sha256_of(hashed: str) -> bytes:
    """The digest of a generated code."""
    return bytes.fromhex(hashed.partition(":")[2])


def salt_of(hashed: str) -> str:
    """The salt of a slow hash, as it is written there."""
    return hashed.split(":")[4]


def find(code: bytes, hashes: Iterable[str]) -> str:
    """The slow hash that is the code's; empty if none is. Blocks for a fifth of a second a salt."""
    by_salt: dict[str, list[str]] = {}
    for hashed in hashes:
        by_salt.setdefault(salt_of(hashed), []).append(hashed)
    found = ""
    for salt, same in by_salt.items():
        digest = _stretched(code, bytes.fromhex(salt)).hex()
        for hashed in same:
            if hmac.compare_digest(hashed.rpartition(":")[2], digest):
                found = hashed
    return found


def _stretched(code: bytes, salt: bytes) -> bytes:
    return hashlib.scrypt(code, salt=salt, n=_N, r=_R, p=_P, maxmem=_MEMORY, dklen=32)

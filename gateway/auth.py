"""Application keys: which services a call's credential opens.

A key travels as `Authorization: APPCODE key`, `Authorization: Bearer key` or, where that header is taken, as
`X-Tensorgate-Key: key`.
"""

import hashlib
import hmac
import os
import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path

from gateway.config import ConfigError, Secret, ServiceConfig
from gateway.errors import Forbidden, Unauthenticated
from gateway.types import Call

_LONGEST = 1024
_NONE: frozenset[str] = frozenset()


class Authenticator:
    """The keys of all services, kept as keyed digests only."""

    def __init__(self, services: Mapping[str, ServiceConfig], base: Path) -> None:
        # NOTE: the digest key lives as long as the process, so a memory dump of one digest is no use elsewhere,
        # and a dictionary lookup by digest tells an attacker nothing about the stored keys by its timing.
        self._digest_key = secrets.token_bytes(32)
        self._protected = frozenset(name for name, service in services.items() if service.app_auth)
        opened: dict[bytes, set[str]] = {}
        for name in self._protected:
            codes = _codes(name, services[name], base)
            for code in codes:
                opened.setdefault(self._digest(code), set()).add(name)
        self._opened = {digest: frozenset(names) for digest, names in opened.items()}

    def protects(self, service: str) -> bool:
        """Whether calls of this service need a key."""
        return service in self._protected

    def opened(self, call: Call) -> frozenset[str]:
        """The services that the call's key opens; none without a valid key."""
        if not self._protected:
            return _NONE
        code = _credential(call)
        if code is None or len(code) > _LONGEST:
            return _NONE
        return self._opened.get(self._digest(code), _NONE)

    def admit(self, call: Call, opened: frozenset[str], service: str) -> None:
        """Let the call reach the service, or raise Unauthenticated or Forbidden."""
        if service not in self._protected or service in opened:
            return
        if opened:
            raise Forbidden("this key does not open the service")
        raise Unauthenticated(_missing(call))

    def admit_any(self, call: Call, opened: frozenset[str], services: Iterable[str]) -> None:
        """Raise Unauthenticated when every one of the services needs a key and the call has no valid one.

        This can be said before the body is read, and before the target is known.
        """
        if opened or not self._protected:
            return
        if all(service in self._protected for service in services):
            raise Unauthenticated(_missing(call))

    def _digest(self, code: str) -> bytes:
        return hmac.digest(self._digest_key, code.encode("utf-8", "surrogateescape"), hashlib.sha256)


def _credential(call: Call) -> str | None:
    own = call.header(b"x-tensorgate-key")
    if own is not None:
        return own.strip()
    scheme, _, code = (call.header(b"authorization") or "").partition(" ")
    return code.strip() if scheme.lower() in ("appcode", "bearer") else None


def _missing(call: Call) -> str:
    if _credential(call) is None:
        return "this service needs a key: send the header 'Authorization: APPCODE <key>'"
    return "the key is not valid"


def _codes(name: str, service: ServiceConfig, base: Path) -> tuple[str, ...]:
    """The service's keys, as latin-1 text, which is how headers are read."""
    where = f"services.{name}.app_codes"
    codes = (_secret(where, service.app_codes, base),) if isinstance(service.app_codes, Secret) else service.app_codes
    if not codes:
        raise ConfigError(f"{where}: app_auth is on, so at least one code is needed")
    for code in codes:
        if not code.strip() or len(code) > _LONGEST:
            raise ConfigError(f"{where}: a code must have 1 to {_LONGEST} characters")
    return tuple(code.strip().encode("utf-8").decode("latin-1") for code in codes)


def _secret(where: str, secret: Secret, base: Path) -> str:
    if bool(secret.env) == bool(secret.file):
        raise ConfigError(f"{where}: give exactly one of env and file")
    if secret.env:
        if secret.env not in os.environ:
            raise ConfigError(f"{where}: the environment variable {secret.env} is not set")
        return os.environ[secret.env]
    try:
        return (base / secret.file).read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{where}: {secret.file} cannot be read: {getattr(error, 'strerror', error)}") from None

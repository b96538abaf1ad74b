"""Application keys and signatures: which services a call's credential opens.

A key travels as `Authorization: APPCODE key`, `Authorization: Bearer key` or, where that header is taken, as
`X-Tensorgate-Key: key`. A signature with one of the service's AWS credentials counts as its key.
"""

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from gateway import sigv4
from gateway.config import ConfigError, ModelsControlConfig, Secret, ServiceConfig, secret_text
from gateway.errors import Forbidden, Unauthenticated
from gateway.routing import Service
from gateway.types import Call

_LONGEST = 1024
_NONE: frozenset[str] = frozenset()
_CALLER_KEY = secrets.token_bytes(32)


class Authenticator:
    """The keys of all services, kept as keyed digests only, and the secrets that sign for them."""

    def __init__(
        self,
        services: Mapping[str, ServiceConfig],
        base: Path,
        control: ModelsControlConfig = ModelsControlConfig(),  # noqa: B008 - it is frozen
        clock: Callable[[], float] = time.time,
    ) -> None:
        # NOTE: the digest key lives as long as the process, so a memory dump of one digest is no use elsewhere,
        # and a dictionary lookup by digest tells an attacker nothing about the stored keys by its timing.
        self._digest_key = secrets.token_bytes(32)
        self._clock = clock
        protected = {name: service for name, service in services.items() if service.app_auth}
        opened: dict[bytes, set[str]] = {}
        signers: dict[str, dict[str, set[str]]] = {}
        for name, service in protected.items():
            for code in _codes(name, service, base):
                opened.setdefault(self._digest(code), set()).add(name)
            for access_key_id, secret in _signers(name, service, base):
                signers.setdefault(access_key_id, {}).setdefault(secret, set()).add(name)
        self._opened = {digest: frozenset(names) for digest, names in opened.items()}
        self._signers = {
            access_key_id: {secret: frozenset(names) for secret, names in found.items()}
            for access_key_id, found in signers.items()
        }
        """Access key id to the services that each of its secrets opens."""
        self.verifies = bool(signers)
        """Whether a signature may open anything; then every call must pass `verified`."""
        self._control = frozenset(self._digest(code) for code in _control_codes(control, base, bool(protected)))
        self._controllable = control.enabled

    def opened(self, call: Call) -> frozenset[str]:
        """The services that the call's key opens; none without a valid key.

        A signature opens them until the body is here: then `verified` decides.
        """
        if not self._opened and not self.verifies:
            return _NONE
        code = _credential(call)
        if code is None and self.verifies and sigv4.is_signed(call):
            return self._claimed(call)
        if code is None or len(code) > _LONGEST:
            return _NONE
        return self._opened.get(self._digest(code), _NONE)

    def caller(self, call: Call, opened: frozenset[str]) -> bytes:
        """Whose budget a call uses: a digest of the key that has `opened` services; empty without one.

        It stays the same however often services and keys change.
        """
        if not opened:
            return b""
        code = _credential(call)
        if code is None:
            code = "signature " + sigv4.read(call, self._clock()).access_key_id
        return hmac.digest(_CALLER_KEY, code.encode("utf-8", "surrogateescape"), hashlib.sha256)

    def verified(self, head: Call, opened: frozenset[str], payload: bytes) -> frozenset[str]:
        """Of the services that were `opened`, those that stay so: by a key, or by a secret that has signed the call.

        `head` has the path, and `payload` is the body, as the client sent them.
        """
        if not opened or _credential(head) is not None:
            return opened
        try:
            signature = sigv4.read(head, self._clock())
        except Unauthenticated:
            return _NONE
        secrets_of = self._signers.get(signature.access_key_id, {})
        good = [names for secret, names in secrets_of.items() if sigv4.matches(signature, secret, head, payload)]
        return _NONE.union(*good)

    def admit_control(self, call: Call) -> None:
        """Let the call load and unload models, or raise Forbidden or Unauthenticated."""
        if not self._controllable:
            raise Forbidden("models are not loaded by call here; the configuration's [models_control] may allow it")
        if not self._control:
            return
        code = _credential(call)
        if code is not None and len(code) <= _LONGEST and self._digest(code) in self._control:
            return
        if self.opened(call):
            raise Forbidden("this key does not open model control")
        raise Unauthenticated(self._missing(call))

    def admit(self, call: Call, opened: frozenset[str], service: Service) -> None:
        """Let the call reach the service, or raise Unauthenticated or Forbidden."""
        if not service.protected or service.name in opened:
            return
        if opened:
            raise Forbidden("this key does not open the service")
        raise Unauthenticated(self._missing(call))

    def admit_any(self, call: Call, opened: frozenset[str], services: Sequence[Service]) -> None:
        """Raise Unauthenticated when every one of the services needs a key and the call has no valid one.

        This can be said before the body is read, and before the target is known.
        """
        if opened or not services:
            return
        for service in services:
            if not service.protected:
                return
        raise Unauthenticated(self._missing(call))

    def _claimed(self, call: Call) -> frozenset[str]:
        """The services that the call's signature opens if a secret of its access key id has made it."""
        try:
            signature = sigv4.read(call, self._clock())
        except Unauthenticated:
            return _NONE
        return _NONE.union(*self._signers.get(signature.access_key_id, {}).values())

    def _missing(self, call: Call) -> str:
        if _credential(call) is not None:
            return "the key is not valid"
        if not sigv4.is_signed(call):
            return "this service needs a key: send the header 'Authorization: APPCODE <key>'"
        if not self.verifies:
            return "signatures are not looked at here: send the header 'X-Tensorgate-Key: <key>' beside yours"
        try:
            signature = sigv4.read(call, self._clock())
        except Unauthenticated as error:
            return str(error)
        if signature.access_key_id not in self._signers:
            return "the signature's access key id is not known here"
        return "the signature does not match: the secret, or what was signed, is another"

    def _digest(self, code: str) -> bytes:
        return hmac.digest(self._digest_key, code.encode("utf-8", "surrogateescape"), hashlib.sha256)


def _credential(call: Call) -> str | None:
    own = call.header(b"x-tensorgate-key")
    if own is not None:
        return own.strip()
    scheme, _, code = (call.header(b"authorization") or "").partition(" ")
    return code.strip() if scheme.lower() in ("appcode", "bearer") else None


def _codes(name: str, service: ServiceConfig, base: Path) -> tuple[str, ...]:
    """The service's keys, as latin-1 text, which is how headers are read."""
    where = f"services.{name}.app_codes"
    if not service.app_codes and not service.aws_credentials:
        raise ConfigError(f"{where}: app_auth is on, so at least one code is needed")
    return _texts(where, service.app_codes, base)


def _control_codes(control: ModelsControlConfig, base: Path, protected: bool) -> tuple[str, ...]:
    where = "models_control.app_codes"
    if control.enabled and protected and not control.app_codes:
        raise ConfigError(f"{where}: services here need keys, so loading models must need one too")
    return _texts(where, control.app_codes, base)


def _texts(where: str, app_codes: tuple[str, ...] | Secret, base: Path) -> tuple[str, ...]:
    codes = (secret_text(where, app_codes, base),) if isinstance(app_codes, Secret) else app_codes
    for code in codes:
        if not code.strip() or len(code) > _LONGEST:
            raise ConfigError(f"{where}: a code must have 1 to {_LONGEST} characters")
    return tuple(code.strip().encode("utf-8").decode("latin-1") for code in codes)


def _signers(name: str, service: ServiceConfig, base: Path) -> Iterator[tuple[str, str]]:
    """Access key ids, each with a secret."""
    for number, credential in enumerate(service.aws_credentials):
        where = f"services.{name}.aws_credentials[{number}]"
        secret = secret_text(f"{where}.secret", credential.secret, base)
        if not credential.access_key_id or not secret:
            raise ConfigError(f"{where}: access_key_id and secret must not be empty")
        yield credential.access_key_id, secret

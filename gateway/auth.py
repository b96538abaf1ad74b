"""Application keys and signatures: which services a call's credential opens.

A key travels as `Authorization: APPCODE key`, `Authorization: Bearer key` or, where that header is taken, as
`X-Tensorgate-Key: key`. A signature with one of the service's AWS credentials counts as its key.
"""

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from gateway import keys, passes, sigv4
from gateway.codechecks import CodeChecks
from gateway.config import ConfigError, ModelsControlConfig, Secret, ServiceConfig, secret_text
from gateway.errors import Forbidden, Unauthenticated
from gateway.grants import INFER, NOTHING, Grant, Opening, Openings
from gateway.routing import Service
from gateway.types import Call

_OPENED = "opened"
_NOTHING_LEARNED: Mapping[str, Any] = {}
_CALLER_KEY = secrets.token_bytes(32)

MOST_SALTS = 8
"""A check of a slow code costs a fifth of a second for each."""


class Authenticator:
    """The keys of all services, kept as keyed digests only, and the secrets that sign for them."""

    def __init__(
        self,
        services: Mapping[str, ServiceConfig],
        base: Path,
        control: ModelsControlConfig = ModelsControlConfig(),  # noqa: B008 - it is frozen
        clock: Callable[[], float] = time.time,
        steady: Callable[[], float] = time.time,
        checks: CodeChecks | None = None,
        own_passes: passes.Passes | None = None,
        caller_key: bytes = _CALLER_KEY,
    ) -> None:
        # NOTE: the digest key lives as long as the process, so a memory dump of one digest is no use elsewhere,
        # and a dictionary lookup by digest tells an attacker nothing about the stored keys by its timing.
        self._digest_key = secrets.token_bytes(32)
        self._caller_key = caller_key
        """One for all processes, which share what a key may use."""
        self._clock = clock
        """For signatures, whose time is the client's."""
        self._steady = steady
        """For expiries."""
        self._checks = checks or CodeChecks()
        self._passes = own_passes
        """None without a control plane, the only one to make any."""
        protected = {name: service for name, service in services.items() if service.app_auth}
        opened: dict[bytes, list[Opening]] = {}
        slow: dict[str, list[Opening]] = {}
        signers: dict[str, dict[str, set[str]]] = {}
        for name, service in protected.items():
            for code in _codes(name, service, base):
                opened.setdefault(self._digest(code), []).append(Opening(name))
            for hashed, opening in _stored(name, service):
                if keys.is_slow(hashed):
                    slow.setdefault(hashed, []).append(opening)
                else:
                    opened.setdefault(self._keyed(keys.sha256_of(hashed)), []).append(opening)
            for access_key_id, secret in _signers(name, service, base):
                signers.setdefault(access_key_id, {}).setdefault(secret, set()).add(name)
        self._opened = {digest: Openings(openings) for digest, openings in opened.items()}
        """By the digest of the code."""
        self._slow = {hashed: Openings(openings) for hashed, openings in slow.items()}
        """As `_opened`, for codes that are checked before their digests are known."""
        self._signers = {
            access_key_id: {secret: frozenset(names) for secret, names in found.items()}
            for access_key_id, found in signers.items()
        }
        """Access key id to the services that each of its secrets opens."""
        self.protects = bool(protected)
        """Whether any service needs a key."""
        self.verifies = bool(signers)
        """Whether a signature may open anything; then every call must pass `verified`."""
        self._control = frozenset(self._digest(code) for code in _control_codes(control, base, bool(protected)))
        self._controllable = control.enabled

    def opened(self, call: Call, protocol: str = "", operation: str = INFER) -> Grant:
        """What the call's key opens; NOTHING without a valid key, and for a slow one that was never used before.

        A signature opens its services until the body is here: then `verified` decides.
        """
        if not self._opened and not self.verifies and not self._slow and self._passes is None:
            return NOTHING
        found = self._learned(call)
        if found is None:
            code = _credential(call)
            if code is None and self.verifies and sigv4.is_signed(call):
                return self._claimed(call)
            found = self._found(code)
            if found is None:
                return NOTHING
            self._learn(call, code, found)
        return found.grant(self._steady(), protocol, operation)

    def _learned(self, call: Call) -> Openings | None:
        """What this one has found the call's key to open, if the same head has come before."""
        # PERF: 4 us of 56, for a client that keeps its connection.
        who, found = (call.learned or _NOTHING_LEARNED).get(_OPENED, (None, None))
        return found if who is self else None

    def _learn(self, call: Call, code: str | None, found: Openings) -> None:
        if call.learned is not None and code is not None and not code.startswith(passes.PREFIX):
            call.learned[_OPENED] = (self, found)

    async def grant(self, call: Call, services: Sequence[Service], peer: str, protocol: str, operation: str) -> Grant:
        """As `opened`, where the key may also be a slow one of those services that was never used before.

        Raises RateLimited where too many such keys are tried.
        """
        code = _credential(call) if self._slow else None
        if code is not None and keys.may_be_chosen(code) and self._found(code) is None:
            names = {service.name for service in services}
            wanted = [hashed for hashed, found in self._slow.items() if any(one.service in names for one in found)]
            if wanted:
                await self._checks.check(code.encode("latin-1"), wanted, peer)
        return self.opened(call, protocol, operation)

    def _found(self, code: str | None) -> Openings | None:
        """What the code opens; None for one that is not known."""
        if code is None or len(code) > keys.LONGEST:
            return None
        found = self._opened.get(self._digest(code))
        if found is None and self._slow:
            found = self._slow.get(self._checks.known(code.encode("latin-1")))
        if found is None and self._passes is not None and (opening := self._passes.opening(code)) is not None:
            found = Openings([opening])
        return found

    @property
    def has_slow(self) -> bool:
        """Whether any key has to be checked by `grant`."""
        return bool(self._slow)

    def caller(self, call: Call, opened: Grant) -> bytes:
        """Whose budget a call uses: a digest of the key that has `opened` services; empty without one.

        It stays the same however often services and keys change.
        """
        if not opened:
            return b""
        code = _credential(call)
        if code is not None and code.startswith(passes.PREFIX):  # each of a user's calls has another
            code = f"pass of {opened.key}"
        if code is None:
            code = "signature " + sigv4.read(call, self._clock()).access_key_id
        return hmac.digest(self._caller_key, code.encode("utf-8", "surrogateescape"), hashlib.sha256)

    def verified(self, head: Call, opened: Grant, payload: bytes) -> Grant:
        """Of the services that were `opened`, those that stay so: by a key, or by a secret that has signed the call.

        `head` has the path, and `payload` is the body, as the client sent them.
        """
        if not opened or _credential(head) is not None:
            return opened
        try:
            signature = sigv4.read(head, self._clock())
        except Unauthenticated:
            return NOTHING
        secrets_of = self._signers.get(signature.access_key_id, {})
        return _signed(names for secret, names in secrets_of.items() if sigv4.matches(signature, secret, head, payload))

    def admit_control(self, call: Call) -> None:
        """Let the call load and unload models, or raise Forbidden or Unauthenticated."""
        if not self._controllable:
            raise Forbidden("models are not loaded by call here; the configuration's [models_control] may allow it")
        if not self._control:
            return
        code = _credential(call)
        if code is not None and len(code) <= keys.LONGEST and self._digest(code) in self._control:
            return
        if self.opened(call):
            raise Forbidden("this key does not open model control")
        raise Unauthenticated(self._missing(call))

    def admit(self, call: Call, opened: Grant, service: Service) -> None:
        """Let the call reach the service, or raise Unauthenticated or Forbidden."""
        if not service.protected or service.name in opened:
            return
        if opened:
            raise Forbidden(opened.refusal(service.name))
        raise Unauthenticated(self._missing(call))

    def admit_any(self, call: Call, opened: Grant, services: Sequence[Service]) -> None:
        """Raise Unauthenticated or Forbidden when none of the services can be reached by the call.

        This can be said before the body is read, and before the target is known.
        """
        if not services:
            return
        for service in services:
            if not service.protected or service.name in opened:
                return
        self.admit(call, opened, services[0])

    def _claimed(self, call: Call) -> Grant:
        """The services that the call's signature opens if a secret of its access key id has made it."""
        try:
            signature = sigv4.read(call, self._clock())
        except Unauthenticated:
            return NOTHING
        return _signed(self._signers.get(signature.access_key_id, {}).values())

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
        return self._keyed(hashlib.sha256(code.encode("latin-1")).digest())

    def _keyed(self, digest: bytes) -> bytes:
        # PERF: 0.4 us; HMAC of SHA-256 takes 1.3.
        return hashlib.blake2s(digest, key=self._digest_key).digest()


def _credential(call: Call) -> str | None:
    own = call.header(b"x-tensorgate-key")
    if own is not None:
        return own.strip()
    scheme, _, code = (call.header(b"authorization") or "").partition(" ")
    return code.strip() if scheme.lower() in ("appcode", "bearer") else None


def _codes(name: str, service: ServiceConfig, base: Path) -> tuple[str, ...]:
    """The service's keys, as latin-1 text, which is how headers are read."""
    return _texts(f"services.{name}.app_codes", service.app_codes, base)


def _control_codes(control: ModelsControlConfig, base: Path, protected: bool) -> tuple[str, ...]:
    where = "models_control.app_codes"
    if control.enabled and protected and not control.app_codes:
        raise ConfigError(f"{where}: services here need keys, so loading models must need one too")
    return _texts(where, control.app_codes, base)


def _texts(where: str, app_codes: tuple[str, ...] | Secret, base: Path) -> tuple[str, ...]:
    codes = (secret_text(where, app_codes, base),) if isinstance(app_codes, Secret) else app_codes
    for code in codes:
        if not code.strip() or len(code) > keys.LONGEST:
            raise ConfigError(f"{where}: a code must have 1 to {keys.LONGEST} characters")
    return tuple(code.strip().encode("utf-8").decode("latin-1") for code in codes)


def _stored(name: str, service: ServiceConfig) -> Iterator[tuple[str, Opening]]:
    """Hashes of codes, and what they open."""
    ids: set[str] = set()
    salts: set[str] = set()
    for number, key in enumerate(service.keys):
        where = f"services.{name}.keys[{number}]"
        if key.id in ids:
            raise ConfigError(f"{where}.id: {key.id!r} is taken")
        ids.add(key.id)
        if key.revoked:
            continue
        if keys.is_slow(key.hash):
            salts.add(keys.salt_of(key.hash))
        if len(salts) > MOST_SALTS:
            raise ConfigError(f"{where}.hash: codes of one service may have {MOST_SALTS} different salts at most")
        expires = key.expires_at.timestamp() if key.expires_at is not None else None
        yield key.hash, Opening(name, key.id, frozenset(key.scopes), expires)


def _signed(opened: Iterable[frozenset[str]]) -> Grant:
    services = frozenset[str]().union(*opened)
    return Grant(services, True) if services else NOTHING


def _signers(name: str, service: ServiceConfig, base: Path) -> Iterator[tuple[str, str]]:
    """Access key ids, each with a secret."""
    for number, credential in enumerate(service.aws_credentials):
        where = f"services.{name}.aws_credentials[{number}]"
        secret = secret_text(f"{where}.secret", credential.secret, base)
        if not credential.access_key_id or not secret:
            raise ConfigError(f"{where}: access_key_id and secret must not be empty")
        yield credential.access_key_id, secret

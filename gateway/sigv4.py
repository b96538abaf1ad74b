"""AWS Signature Version 4: whether a known secret has signed a call, its head and its body.

SPEC: AWS General Reference, "Create a signed AWS API request". Over the path as it was sent lies one more
percent-encoding, which every service but S3 asks for.
"""

import hashlib
import hmac
import re
from datetime import UTC, datetime
from urllib.parse import quote

from msgspec import Struct

from gateway.errors import Unauthenticated
from gateway.types import Call

ALGORITHM = "AWS4-HMAC-SHA256"
SERVICE = "sagemaker"
"""The name that clients of the one AWS protocol here sign for."""
SKEW_SECONDS = 15 * 60

_SIGNED_ALWAYS = frozenset({b"host", b"x-amz-date"})
_UNSIGNED = frozenset({b"x-amzn-trace-id", b"x-amzn-requestid"})
"""Load balancers put these in."""
_DATE = re.compile(r"(\d{8})T\d{6}Z", re.ASCII)
_HEX = re.compile(r"[0-9a-f]{64}")
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9a-z-]+")


class Signature(Struct, frozen=True):
    """What the Authorization header says."""

    access_key_id: str
    date: str
    region: str
    service: str
    signed_headers: tuple[str, ...]
    value: str

    @property
    def scope(self) -> str:
        return f"{self.date}/{self.region}/{self.service}/aws4_request"


def is_signed(call: Call) -> bool:
    """Whether the call carries a signature, good or bad."""
    return (call.header(b"authorization") or "").startswith(ALGORITHM)


def read(call: Call, now: float) -> Signature:
    """The signature that the call's head carries, for `now` in Unix seconds; nothing is computed yet.

    Raises Unauthenticated for one that cannot be right, whatever the secret.
    """
    signature = _parse(call.header(b"authorization") or "")
    if signature.service != SERVICE:
        raise Unauthenticated(f"the signature is for the service {signature.service[:64]!r}, not for {SERVICE!r}")
    moment = call.header(b"x-amz-date") or ""
    found = _DATE.fullmatch(moment)
    if found is None or found[1] != signature.date:
        raise Unauthenticated("the signature's date is not that of the header X-Amz-Date")
    if abs(_seconds(moment) - now) > SKEW_SECONDS:
        raise Unauthenticated(
            f"the signature's date is more than {SKEW_SECONDS // 60} minutes from now; check the clock"
        )
    signed = {name.encode("latin-1") for name in signature.signed_headers}
    for name in sorted(_SIGNED_ALWAYS | {name for name, _ in call.headers if name.startswith(b"x-amz")} - _UNSIGNED):
        if name not in signed:
            raise Unauthenticated(f"the header {name[:64].decode('latin-1')} must be among the signed headers")
    return signature


def matches(signature: Signature, secret: str, call: Call, payload: bytes) -> bool:
    """Whether the secret made the signature over this call, its path with all prefixes and its body as it was sent."""
    digest = hashlib.sha256(payload).hexdigest()
    declared = call.header(b"x-amz-content-sha256")
    if declared is not None and declared != digest:
        return False
    request = hashlib.sha256(_canonical(signature, call, digest)).hexdigest()
    text = f"{ALGORITHM}\n{call.header(b'x-amz-date')}\n{signature.scope}\n{request}"
    key = f"AWS4{secret}".encode()
    for part in (*signature.scope.split("/"), text):
        key = hmac.digest(key, part.encode("latin-1"), hashlib.sha256)
    return hmac.compare_digest(key.hex(), signature.value)


def _parse(authorization: str) -> Signature:
    """`AWS4-HMAC-SHA256 Credential=ID/DATE/REGION/SERVICE/aws4_request, SignedHeaders=a;b, Signature=HEX`."""
    algorithm, _, rest = authorization.partition(" ")
    fields = {name.strip(): value.strip() for name, _, value in (part.partition("=") for part in rest.split(","))}
    credential = fields.get("Credential", "").split("/")
    names = tuple(fields.get("SignedHeaders", "").split(";"))
    value = fields.get("Signature", "")
    good = (
        algorithm == ALGORITHM
        and len(fields) == 3
        and len(credential) == 5
        and credential[4] == "aws4_request"
        and all(credential)
        and all(_HEADER_NAME.fullmatch(name) for name in names)
        and list(names) == sorted(set(names))
        and _HEX.fullmatch(value)
    )
    if not good:
        raise Unauthenticated(f"the header Authorization is not a well-formed {ALGORITHM} signature")
    access_key_id, date, region, service, _ = credential
    return Signature(access_key_id, date, region, service, names, value)


def _seconds(moment: str) -> float:
    try:
        return datetime.strptime(moment, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC).timestamp()
    except ValueError:
        raise Unauthenticated("the header X-Amz-Date is not a date") from None


def _canonical(signature: Signature, call: Call, digest: str) -> bytes:
    """The canonical request."""
    values: dict[bytes, list[bytes]] = {}
    for name, value in call.headers:
        values.setdefault(name, []).append(b" ".join(value.split()))
    signed = [name.encode("latin-1") for name in signature.signed_headers]
    pairs = sorted(tuple(pair.partition("=")[::2]) for pair in call.query.split("&") if pair)
    lines = [
        call.method.encode("latin-1"),
        quote(call.raw_path, safe="/~", encoding="latin-1").encode("ascii"),
        "&".join(f"{name}={value}" for name, value in pairs).encode("latin-1"),
        *(name + b":" + b",".join(values.get(name, ())) for name in signed),
        b"",
        b";".join(signed),
        digest.encode("ascii"),
    ]
    return b"\n".join(lines)

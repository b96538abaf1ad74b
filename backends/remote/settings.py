"""The `[remote]` table of model.toml, and what must be true of it before anything is asked."""

import os
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from msgspec import Meta, Struct

from gateway.errors import LoadFailed
from gateway.interfaces import ModelSource
from gateway.types import FLOAT32_CARRIED, TensorSpec

Seconds = Annotated[float, Meta(gt=0, le=86400)]
Task = Literal["chat", "completions", "embeddings"]

DTYPES = FLOAT32_CARRIED | {"string", "bool", "float16", "float32", "float64"}
DTYPES |= {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}

NEVER_FORWARDED = frozenset(
    {"authorization", "cookie", "set-cookie", "host", "content-length", "content-type", "content-encoding", "accept",
     "accept-encoding", "connection", "keep-alive", "proxy-connection", "proxy-authenticate", "proxy-authorization",
     "te", "trailer", "transfer-encoding", "upgrade", "expect", "x-tensorgate-key", "x-request-id",
     "inference-header-content-length"}
)  # fmt: skip
"""The client's own affairs, those of one connection, and what the gateway says itself."""

ALWAYS_FORWARDED = ("traceparent", "tracestate")
_KEY_BYTES = 16 << 10


class Secret(Struct, frozen=True, forbid_unknown_fields=True):
    """A value that lives elsewhere: exactly one of `env` (a variable's name) and `file` (a path)."""

    env: str = ""
    file: str = ""


class TensorConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """One entry of `inputs` and `outputs`."""

    dtype: str = "float32"
    shape: tuple[Annotated[int, Meta(ge=-1)], ...] | None = None
    """-1 for a free dimension; without a shape, any is taken."""


class Config(Struct, frozen=True, forbid_unknown_fields=True):
    """The `[remote]` table of model.toml."""

    kind: Literal["openai", "tfserving", "v2"]
    """What the server speaks."""
    urls: Annotated[tuple[str, ...], Meta(min_length=1, max_length=64)]
    """Servers that all have the model; for openai up to and with `/v1`, as its clients' base_url."""
    model: str = ""
    """The model's name there; empty for its name here."""
    version: Annotated[int, Meta(ge=0)] = 0
    """The version to ask tfserving or v2 for; 0 leaves it to the server."""
    api_key: Secret | None = None
    """Sent as a Bearer token."""
    ca_file: str = ""
    """Certificates to trust instead of the usual ones, relative to the model's folder."""
    forward_headers: tuple[str, ...] = ()
    """The client's headers that the server is told, beside traceparent, tracestate and the request's id."""
    offers: Annotated[tuple[Task, ...], Meta(min_length=1)] = ("chat", "completions")
    """What an openai server is asked for; without completions, a prompt is asked as a user's message."""
    defaults: dict[str, Any] = {}
    """Fields for requests that do not give them; openai only."""
    context_length: Annotated[int, Meta(ge=0)] = 0
    """Tokens that the language model takes, as clients are told; 0 for not known."""
    signature: str = "serving_default"
    """The tfserving signature that `[signatures]` and `inputs` are about."""
    inputs: dict[str, TensorConfig] = {}
    """The model's inputs and outputs, for a server that does not tell, or may be down at load."""
    outputs: dict[str, TensorConfig] = {}
    required: bool = False
    """Whether a server must answer for the version to load; else it loads, and is not ready until one does."""
    start_seconds: Annotated[float, Meta(ge=0, le=3600)] = 10.0
    """How long a load waits for a server."""
    connect_seconds: Seconds = 5.0
    head_seconds: Seconds = 300.0
    """Until an answer begins; a whole one begins when it is complete."""
    idle_seconds: Seconds = 60.0
    """Between two pieces of an answer."""
    total_seconds: Seconds = 600.0
    """For everything, retries included; the caller's own deadline may be sooner."""
    retries: Annotated[int, Meta(ge=0, le=16)] = 2
    """Further attempts, while no byte of an answer has come."""
    retry_statuses: tuple[Annotated[int, Meta(ge=400, le=599)], ...] = (429, 502, 503, 504)
    backoff_seconds: Seconds = 0.25
    """Before the same server is asked again; doubled each time, less a random part."""
    most_backoff_seconds: Seconds = 10.0
    """A Retry-After beyond it is passed to the caller instead."""
    eject_after: Annotated[int, Meta(ge=1)] = 3
    """Failures in a row that put a server aside."""
    eject_seconds: Seconds = 5.0
    """For how long; doubled each time, up to 16 times."""
    most_connections: Annotated[int, Meta(ge=1, le=65536)] = 256
    answer_bytes: Annotated[int, Meta(ge=1)] = 64 << 20
    """Largest answer, whole or in parts."""


def checked(config: Config) -> Config:
    """The table, if it can be meant. Raises LoadFailed."""
    for place, url in enumerate(config.urls):
        if not _is_base(url):
            raise LoadFailed(
                f"remote.urls[{place}]: expected http://HOST[:PORT][/PATH] or https://..., without user, query or "
                "fragment"
            )
    for name in config.forward_headers:
        if name.lower() in NEVER_FORWARDED or not name.isascii() or not name.replace("-", "").isalnum():
            raise LoadFailed(f"remote.forward_headers: {name[:64]!r} is never passed on")
    if config.kind != "openai" and bool(config.inputs) != bool(config.outputs):
        raise LoadFailed("remote: give inputs and outputs, or neither")
    if config.kind == "openai" and (config.inputs or config.outputs):
        raise LoadFailed('remote.inputs: a language model has its own; they go with kind "tfserving" or "v2"')
    return config


def specs(table: dict[str, TensorConfig], side: str) -> dict[str, TensorSpec]:
    """The tensors that the table declares. Raises LoadFailed."""
    for name, one in table.items():
        if one.dtype not in DTYPES:
            raise LoadFailed(f"remote.{side}.{name}.dtype: expected one of {', '.join(sorted(DTYPES))}")
    return {
        name: TensorSpec(name, one.dtype, one.shape and tuple(None if size < 0 else size for size in one.shape))
        for name, one in table.items()
    }


def api_key(config: Config, source: ModelSource) -> str:
    """The key, or nothing. Raises LoadFailed where it cannot be had."""
    secret = config.api_key
    if secret is None:
        return ""
    if bool(secret.env) == bool(secret.file):
        raise LoadFailed("remote.api_key: give exactly one of env and file")
    try:
        told = os.environ[secret.env] if secret.env else _first(source.root / secret.file)
    except KeyError:
        raise LoadFailed(f"remote.api_key: the environment variable {secret.env} is not set") from None
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise LoadFailed(f"remote.api_key: the file cannot be read: {reason}") from None
    key = told.strip()
    if not key or not key.isascii() or not key.isprintable():
        raise LoadFailed("remote.api_key: expected one line of printable ASCII")
    return key


def _first(file: Path) -> str:
    with file.open("rb") as opened:
        return opened.read(_KEY_BYTES).decode()


def _is_base(url: str) -> bool:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return False
    whole = parts.scheme in ("http", "https") and parts.hostname and not parts.query and not parts.fragment
    return bool(whole) and "@" not in url and url.isascii() and url.isprintable() and " " not in url

"""OpenAI's API: models, chat completions, completions, embeddings and pictures, whole or as server-sent events.

Source: OpenAI's OpenAPI description 2.3.0; openai-python 3.57 for what clients make of the answers.
"""

import re
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Annotated

from msgspec import Meta, Struct

from adapters.openai import cards, errors
from adapters.openai.bodies import Bodies
from adapters.openai.chat import Chat
from adapters.openai.completions import Completions
from adapters.openai.embeddings import Embeddings
from adapters.openai.fields import Unknown
from adapters.openai.images import Images
from gateway.errors import GatewayError
from gateway.interfaces import Adapter, DecodeLimits, Index, Infer, Operation, Status
from gateway.types import Call, InferenceRequest, InferenceResponse, ModelMetadata, Reply, Target

_BASE = r"(?:/openai)?/v1"
_CALLS = ("/chat/completions", "/completions", "/embeddings", "/images/generations")
_TFSERVING = re.compile(
    r"POST (?i:/v1/models)\b.*:\w*|\w+ (?i:/v1/models)/[^/:]+(?:/(?i:versions|labels)/[^/:]+)?(?:/(?i:metadata))?"
)
"""Method and path of what only TF Serving has; a name alone is both protocols'."""
_NAME = re.compile(r"/v1/models/[^/:]+")


class Config(Struct, frozen=True, forbid_unknown_fields=True):
    """The table [protocols.openai]."""

    flat_choice: bool = True
    """Whether a whole chat answer repeats role and content in the choice itself, as the platform's manual shows."""
    unknown_fields: Unknown = "ignore"
    """"ignore" names them in the header x-ignored-params, "refuse" answers 400."""
    most_choices: Annotated[int, Meta(ge=1, le=128)] = 8
    """The most that `n` may ask for."""
    body_bytes: Annotated[int, Meta(ge=1)] = 16 << 20
    """Largest body; [limits] body_bytes holds too."""
    bare_paths: bool = False
    """Whether the paths also answer without /v1."""


class OpenAI:
    """The adapter."""

    ignores_unknown_codings = False

    def __init__(self, config: Config) -> None:
        self._config = config

    def routes(self) -> Iterable[Operation]:
        """The operations, under /v1 and under /openai/v1."""
        config = self._config
        target = Bodies(config.body_bytes).target
        chat = Chat(config.flat_choice, config.unknown_fields, config.most_choices)
        completions = Completions(config.unknown_fields, config.most_choices)
        embeddings = Embeddings(config.unknown_fields)
        images = Images(config.unknown_fields)
        base = f"(?:{_BASE})?" if config.bare_paths else _BASE
        yield _post("/chat/completions", base, target, chat.decode, chat.encode, chat.stream)
        yield _post("/completions", base, target, completions.decode, completions.encode, completions.stream)
        yield _post("/embeddings", base, target, embeddings.decode, embeddings.encode)
        yield _post("/images/generations", base, target, images.decode, images.encode)
        yield Index(method="GET", path="/v1/models", pattern=re.compile(f"{base}/models"), encode=cards.index)
        yield Status(
            method="GET",
            path="/v1/models/{model}",
            pattern=re.compile(f"{base}/models/(?P<model>.+)"),
            encode=cards.one,
        )

    def claims(self, call: Call) -> int:
        """SPEC: below /v1 the client's own headers tell OpenAI's clients from TF Serving's."""
        path = call.raw_path
        if path.startswith("/openai/v1/") or path in (f"/v1{one}" for one in _CALLS):
            return 3
        if not path.startswith("/v1/"):
            return 0
        others = _TFSERVING.fullmatch(f"{call.method} {path}") and not _NAME.fullmatch(path)
        return 1 if others or not _is_openais(call) else 3

    def encode_error(self, error: GatewayError, call: Call) -> Reply:
        """`{"error": {message, type, param, code}}`."""
        return errors.encode(error, call)


def _post(
    path: str,
    base: str,
    target: Callable[[Call], Target],
    decode: Callable[[Call, Target, ModelMetadata], InferenceRequest],
    encode: Callable[[InferenceResponse, InferenceRequest, Call], Reply],
    stream: Callable[[AsyncIterator[InferenceResponse], InferenceRequest, Call], Reply] | None = None,
) -> Infer:
    """The operation below /v1 of that path."""
    return Infer(
        method="POST",
        path=f"/v1{path}",
        pattern=re.compile(base + path),
        target=target,
        decode=decode,
        encode=encode,
        stream=stream,
        allowance=errors.allowance_headers,
    )


def _is_openais(call: Call) -> bool:
    bearer = (call.header(b"authorization") or "")[:7].lower() == "bearer "
    return bearer or any(name.startswith(b"x-stainless-") for name, _ in call.headers)


def create(config: Config, limits: DecodeLimits) -> Adapter:
    """The adapter under this configuration."""
    return OpenAI(config)

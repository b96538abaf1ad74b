"""The Open Inference Protocol (v2), as KServe, Triton and MLServer speak it, over HTTP and over gRPC.

Source: kserve/open-inference-protocol, specification/protocol; Triton's extensions for binary tensors, generate and
the model repository.
"""

import re
from collections.abc import AsyncIterator, Callable, Iterable
from functools import partial

import orjson
from msgspec import Struct

from adapters._tensorjson import NonFinite
from adapters.v2 import describe, errors, generate, requests, responses, service
from adapters.v2.repository import Repository
from adapters.v2.targets import from_path
from gateway.errors import GatewayError, ModelNotFound
from gateway.interfaces import (
    Adapter,
    Answer,
    DecodeLimits,
    Describe,
    Index,
    Infer,
    Manage,
    Operation,
    Ready,
    Status,
)
from gateway.types import (
    Call,
    InferenceRequest,
    InferenceResponse,
    ModelMetadata,
    ModelStatus,
    Reply,
    Target,
)

__all__ = ["Config", "create"]

_MODEL = r"/v2/models/(?P<model>[^/]+)(?:/versions/(?P<version>[^/]+))?"
_SHOWN = "/v2/models/{model}[/versions/{version}]"
_NAMELESS = r"/v2/models"


class Config(Struct, frozen=True, forbid_unknown_fields=True):
    """The table [protocols.v2]."""

    non_finite: NonFinite = "token"
    """How NaN and infinities are written in JSON: "token" as Triton does, or for strict readers "null" or "string"."""


class V2:
    """The adapter."""

    ignores_unknown_codings = False

    def __init__(self, config: Config, limits: DecodeLimits) -> None:
        self._config = config
        self._limits = limits

    def routes(self) -> Iterable[Operation]:
        """The operations of both transports; a path that names no model means the one that prefix or host name."""
        yield from self._server()
        yield from self._models()
        yield from self._repository()
        yield from service.routes(self._limits)

    def claims(self, call: Call) -> int:
        """Everything below /v2; gRPC answers for methods that it does not know by itself."""
        return int(call.raw_path == "/v2" or call.raw_path.startswith("/v2/"))

    def encode_error(self, error: GatewayError, call: Call) -> Reply:
        """`{"error": text}`, or a gRPC status."""
        return errors.encode(error, call)

    # Routes...

    def _server(self) -> Iterable[Operation]:
        yield Answer(method="GET", path="/v2", pattern=re.compile("/v2/?"), reply=_server_metadata)
        yield Answer(method="GET", path="/v2/health/live", reply=_live)
        yield Ready(method="GET", path="/v2/health/ready", encode=_ready)

    def _models(self) -> Iterable[Operation]:
        yield Describe(method="GET", path=_SHOWN, pattern=re.compile(_MODEL), target=from_path, encode=_model_metadata)
        yield Status(
            method="GET",
            path=f"{_SHOWN}/ready",
            pattern=re.compile(f"{_MODEL}/ready"),
            target=from_path,
            encode=_model_ready,
        )
        yield from self._infer("infer", self._decode, self._encode, quickly=self._decode_quickly)
        yield from self._infer("generate", partial(self._generate, False), self._generated)
        yield from self._infer("generate_stream", partial(self._generate, True), self._generated, self._stream)

    def _infer(
        self,
        verb: str,
        decode: Callable[[Call, Target, ModelMetadata], InferenceRequest],
        encode: Callable[[InferenceResponse, InferenceRequest, Call], Reply],
        stream: Callable[[AsyncIterator[InferenceResponse], InferenceRequest, Call], Reply] | None = None,
        quickly: Callable[[Call, Target, ModelMetadata], InferenceRequest | None] | None = None,
    ) -> Iterable[Operation]:
        for path, pattern in ((f"{_SHOWN}/{verb}", _MODEL), (f"/v2/models/{verb}", _NAMELESS)):
            yield Infer(
                method="POST",
                path=path,
                pattern=re.compile(f"{pattern}/{verb}"),
                target=from_path,
                decode=decode,
                decode_quickly=quickly or _never_quickly,
                encode=encode,
                stream=stream,
            )

    def _repository(self) -> Iterable[Operation]:
        repository = Repository(self._limits)
        one = "/v2/repository/models/{model}"
        yield Index(method="POST", path="/v2/repository/index", encode=repository.index)
        yield Manage(method="POST", path=f"{one}/load", command=repository.load, encode=repository.done)
        yield Manage(method="POST", path=f"{one}/unload", command=repository.unload, encode=repository.done)

    # Infer and generate...

    def _decode(self, call: Call, target: Target, metadata: ModelMetadata) -> InferenceRequest:
        return requests.decode(call, target, metadata, self._limits)

    def _decode_quickly(self, call: Call, target: Target, metadata: ModelMetadata) -> InferenceRequest | None:
        return requests.decode_quickly(call, target, metadata, self._limits)

    def _encode(self, response: InferenceResponse, request: InferenceRequest, call: Call) -> Reply:
        return responses.encode(response, request.wire, self._config.non_finite)

    def _generate(self, stream: bool, call: Call, target: Target, metadata: ModelMetadata) -> InferenceRequest:
        return generate.decode(call, target, metadata, self._limits, stream)

    def _generated(self, response: InferenceResponse, request: InferenceRequest, call: Call) -> Reply:
        return generate.encode(response, request, self._config.non_finite)

    def _stream(self, given: AsyncIterator[InferenceResponse], request: InferenceRequest, call: Call) -> Reply:
        return generate.stream(given, request, self._config.non_finite)


def _never_quickly(call: Call, target: Target, metadata: ModelMetadata) -> InferenceRequest | None:
    """Large prompts are rare, and read on a thread."""
    return None


def _server_metadata(call: Call) -> Reply:
    return Reply(orjson.dumps(describe.server()))


def _live(call: Call) -> Reply:
    return Reply(b'{"live":true}')


def _ready(ready: bool, call: Call) -> Reply:
    """SPEC: false is a 4xx."""
    return Reply(orjson.dumps({"ready": ready}), 200 if ready else 400)


def _model_metadata(metadata: ModelMetadata, call: Call, target: Target) -> Reply:
    return Reply(orjson.dumps(describe.model(metadata)))


def _model_ready(status: ModelStatus | None, call: Call, target: Target) -> Reply:
    if status is None:
        raise ModelNotFound("there is no such model", target.model or "", target.version)
    ready = describe.is_ready(status, target)
    return Reply(orjson.dumps({"name": status.name, "ready": ready}), 200 if ready else 400)


def create(config: Config, limits: DecodeLimits) -> Adapter:
    """The adapter under this configuration."""
    return V2(config, limits)

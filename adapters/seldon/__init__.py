"""Seldon: the prediction protocol of Seldon Core 1, both as its Python wrapper and its executor answer it.

Source: SeldonIO/seldon-core, python/seldon_core/wrapper.py and executor/api/rest/server.go. Bodies are the wrapper's;
the headers, the status paths and the errors that no model made are the executor's.
"""

import re
from collections.abc import Callable, Iterable

import numpy as np
from msgspec import Struct

from adapters._error_headers import error_headers
from adapters.seldon import describe, errors, heads, openapi
from adapters.seldon.answers import Answer as Encoded
from adapters.seldon.answers import Encoder, Floats, Wish
from adapters.seldon.documents import NonFinite, Writer
from adapters.seldon.messages import Mixed, single
from adapters.seldon.requests import Decoder, is_class
from gateway.errors import GatewayError, InvalidTensor
from gateway.interfaces import Adapter, Answer, DecodeLimits, Describe, Infer, Operation, Ready
from gateway.types import Call, InferenceRequest, InferenceResponse, ModelMetadata, Reply, Target

_API = r"/api/v(?:0\.1|1\.0)"
_GRAPH = ("transform-input", "transform-output", "route", "aggregate")
_ANY = ("/predict", "/send-feedback", *(f"/{name}" for name in _GRAPH))
_GET = ("/health/ping", "/health/status", "/metadata", "/seldon.json", "/ready", "/live")
_CLAIMED = ("/api/v0.1/", "/api/v1.0/", *_ANY, *_GET)

_NOTHING = np.empty(0)

Decode = Callable[[Call, Target, ModelMetadata], InferenceRequest | Reply]


class Config(Struct, frozen=True, forbid_unknown_fields=True):
    """The table [protocols.seldon]."""

    bare_json: bool = False
    """Answers are the JSON of what the model returned, without a message around it."""
    ascii_json: bool = False
    """Everything beyond ASCII is written as \\uXXXX."""
    non_finite: NonFinite = "token"
    """NaN and infinities: "token" as Seldon writes them, "null" for strict readers."""
    floats: Floats = "exact"
    """float32 in answers: "exact" as Seldon widens it, or "short"."""
    mixed: Mixed = "text"
    """What a class gets for texts among numbers: "text" as numpy makes it, or "object"."""
    own_metrics: bool = True
    """Whether the model's metrics are in the answer's meta."""
    request_path: bool = False
    """Whether meta.requestPath names the model and its version."""
    cors_origins: tuple[str, ...] = ("*",)
    """Origins whose pages may call; none turns CORS off."""


class Seldon:
    """The adapter."""

    ignores_unknown_codings = True

    def __init__(self, config: Config, limits: DecodeLimits) -> None:
        self._origins = config.cors_origins
        self._decoder = Decoder(limits, config.mixed, config.bare_json, config.request_path)
        writer = Writer(config.non_finite, config.ascii_json)
        self._writer = writer
        self._encoder = Encoder(writer, config.non_finite, config.floats, config.own_metrics)

    def routes(self) -> Iterable[Operation]:
        """The wrapper's paths, then those that only the executor has."""
        for version in ("v1.0", "v0.1"):
            yield self._infer("POST", f"/api/{version}/predictions", self._predict)
            yield self._infer("POST", f"/api/{version}/feedback", self._feedback)
        methods: dict[str, Decode] = {
            "/predict": self._predict,
            "/send-feedback": self._feedback,
            "/transform-input": self._transform_input,
            "/transform-output": self._transform_output,
            "/route": self._route,
            "/aggregate": self._aggregate,
        }
        for path, decode in methods.items():
            for method in ("POST", "GET"):
                yield self._infer(method, path, decode)
        for path in ("/health/status", "/api/v1.0/health/status", "/api/v1.0/status", "/api/v1.0/status/{model}"):
            yield self._infer("GET", path, self._health)
        for path in ("/metadata", "/api/v1.0/metadata", "/api/v1.0/metadata/{model}"):
            yield Describe(method="GET", path=path, encode=self._metadata)
        yield Answer(method="GET", path="/health/ping", reply=self._ping)
        yield Answer(method="GET", path="/live", reply=self._live)
        yield Ready(method="GET", path="/ready", encode=self._ready)
        for path in ("/seldon.json", "/api/v1.0/doc/seldon.json"):
            yield Answer(method="GET", path=path, reply=self._openapi)
        paths = "|".join(re.escape(path) for path in (*_ANY, *_GET))
        yield Answer(
            method="OPTIONS",
            path="{any of these paths}",
            pattern=re.compile(f"{_API}/(?:predictions|feedback)|{paths}"),
            reply=self._preflight,
        )

    def claims(self, call: Call) -> int:
        """Everything below /api/v0.1/ and /api/v1.0/, and the wrapper's own paths."""
        return int(call.raw_path.startswith(_CLAIMED))

    def encode_error(self, error: GatewayError, call: Call) -> Reply:
        """`status` with code, info, reason and status."""
        body, status = errors.encode(error)
        return Reply(self._writer.finish(body), status, headers=error_headers(error) + self._heads(call))

    # In...

    def _infer(self, method: str, path: str, decode: Decode) -> Infer:
        quickly = self._predict_quickly if decode == self._predict else _never_quickly
        return Infer(method=method, path=path, decode=decode, decode_quickly=quickly, encode=self._message)

    def _predict(self, call: Call, target: Target, model: ModelMetadata) -> InferenceRequest | Reply:
        return self._decoder.predict(call, model)

    def _predict_quickly(self, call: Call, target: Target, model: ModelMetadata) -> InferenceRequest | None:
        return self._decoder.predict_quickly(call, model)

    def _feedback(self, call: Call, target: Target, model: ModelMetadata) -> InferenceRequest | Reply:
        """SPEC: a model that cannot learn from it thanks for it all the same."""
        request = self._decoder.feedback(call, model)
        if "send_feedback" in model.signatures:
            return request
        return self._reply(self._encoder.encode(InferenceResponse({"Y": _NOTHING}), request.wire), call)

    def _transform_input(self, call: Call, target: Target, model: ModelMetadata) -> InferenceRequest | Reply:
        return self._transform(call, model, "transform_input")

    def _transform_output(self, call: Call, target: Target, model: ModelMetadata) -> InferenceRequest | Reply:
        return self._transform(call, model, "transform_output")

    def _transform(self, call: Call, model: ModelMetadata, method: str) -> InferenceRequest | Reply:
        if method in model.signatures:
            return self._decoder.predict(call, model, method)
        parameters, outputs, wish = self._decoder.identity(call)
        return self._reply(self._encoder.encode(InferenceResponse(outputs, parameters), wish), call)

    def _route(self, call: Call, target: Target, model: ModelMetadata) -> InferenceRequest | Reply:
        if "route" not in model.signatures:
            raise InvalidTensor("Route not defined")
        return self._decoder.route(call, model)

    def _aggregate(self, call: Call, target: Target, model: ModelMetadata) -> InferenceRequest | Reply:
        if "aggregate" not in model.signatures:
            raise InvalidTensor("Aggregate not defined")
        return self._decoder.aggregate(call, model)

    def _health(self, call: Call, target: Target, model: ModelMetadata) -> InferenceRequest | Reply:
        wish = Wish("strData", is_class=is_class(model))
        if "health_status" in model.signatures:
            return InferenceRequest(inputs={}, signature="health_status", wire=wish)
        healthy = InferenceResponse({"Y": single("healthy")})
        return self._reply(self._encoder.encode(healthy, wish), call)

    # Out...

    def _message(self, response: InferenceResponse, request: InferenceRequest, call: Call) -> Reply:
        return self._reply(self._encoder.encode(response, request.wire), call)

    def _reply(self, answer: Encoded, call: Call) -> Reply:
        return Reply(answer.body, answer.status, headers=answer.headers + self._heads(call))

    def _metadata(self, metadata: ModelMetadata, call: Call, target: Target) -> Reply:
        return Reply(self._writer.finish(self._writer.dumps(describe.describe(metadata))), headers=self._heads(call))

    def _ping(self, call: Call) -> Reply:
        return Reply(b"pong", media_type="text/html", headers=self._heads(call))

    def _live(self, call: Call) -> Reply:
        return Reply(b"", media_type="text/plain", headers=self._heads(call))

    def _ready(self, ready: bool, call: Call) -> Reply:
        return Reply(b"", 200 if ready else 503, "text/plain", self._heads(call))

    def _openapi(self, call: Call) -> Reply:
        return Reply(openapi.DOCUMENT, headers=self._heads(call))

    def _preflight(self, call: Call) -> Reply:
        return Reply(b"", media_type="text/plain", headers=heads.preflight(call, self._origins))

    def _heads(self, call: Call) -> heads.Headers:
        return heads.headers(call, self._origins)


def _never_quickly(call: Call, target: Target, model: ModelMetadata) -> InferenceRequest | None:
    """Large bodies are rare here, and read on a thread."""
    return None


def create(config: Config, limits: DecodeLimits) -> Adapter:
    """The adapter under this configuration."""
    return Seldon(config, limits)

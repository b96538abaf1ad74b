"""TF Serving's REST API: predict, classify, regress, model status, metadata and its metrics page.

Source: the REST guide of TF Serving, and where the guide and the code differ, the code
(tensorflow/serving, model_servers/http_rest_api_handler.cc, http_rest_api_util.cc and http_server.cc).
"""

import re
from collections.abc import Iterable, Sequence

from msgspec import Struct

from adapters._error_headers import error_headers
from adapters._tensorjson import NonFinite
from adapters.tfserving import describe, errors, examples, metrics, predict, predictions, results
from adapters.tfserving.body import inputs_of, parse_object, signature_name
from gateway.errors import GatewayError, InvalidTensor, ModelNotFound
from gateway.interfaces import Adapter, Answer, DecodeLimits, Describe, Infer, Metrics, Operation, Status, from_path
from gateway.types import (
    LENGTHS,
    Call,
    InferenceRequest,
    InferenceResponse,
    ModelMetadata,
    ModelStatus,
    Reply,
    RequestSeries,
    Target,
)

# SPEC: the route ignores case, the verb and `metadata` do not.
_MODELS = r"(?i:/v1/models)"
_NAME = r"/(?P<model>[^/:]+)"
_PIN = r"(?:(?i:/versions)/(?P<version>[0-9]+)|(?i:/labels)/(?P<label>[^/:]+))?"
_SHOWN = "/v1/models/{model}[/versions/{version}|/labels/{label}]"


class Config(Struct, frozen=True, forbid_unknown_fields=True):
    """The table [protocols.tfserving]."""

    cors_origins: tuple[str, ...] = ()
    """Origins whose pages may call; "*" is every origin; none turns CORS off."""
    cors_methods: str = "POST, GET"
    cors_headers: str = "Content-Type"
    cors_max_age: int = 0
    """Seconds for which a browser may remember a preflight; 0 leaves it to the browser."""
    metrics: bool = True
    """Whether /monitoring/prometheus/metrics is served."""
    non_finite: NonFinite = "token"
    """How NaN and infinities are written: "token" as TF Serving does, or for strict readers "null" or "string"."""
    named_outputs: bool = False
    """Whether the only output of a model keeps its name in the answer."""


class TFServing:
    """The adapter."""

    ignores_unknown_codings = True

    def __init__(self, config: Config, limits: DecodeLimits) -> None:
        self._config = config
        self._limits = limits

    def routes(self) -> Iterable[Operation]:
        """The operations; a path that names no model means the one that prefix, host or default name."""
        verbs = {
            "predict": (self._predict, self._predictions, self._check_predict),
            "classify": (self._classify, self._classifications, self._check_examples),
            "regress": (self._regress, self._regressions, self._check_examples),
        }
        for verb, (decode, encode, check_body) in verbs.items():
            yield Infer(
                method="POST",
                path=f"{_SHOWN}:{verb}",
                pattern=re.compile(f"{_MODELS}(?:{_NAME})?{_PIN}:{verb}"),
                target=_target,
                decode=decode,
                decode_quickly=self._predict_quickly if verb == "predict" else None,
                encode=encode,
                check_body=check_body,
            )
        yield Describe(
            method="GET",
            path=f"{_SHOWN}/metadata",
            pattern=re.compile(f"{_MODELS}{_NAME}{_PIN}/metadata"),
            target=_target,
            encode=self._metadata,
        )
        yield Status(
            method="GET",
            path=_SHOWN,
            pattern=re.compile(f"{_MODELS}{_NAME}{_PIN}(?:/(?i:metadata))?"),
            target=_target,
            encode=self._status,
        )
        yield Answer(
            method="GET",
            path="/v1/models",
            pattern=re.compile(f"{_MODELS}{_PIN}(?:/(?i:metadata))?"),
            reply=self._nameless,
        )
        yield Answer(
            method="OPTIONS",
            path="/v1/{anything}",
            pattern=re.compile(r"(?i:/v1)/.*"),
            reply=self._preflight,
        )
        if self._config.metrics:
            yield Metrics(method="GET", path="/monitoring/prometheus/metrics", render=_metrics)

    def claims(self, call: Call) -> int:
        """Everything below /v1/ is TF Serving's to refuse, unless a call is surely another protocol's."""
        return 2 * (call.raw_path[:4].lower() == "/v1/")

    def encode_error(self, error: GatewayError, call: Call) -> Reply:
        """The status of its canonical code, and `{"error": text}`."""
        body, status = errors.body_of(error, call), errors.status_of(error)
        return Reply(body, status, headers=error_headers(error) + self._cors(call))

    # Predict...

    def _predict(self, call: Call, target: Target, metadata: ModelMetadata) -> InferenceRequest:
        return predict.decode(call.body, metadata, self._limits)

    def _predict_quickly(self, call: Call, target: Target, metadata: ModelMetadata) -> InferenceRequest | None:
        return predict.decode_quickly(call.body, metadata, self._limits)

    def _check_predict(self, call: Call) -> None:
        parse_object(call.body, self._limits)

    def _predictions(self, response: InferenceResponse, request: InferenceRequest, call: Call) -> Reply:
        outputs, non_finite, named = response.outputs, self._config.non_finite, self._config.named_outputs
        if request.wire == predict.ROW and LENGTHS in response.parameters:
            lengths = response.parameters[LENGTHS]
            return self._reply(call, predictions.ragged_rows(outputs, lengths, non_finite, named))
        write = predictions.rows if request.wire == predict.ROW else predictions.columns
        return self._reply(call, write(outputs, non_finite, named))

    # Classify and regress...

    def _check_examples(self, call: Call) -> None:
        examples.read_examples(call.body, self._limits)

    def _classify(self, call: Call, target: Target, metadata: ModelMetadata) -> InferenceRequest:
        document, features = examples.read_examples(call.body, self._limits)
        signature = results.classify_signature(signature_name(document), metadata)
        return InferenceRequest(
            inputs=examples.tensors_of(features, inputs_of(signature), self._limits),
            signature=signature.name,
            outputs=results.classify_outputs(signature),
            wire=len(features),
        )

    def _classifications(self, response: InferenceResponse, request: InferenceRequest, call: Call) -> Reply:
        return self._reply(call, results.classifications(response.outputs, request.wire, self._config.non_finite))

    def _regress(self, call: Call, target: Target, metadata: ModelMetadata) -> InferenceRequest:
        document, features = examples.read_examples(call.body, self._limits)
        signature = results.regress_signature(signature_name(document), metadata)
        tensors = examples.tensors_of(features, inputs_of(signature), self._limits)
        return InferenceRequest(inputs=tensors, signature=signature.name, wire=len(features))

    def _regressions(self, response: InferenceResponse, request: InferenceRequest, call: Call) -> Reply:
        return self._reply(call, results.regressions(response.outputs, request.wire, self._config.non_finite))

    # What needs no run...

    def _status(self, status: ModelStatus | None, call: Call, target: Target) -> Reply:
        return self._reply(call, describe.status(status, target))

    def _metadata(self, metadata: ModelMetadata, call: Call, target: Target) -> Reply:
        return self._reply(call, describe.metadata(metadata))

    def _nameless(self, call: Call) -> Reply:
        return self.encode_error(InvalidTensor("Missing model name in request."), call)

    def _preflight(self, call: Call) -> Reply:
        """SPEC: 200 for any web page's origin, whether or not CORS is on; without the headers it allows nothing."""
        origin = call.header(b"origin") or ""
        headers = self._cors(call)
        if headers and self._config.cors_max_age:
            headers += (("Access-Control-Max-Age", str(self._config.cors_max_age)),)
        return Reply(b"", 200 if "http://" in origin or "https://" in origin else 400, "text/plain", headers)

    def _reply(self, call: Call, body: bytes) -> Reply:
        return Reply(body, headers=self._cors(call))

    def _cors(self, call: Call) -> tuple[tuple[str, str], ...]:
        origins = self._config.cors_origins
        if not origins:
            return ()
        allowed = (
            ("Access-Control-Allow-Methods", self._config.cors_methods),
            ("Access-Control-Allow-Headers", self._config.cors_headers),
        )
        if "*" in origins:
            return (("Access-Control-Allow-Origin", "*"), *allowed)
        origin = call.header(b"origin")
        if origin not in origins:
            return (("Vary", "Origin"),)
        return (("Access-Control-Allow-Origin", origin), ("Vary", "Origin"), *allowed)


def _target(call: Call) -> Target:
    """SPEC: a version beyond 64 bits makes a bad path, not an unknown version."""
    try:
        return from_path(call)
    except ModelNotFound:
        raise errors.VersionOverflow(f"Failed to convert version: {call.params['version'][:64]} to numeric.") from None


def _metrics(series: Sequence[RequestSeries]) -> Reply:
    return Reply(metrics.page(series).encode(), media_type="text/plain")


def create(config: Config, limits: DecodeLimits) -> Adapter:
    """The adapter under this configuration."""
    return TFServing(config, limits)

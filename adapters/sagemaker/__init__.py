"""SageMaker: the container that it would run, and the runtime API that boto3 calls, on one port.

Source: Amazon SageMaker developer guide; botocore's sagemaker-runtime model. A model answers on both faces; the same
mistake is a plain status on one, and a ModelError with that status in it on the other.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from functools import partial
from typing import Annotated, Literal

from msgspec import Meta, Struct

from adapters._libsvm import FirstIndex
from adapters._media import MediaType, negotiate
from adapters.sagemaker import container, errors, parts, requests, responses, runtime
from adapters.sagemaker.entry import ASYNC, CONTAINER, INVOKE, PREFIX, STREAM, Entry
from adapters.sagemaker.environment import serve_defaults
from adapters.sagemaker.forms import view
from adapters.sagemaker.quick import decode_quickly
from gateway.errors import GatewayError
from gateway.interfaces import (
    Adapter,
    Answer,
    DecodeLimits,
    Defer,
    Infer,
    Manage,
    Operation,
    Ready,
    from_path,
)
from gateway.types import (
    LENGTHS,
    Call,
    InferenceRequest,
    InferenceResponse,
    ModelMetadata,
    Reply,
    ResponseForm,
    Target,
)

__all__ = ["Config", "create", "serve_defaults"]

_PATHS = ("/endpoints/", "/invocations", "/ping", "/execution-parameters", "/models")
_SENT_ON = {
    "custom_attributes": PREFIX + b"custom-attributes",
    "session_id": PREFIX + b"session-id",
    "target_model": PREFIX + b"target-model",
}
"""Name among the request's parameters, which backends see -> the header that it comes from."""


class Config(Struct, frozen=True, forbid_unknown_fields=True):
    """The table [protocols.sagemaker]."""

    default_content_type: str = ""
    """How a body without a Content-Type is read; empty: by its looks."""
    default_accept: str = ""
    """The media type for callers that name none, where the model names none either."""
    libsvm_first_index: FirstIndex = "auto"
    """The index of the first column in LIBSVM's text; "auto": 1 if no row of the payload uses 0."""
    multi_model_endpoints: tuple[str, ...] = ()
    """Endpoints whose TargetModel names the service."""
    max_concurrent_transforms: Annotated[int, Meta(ge=0)] = 1
    batch_strategy: Literal["MULTI_RECORD", "SINGLE_RECORD"] = "MULTI_RECORD"
    max_payload_mb: Annotated[int, Meta(ge=0, le=100)] = 6


class Wish(Struct, frozen=True):
    """What the encoder must know of a request."""

    media: MediaType
    rows: int
    form: ResponseForm
    read: requests.Decoded


class SageMaker:
    """The adapter."""

    ignores_unknown_codings = False

    def __init__(self, config: Config, limits: DecodeLimits) -> None:
        self._config = config
        self._limits = limits

    def routes(self) -> Iterable[Operation]:
        """The container's paths, those of its multi-model contract, and the runtime API's."""
        yield from self._container()
        yield from self._models()
        yield from self._endpoints()

    def claims(self, call: Call) -> int:
        """Everything below the paths of either face."""
        return int(call.raw_path.startswith(_PATHS))

    def encode_error(self, error: GatewayError, call: Call) -> Reply:
        """A plain status to SageMaker, rest-json to boto3."""
        return errors.encode(error, call)

    # Routes...

    def _container(self) -> Iterable[Operation]:
        for method in ("GET", "HEAD"):
            yield Ready(method=method, path="/ping", encode=container.ping)
        yield self._infer("/invocations", CONTAINER, self._reply, self._chunked)
        yield Answer(method="GET", path="/execution-parameters", reply=self._execution_parameters)

    def _models(self) -> Iterable[Operation]:
        one = "/models/{model}"
        yield Manage(method="POST", path="/models", command=container.load, encode=container.loaded)
        yield Manage(method="GET", path="/models", command=container.list_all, encode=container.listed)
        yield Manage(method="GET", path=one, command=container.list_one, encode=container.described)
        yield Manage(method="DELETE", path=one, command=container.unload, encode=container.unloaded)
        yield self._infer(f"{one}/invoke", CONTAINER, self._reply, self._chunked)

    def _endpoints(self) -> Iterable[Operation]:
        endpoint = "/endpoints/{model}"
        find = partial(runtime.target, multi_model=self._config.multi_model_endpoints)
        yield self._infer(f"{endpoint}/invocations", INVOKE, self._endpoint_reply, None, find)
        yield self._infer(
            f"{endpoint}/invocations-response-stream", STREAM, self._endpoint_reply, self._event_stream, find
        )
        yield Defer(
            method="POST",
            path=f"{endpoint}/async-invocations",
            target=find,
            decode=partial(self._decode, ASYNC),
            decode_quickly=partial(self._decode_quickly, ASYNC),
            encode=self._endpoint_reply,
            accepted=runtime.accepted,
            input_uri=runtime.input_uri,
            id=runtime.inference_id,
        )

    def _infer(
        self,
        path: str,
        entry: Entry,
        encode: Callable[[InferenceResponse, InferenceRequest, Call], Reply],
        stream: Callable[[AsyncIterator[InferenceResponse], InferenceRequest, Call], Reply] | None,
        target: Callable[[Call], Target] = from_path,
    ) -> Infer:
        return Infer(
            method="POST",
            path=path,
            target=target,
            decode=partial(self._decode, entry),
            decode_quickly=partial(self._decode_quickly, entry),
            encode=encode,
            stream=stream,
        )

    def _execution_parameters(self, call: Call) -> Reply:
        config = self._config
        return container.execution_parameters(
            config.max_concurrent_transforms, config.batch_strategy, config.max_payload_mb
        )

    # In...

    def _decode(self, entry: Entry, call: Call, target: Target, model: ModelMetadata) -> InferenceRequest:
        """SPEC: the body is judged before the answer's type: where both are wrong, the body's fault is told."""
        content_type = entry.sent_type(call) or self._config.default_content_type
        read = requests.decode(call.body, content_type, model, self._limits, self._config.libsvm_first_index)
        return self._request(entry, call, model, read)

    def _decode_quickly(
        self, entry: Entry, call: Call, target: Target, model: ModelMetadata
    ) -> InferenceRequest | None:
        content_type = entry.sent_type(call) or self._config.default_content_type
        read = decode_quickly(call.body, content_type, model, self._limits)
        return None if read is None else self._request(entry, call, model, read)

    def _request(self, entry: Entry, call: Call, model: ModelMetadata, read: requests.Decoded) -> InferenceRequest:
        config = self._config
        stream = entry.streams == "always" or (entry.streams == "asked" and read.stream)
        default = (model.response.accept or config.default_accept).partition(";")[0].strip().lower()
        offers = responses.STREAMED_OFFERS if stream else responses.OFFERS
        media = negotiate(entry.wanted_types(call), (default, *offers) if default in offers else offers)
        rows = max((len(tensor) for tensor in read.inputs.values() if tensor.ndim), default=1)
        return InferenceRequest(
            inputs=read.inputs,
            signature=read.signature,
            parameters={**read.parameters, **_sent_on(call)},
            id=runtime.inference_id(call) or "",
            stream=stream,
            wire=Wish(media, rows, model.response, read),
        )

    # Out...

    def _body(self, response: InferenceResponse, request: InferenceRequest) -> tuple[bytes, str]:
        wish: Wish = request.wire
        shown = view(response.outputs, wish.form, wish.rows, wish.media.flag("verbose"))
        read, media = wish.read, wish.media.name
        if read.documents and media == responses.JSON and sum(read.documents) == wish.rows:
            return responses.encode_documents(shown, read.documents), media
        lengths = response.parameters.get(LENGTHS)
        if lengths is not None and len(lengths) == wish.rows:
            return responses.encode_ragged(shown, lengths, media), media
        return responses.encode(shown, media, read.uids, read.metadata), media

    def _reply(self, response: InferenceResponse, request: InferenceRequest, call: Call) -> Reply:
        body, media = self._body(response, request)
        return Reply(body, media_type=media, headers=runtime.model_headers(response))

    def _endpoint_reply(self, response: InferenceResponse, request: InferenceRequest, call: Call) -> Reply:
        body, media = self._body(response, request)
        return Reply(body, media_type=media, headers=runtime.headers(call, response))

    def _chunked(self, given: AsyncIterator[InferenceResponse], request: InferenceRequest, call: Call) -> Reply:
        return Reply(_chunks(given, request), media_type=request.wire.media.name)

    def _event_stream(self, given: AsyncIterator[InferenceResponse], request: InferenceRequest, call: Call) -> Reply:
        return runtime.event_stream(_chunks(given, request), request.wire.media.name, call)


def _chunks(given: AsyncIterator[InferenceResponse], request: InferenceRequest) -> AsyncGenerator[bytes]:
    wish: Wish = request.wire
    return parts.chunks(given, wish.form, wish.media.name, wish.media.flag("verbose"))


def _sent_on(call: Call) -> dict[str, str]:
    """The headers that a backend may want to see."""
    found = ((name, call.header(header)) for name, header in _SENT_ON.items())
    return {name: value for name, value in found if value}


def create(config: Config, limits: DecodeLimits) -> Adapter:
    """The adapter under this configuration."""
    return SageMaker(config, limits)

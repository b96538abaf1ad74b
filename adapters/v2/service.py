"""The gRPC service: each method an operation whose path is its full name, its body the message's bytes.

Source: Open Inference Protocol, specification/protocol/open_inference_grpc.proto.
"""

from collections.abc import Iterable
from functools import partial
from typing import Any

from adapters._inference_pb2 import (
    ModelMetadataRequest,
    ModelMetadataResponse,
    ModelReadyRequest,
    ModelReadyResponse,
    ServerLiveResponse,
    ServerMetadataResponse,
    ServerReadyResponse,
)
from adapters.v2 import describe, messages, repository
from adapters.v2.errors import GRPC
from adapters.v2.fields import is_raw, model_of
from adapters.v2.targets import target_of
from gateway.interfaces import Answer, DecodeLimits, Describe, Index, Infer, Manage, Operation, Ready, Status
from gateway.types import Call, InferenceRequest, InferenceResponse, ModelMetadata, ModelStatus, Reply, Target

PREFIX = "/inference.GRPCInferenceService/"
HEALTH = "/grpc.health.v1.Health/Check"
"""gRPC's own health check, which probes of Kubernetes and load balancers call."""

_SERVING, _NOT_SERVING = b"\x08\x01", b"\x08\x02"
"""HealthCheckResponse with its only field, `status`."""


def routes(limits: DecodeLimits) -> Iterable[Operation]:
    """The methods."""
    yield Answer(method=GRPC, path=f"{PREFIX}ServerLive", reply=_live)
    yield Ready(method=GRPC, path=f"{PREFIX}ServerReady", encode=_ready)
    yield Answer(method=GRPC, path=f"{PREFIX}ServerMetadata", reply=_server)
    yield Ready(method=GRPC, path=HEALTH, encode=_health)
    yield Status(
        method=GRPC, path=f"{PREFIX}ModelReady", target=partial(_named_in, ModelReadyRequest), encode=_model_ready
    )
    yield Describe(
        method=GRPC, path=f"{PREFIX}ModelMetadata", target=partial(_named_in, ModelMetadataRequest), encode=_model
    )
    yield Infer(
        method=GRPC,
        path=f"{PREFIX}ModelInfer",
        target=_inferred,
        decode=partial(_decode, limits),
        decode_quickly=partial(_decode_quickly, limits),
        encode=_encode,
    )
    yield Index(method=GRPC, path=f"{PREFIX}RepositoryIndex", encode=repository.index_message)
    yield Manage(
        method=GRPC,
        path=f"{PREFIX}RepositoryModelLoad",
        command=repository.load_message,
        encode=repository.loaded_message,
    )
    yield Manage(
        method=GRPC,
        path=f"{PREFIX}RepositoryModelUnload",
        command=repository.unload_message,
        encode=repository.unloaded_message,
    )


def _named_in(kind: Any, call: Call) -> Target:
    message = messages.parse(kind, call.body)
    return target_of(message.name, message.version)


def _inferred(call: Call) -> Target:
    return target_of(*model_of(call.body))


def _decode(limits: DecodeLimits, call: Call, target: Target, metadata: ModelMetadata) -> InferenceRequest:
    return messages.decode(call, target, metadata, limits)


def _decode_quickly(
    limits: DecodeLimits, call: Call, target: Target, metadata: ModelMetadata
) -> InferenceRequest | None:
    return messages.decode(call, target, metadata, limits) if is_raw(call.body) else None


def _encode(response: InferenceResponse, request: InferenceRequest, call: Call) -> Reply:
    return messages.encode(response, request)


def _live(call: Call) -> Reply:
    return messages.reply(ServerLiveResponse(live=True))


def _ready(ready: bool, call: Call) -> Reply:
    return messages.reply(ServerReadyResponse(ready=ready))


def _health(ready: bool, call: Call) -> Reply:
    return Reply(_SERVING if ready else _NOT_SERVING, media_type="application/grpc")


def _server(call: Call) -> Reply:
    return messages.reply(ServerMetadataResponse(**describe.server()))


def _model_ready(status: ModelStatus | None, call: Call, target: Target) -> Reply:
    """SPEC: a model that does not exist is not ready; the call itself succeeds."""
    return messages.reply(ModelReadyResponse(ready=describe.is_ready(status, target)))


def _model(metadata: ModelMetadata, call: Call, target: Target) -> Reply:
    return messages.reply(ModelMetadataResponse(**describe.model(metadata)))

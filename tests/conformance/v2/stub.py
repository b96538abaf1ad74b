"""A bare gRPC client of the service: messages of our own definition over grpcio's channel."""

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc

from adapters import _inference_pb2 as pb

_ANSWERS = {
    "ServerLive": pb.ServerLiveResponse,
    "ServerReady": pb.ServerReadyResponse,
    "ServerMetadata": pb.ServerMetadataResponse,
    "ModelReady": pb.ModelReadyResponse,
    "ModelMetadata": pb.ModelMetadataResponse,
    "ModelInfer": pb.ModelInferResponse,
    "RepositoryIndex": pb.RepositoryIndexResponse,
    "RepositoryModelLoad": pb.RepositoryModelLoadResponse,
    "RepositoryModelUnload": pb.RepositoryModelUnloadResponse,
}


class Stub:
    """Calls methods by name."""

    def __init__(self, channel: grpc.Channel) -> None:
        self.channel = channel

    def __call__(self, method: str, message: Any = b"", **options: Any) -> Any:
        """The answer's message. Raises grpc.RpcError."""
        return self.later(method, message, **options).result(timeout=30)

    def later(self, method: str, message: Any = b"", **options: Any) -> Any:
        """The call as a future."""
        body = message if isinstance(message, bytes) else message.SerializeToString()
        call = self.channel.unary_unary(
            f"/inference.GRPCInferenceService/{method}",
            response_deserializer=_ANSWERS.get(method, pb.ServerLiveResponse).FromString,
        )
        return call.future(body, wait_for_ready=True, **options)

    def refused(self, method: str, message: Any = b"", **options: Any) -> tuple[str, str]:
        """Code and text of a call that must fail."""
        try:
            answer = self(method, message, **options)
        except grpc.RpcError as error:
            return error.code().name, error.details()
        raise AssertionError(f"it was answered: {answer}")


@contextmanager
def connect(port: int) -> Iterator[Stub]:
    """A client of the gateway's port for gRPC."""
    options = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]
    with grpc.insecure_channel(f"127.0.0.1:{port}", options=options) as channel:
        yield Stub(channel)


def request(model: str, *inputs: tuple[str, str, list[int], Any], **more: Any) -> pb.ModelInferRequest:
    """A request; the values of an input are bytes for raw contents, else a list."""
    message = pb.ModelInferRequest(model_name=model, **more)
    for name, datatype, shape, values in inputs:
        item = message.inputs.add(name=name, datatype=datatype, shape=shape)
        if isinstance(values, bytes):
            message.raw_input_contents.append(values)
        else:
            getattr(item.contents, FIELDS[datatype]).extend(values)
    return message


FIELDS = {
    "BOOL": "bool_contents",
    **dict.fromkeys(("INT8", "INT16", "INT32"), "int_contents"),
    **dict.fromkeys(("UINT8", "UINT16", "UINT32"), "uint_contents"),
    "INT64": "int64_contents",
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    "BYTES": "bytes_contents",
}


def bits(*values: float) -> bytes:
    """float32s as they travel."""
    return struct.pack(f"<{len(values)}f", *values)

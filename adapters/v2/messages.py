"""Inference over gRPC: protobuf messages to tensors and back.

Source: Open Inference Protocol, specification/protocol/open_inference_grpc.proto.
"""

from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np
from google.protobuf.message import DecodeError, Message

from adapters._cast import cast
from adapters._inference_pb2 import ModelInferRequest, ModelInferResponse
from adapters.v2 import raw
from adapters.v2.datatypes import BYTES, DTYPES
from adapters.v2.fields import check_fields
from adapters.v2.requests import request_of
from adapters.v2.responses import outputs_of
from adapters.v2.tensors import Declarations, Declared, signature_of
from adapters.v2.wishes import Wish, check_output, refuse, wish_of
from gateway.errors import InvalidTensor, MalformedBody
from gateway.interfaces import DecodeLimits
from gateway.types import Call, InferenceRequest, InferenceResponse, ModelMetadata, Reply, Target, Tensor

CONTENTS = {
    "BOOL": "bool_contents",
    "INT8": "int_contents",
    "INT16": "int_contents",
    "INT32": "int_contents",
    "INT64": "int64_contents",
    "UINT8": "uint_contents",
    "UINT16": "uint_contents",
    "UINT32": "uint_contents",
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    "BYTES": "bytes_contents",
}
"""Datatype to the field for its values; FP16 and BF16 have none and travel raw."""

_FIELD_DTYPES = {"int_contents": np.dtype(np.int32), "uint_contents": np.dtype(np.uint32)}


M = TypeVar("M", bound=Message)


def parse(kind: type[M], body: bytes) -> M:
    """The message. Raises MalformedBody."""
    try:
        message: M = kind.FromString(body)
    except DecodeError:
        raise MalformedBody(f"the body is no {kind.__name__}") from None
    return message


def decode(call: Call, target: Target, metadata: ModelMetadata, limits: DecodeLimits) -> InferenceRequest:
    """The request that the message makes of this model."""
    check_fields(call.body)
    message = parse(ModelInferRequest, call.body)
    parameters = values_of(message.parameters)
    refuse(parameters)
    signature = signature_of(metadata, parameters)
    for output in message.outputs:
        check_output(output.name, values_of(output.parameters), signature)
    wish = wish_of(
        {"id": message.id or None, "outputs": [{"name": output.name} for output in message.outputs]},
        signature,
        target,
        metadata,
        binary=bool(message.raw_input_contents) or not message.inputs,
    )
    declarations = Declarations(signature, limits)
    contents = message.raw_input_contents
    if contents and len(contents) != len(message.inputs):
        raise InvalidTensor(
            f"raw_input_contents must hold one entry for each input: {len(message.inputs)}, got {len(contents)}"
        )
    tensors: dict[str, Tensor] = {}
    for index, item in enumerate(message.inputs):
        one = declarations.add(item.name, item.datatype, tuple(item.shape))
        refuse(values_of(item.parameters))
        if not contents:
            tensors[one.name] = _from_contents(item.contents, one)
        elif item.HasField("contents"):
            raise one.misfit("contents and raw_input_contents are not to be mixed")
        else:
            tensors[one.name] = one.from_raw(contents[index])
    return request_of(tensors, signature, parameters, wish, metadata)


def values_of(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """A map of InferParameter, or of ModelRepositoryParameter, as plain values."""
    chosen = {key: (value, value.WhichOneof("parameter_choice")) for key, value in parameters.items()}
    return {key: getattr(value, choice) for key, (value, choice) in chosen.items() if choice is not None}


def _from_contents(contents: Any, one: Declared) -> Tensor:
    field = CONTENTS.get(one.datatype)
    if field is None:
        raise one.misfit("values of this datatype travel in raw_input_contents only")
    values = getattr(contents, field)
    if len(values) != one.count:
        raise one.misfit(f"the shape holds {one.count} elements, but {field} has {len(values)}")
    if one.datatype == BYTES:
        strings = np.empty(len(values), object)
        strings[:] = list(values)
        return one.fit(strings.reshape(one.shape))
    dtype = DTYPES[one.datatype]
    tensor = np.fromiter(values, _FIELD_DTYPES.get(field, dtype), len(values))
    try:
        return cast(tensor, dtype, unit="element", first=0).reshape(one.shape)
    except InvalidTensor as error:
        raise one.misfit(error) from None


def encode(response: InferenceResponse, request: InferenceRequest) -> Reply:
    """The reply: raw contents if the request came so, or if an output has no other form; else typed contents."""
    wish: Wish = request.wire
    outputs = list(outputs_of(response, wish))
    in_bytes = wish.binary or any(datatype not in CONTENTS for _, _, datatype in outputs)
    message = ModelInferResponse(model_name=wish.model, model_version=wish.version, id=wish.id or "")
    for name, tensor, datatype in outputs:
        output = message.outputs.add(name=name, datatype=datatype, shape=tensor.shape)
        if in_bytes:
            message.raw_output_contents.append(raw.write(tensor, datatype))
        else:
            items = list(raw.octets(tensor)) if datatype == BYTES else tensor.ravel().tolist()
            getattr(output.contents, CONTENTS[datatype]).extend(items)
    return reply(message)


def reply(message: Message) -> Reply:
    """A message as the body."""
    return Reply(message.SerializeToString(), media_type="application/grpc")

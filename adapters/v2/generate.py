"""Triton's generate extension: a flat JSON object in, one out or a stream of them, for models that take text.

A key that names an input of the model is that input, `text_input` its only string input; every other key, and those
of `parameters`, are parameters. A body in the form of an inference request is read, and answered, as one.
Source: Triton, docs/protocol/extension_generate.md; MLServer's generate and generate_stream take inference requests.
"""

from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import orjson
from msgspec import Struct
from msgspec.structs import replace

from adapters._excerpt import excerpt
from adapters._lists import first_lengths, flatten
from adapters._tensorjson import NonFinite
from adapters.v2 import listed, responses
from adapters.v2.datatypes import BOOL, BYTES, declared
from adapters.v2.documents import parse_object
from adapters.v2.requests import decode_document, request_of
from adapters.v2.tensors import Declarations, signature_of
from adapters.v2.wishes import Wish, parameters_of, wish_of
from gateway.errors import GatewayError, InferenceFailed, InvalidTensor
from gateway.interfaces import DecodeLimits
from gateway.types import (
    Call,
    InferenceRequest,
    InferenceResponse,
    ModelMetadata,
    Reply,
    Signature,
    Target,
    Tensor,
    TensorSpec,
)

TEXT_IN, TEXT_OUT = "text_input", "text_output"

_OWN_KEYS = {"id", "parameters"}


class Flat(Struct, frozen=True):
    """The wish of a request in the flat form."""

    wish: Wish


def decode(call: Call, target: Target, metadata: ModelMetadata, limits: DecodeLimits, stream: bool) -> InferenceRequest:
    """The request that the body makes of this model. Raises MalformedBody, InvalidTensor or BodyTooLarge."""
    document = parse_object(call.body, limits)
    if isinstance(document.get("inputs"), list) and isinstance((document["inputs"] or [None])[0], dict):
        return replace(decode_document(document, memoryview(b""), target, metadata, limits), stream=stream)
    given = parameters_of(document, "the request")
    signature = signature_of(metadata, given)
    declarations = Declarations(signature, limits)
    tensors: dict[str, Tensor] = {}
    parameters: dict[str, Any] = {}
    for key in document.keys() - _OWN_KEYS:
        name = _input_of(key, signature)
        if name is None:
            parameters[key] = document[key]
        else:
            tensors[name] = _tensor(document[key], name, signature.inputs[name], declarations)
    wish = wish_of({"id": document.get("id")}, signature, target, metadata)
    request = request_of(tensors, signature, parameters | given, wish, metadata)
    return replace(request, stream=stream, wire=Flat(wish))


def _input_of(key: str, signature: Signature) -> str | None:
    """The input that the key stands for."""
    if key in signature.inputs:
        return key
    strings = [name for name, spec in signature.inputs.items() if spec.dtype in ("string", "any")]
    return strings[0] if key == TEXT_IN and len(strings) == 1 else None


def _tensor(value: Any, name: str, spec: TensorSpec, declarations: Declarations) -> Tensor:
    """A list that fits the last dimensions is one row, else a list of rows; a single value is either."""
    shape = first_lengths(value)
    rank = len(spec.shape) if spec.shape is not None else max(1, len(shape))
    if len(shape) > rank:
        raise InvalidTensor(f'input "{name}" is nested {len(shape)} deep, but has {rank} dimensions')
    items = flatten(value, shape)
    if items is None:
        raise InvalidTensor(f'input "{name}" is ragged: its lists have different lengths or depths')
    ones = [1] * (rank - len(shape))
    shape = ones + shape if _fits_row(shape, spec) else shape + ones
    datatype = _datatype_of(items) if spec.dtype == "any" else declared(spec)
    one = declarations.add(name, datatype, shape)
    return listed.read_exactly(items, one)


def _datatype_of(items: list[Any]) -> str:
    """What values of an input are that takes anything."""
    kinds = set(map(type, items))
    if kinds and kinds <= {int, float}:
        return "INT64" if kinds == {int} else "FP64"
    return BOOL if kinds == {bool} else BYTES


def _fits_row(shape: list[int], spec: TensorSpec) -> bool:
    last = (spec.shape or ())[len(spec.shape or ()) - len(shape) :]
    return all(size in (None, length) for size, length in zip(last, shape, strict=False))


def encode(response: InferenceResponse, request: InferenceRequest, non_finite: NonFinite) -> Reply:
    """The whole answer."""
    if not isinstance(request.wire, Flat):
        return responses.encode(response, request.wire, non_finite)
    return Reply(_object(response, request.wire.wish, non_finite))


def stream(given: AsyncIterator[InferenceResponse], request: InferenceRequest, non_finite: NonFinite) -> Reply:
    """The parts as server-sent events."""
    return Reply(_events(given, request, non_finite), media_type="text/event-stream; charset=utf-8", headers=_HEADERS)


_HEADERS = (("Cache-Control", "no-cache"),)


async def _events(
    given: AsyncIterator[InferenceResponse], request: InferenceRequest, non_finite: NonFinite
) -> AsyncGenerator[bytes]:
    """SPEC: an error behind the first part is an event of its own, and the last."""
    try:
        async for part in given:
            reply = encode(part, request, non_finite)
            assert isinstance(reply.body, bytes)
            yield b"data: " + reply.body + b"\n\n"
    except GatewayError as error:
        yield b"data: " + orjson.dumps({"error": str(error)}) + b"\n\n"
    except Exception:
        yield b"data: " + orjson.dumps({"error": "internal error"}) + b"\n\n"
        raise


def _object(response: InferenceResponse, wish: Wish, non_finite: NonFinite) -> bytes:
    """The outputs by name, one value bare and several as a list; the only string output as `text_output`."""
    head: dict[str, Any] = {"model_name": wish.model, "model_version": wish.version}
    if wish.id is not None:
        head["id"] = wish.id
    outputs = list(responses.outputs_of(response, wish))
    strings = [name for name, _, datatype in outputs if datatype == BYTES]
    members = []
    for name, tensor, datatype in outputs:
        text, encoded = listed.write(tensor, datatype, non_finite)
        if encoded:
            raise InferenceFailed(f"output {excerpt(name)} is not text")
        key = TEXT_OUT if strings == [name] else name
        members.append(b"," + orjson.dumps(key) + b":" + (text[1:-1] if tensor.size == 1 else text))
    return orjson.dumps(head)[:-1] + b"".join(members) + b"}"

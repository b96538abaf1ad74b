"""An inference request's body: a JSON object, and behind it the binary tensors that it announces.

A body of plain numbers is read by simdjson; every other body, and every faulty one, by the exact parser.
Source: Open Inference Protocol, "Inference"; Triton, docs/protocol/extension_binary_data.md.
"""

from functools import partial
from math import prod
from typing import Any

import simdjson
from msgspec import Struct

from adapters import _tensorjson
from adapters._excerpt import excerpt
from adapters.v2 import listed, raw
from adapters.v2.datatypes import BYTES, declared
from adapters.v2.documents import parse_object
from adapters.v2.tensors import Declarations, Declared, signature_of
from adapters.v2.wishes import BINARY_SIZE, Parameters, Wish, parameters_of, refuse, sent_on, wish_of
from gateway.errors import GatewayError, InvalidTensor, MalformedBody
from gateway.interfaces import DecodeLimits
from gateway.types import Call, InferenceRequest, ModelMetadata, Signature, Target, Tensor, TensorSpec

HEADER_LENGTH = b"inference-header-content-length"

_SHORT = 4096
"""Bytes of JSON before binary tensors, up to which they are read at once."""
_BESIDE = {"id", "parameters", "outputs"}
_OF_INPUT = {"name", "datatype", "shape", "data"}


def decode(call: Call, target: Target, metadata: ModelMetadata, limits: DecodeLimits) -> InferenceRequest:
    """The request that the call makes of this model."""
    length = json_length(call)
    if length == 0:
        return _only_tensor(call.body, target, metadata, limits)
    if length is None or length == len(call.body):
        return decode_text(call.body, target, metadata, limits)
    tail = memoryview(call.body)[length:]
    return decode_document(parse_object(call.body[:length], limits), tail, target, metadata, limits)


def decode_quickly(
    call: Call, target: Target, metadata: ModelMetadata, limits: DecodeLimits
) -> InferenceRequest | None:
    """As `decode`, for plain numbers and for bytes that are not looked into; None for any other body."""
    length = json_length(call)
    if length is None or length == len(call.body) != 0:
        return _plain_numbers(call.body, target, metadata, limits)
    if length > _SHORT or b"BYTES" in call.body[:length]:
        return None
    return decode(call, target, metadata, limits)


def _plain_numbers(
    text: bytes, target: Target, metadata: ModelMetadata, limits: DecodeLimits
) -> InferenceRequest | None:
    _tensorjson.check_size(text, limits.elements)
    return _tensorjson.borrow(text, partial(_read_numbers, text, target, metadata, limits))


def decode_text(text: bytes, target: Target, metadata: ModelMetadata, limits: DecodeLimits) -> InferenceRequest:
    """The request of a body that is JSON and nothing else."""
    request = _plain_numbers(text, target, metadata, limits)
    if request is not None:
        return request
    return decode_document(parse_object(text, limits), memoryview(b""), target, metadata, limits)


def json_length(call: Call) -> int | None:
    """How many bytes of the body are JSON, if the header says so."""
    header = call.header(HEADER_LENGTH)
    if header is None:
        return None
    if not (header.isascii() and header.isdecimal()) or len(header) > 18 or int(header) > len(call.body):
        raise MalformedBody(
            f"Inference-Header-Content-Length must be at most the body's {len(call.body)} bytes, got {excerpt(header)}"
        )
    return int(header)


# Fast...


def _read_numbers(
    text: bytes, target: Target, metadata: ModelMetadata, limits: DecodeLimits, document: Any
) -> InferenceRequest | None:
    """The request, if its tensors are nothing but rectangles of plain numbers."""
    if not isinstance(document, simdjson.Object):
        return None
    inputs = document["inputs"]
    if len(set(document)) != len(document):
        return None  # here the first of equal keys would count
    beside = {key: _plain(document[key]) for key in document if key in _BESIDE}
    if not isinstance(inputs, simdjson.Array):
        return None
    try:
        return _request_of(text, inputs, beside, target, metadata, limits)
    except GatewayError:
        return None  # the exact way knows better what comes first


def _request_of(
    text: bytes, inputs: Any, beside: dict[str, Any], target: Target, metadata: ModelMetadata, limits: DecodeLimits
) -> InferenceRequest | None:
    parameters = parameters_of(beside, "the request")
    refuse(parameters)
    signature = signature_of(metadata, parameters)
    declarations = Declarations(signature, limits)
    tensors: dict[str, Tensor] = {}
    lists = 1 + ("outputs" in beside)
    for item in inputs:
        if not isinstance(item, simdjson.Object) or len(item) != len(_OF_INPUT) or set(item) != _OF_INPUT:
            return None
        one = declarations.add(item["name"], item["datatype"], _plain(item["shape"]))
        found = listed.read_numbers(item["data"], one, text) if isinstance(item["data"], simdjson.Array) else None
        if found is None:
            return None
        tensors[one.name] = found[0]
        lists += 1 + found[1]
    if not _has_lists(text, lists):
        return None
    return request_of(tensors, signature, parameters, wish_of(beside, signature, target, metadata), metadata)


def _has_lists(text: bytes, lists: int) -> bool:
    """PERF: at 32 rows 76 us to count, 2 us to find the few."""
    if lists > 64 + len(text) // 256:
        return text.count(b"[") == lists
    at = -1
    for _ in range(lists):
        at = text.find(b"[", at + 1)
        if at < 0:
            return False
    return text.find(b"[", at + 1) < 0


def _plain(value: Any) -> Any:
    if isinstance(value, simdjson.Object):
        return value.as_dict()
    return value.as_list() if isinstance(value, simdjson.Array) else value


# Exact...


class _Binary(Struct, frozen=True):
    """An input whose bytes follow the JSON part."""

    declared: Declared
    size: int


def decode_document(
    document: dict[str, Any], tail: memoryview, target: Target, metadata: ModelMetadata, limits: DecodeLimits
) -> InferenceRequest:
    """The request of a parsed body; `tail` is what follows it."""
    parameters = parameters_of(document, "the request")
    refuse(parameters)
    signature = signature_of(metadata, parameters)
    wish = wish_of(document, signature, target, metadata)
    inputs = document.get("inputs", [])
    if not isinstance(inputs, list) or (not inputs and signature.inputs):
        known = ", ".join(f'"{name}" {declared(spec)}' for name, spec in signature.inputs.items())
        raise InvalidTensor(f"inputs must be a list of tensors; the model takes {known or 'none'}")
    declarations = Declarations(signature, limits)
    tensors: dict[str, Tensor] = {}
    binary: list[_Binary] = []
    for item in inputs:
        _read_input(item, declarations, tensors, binary)
    parts = raw.split(tail, [one.size for one in binary])
    for one, part in zip(binary, parts, strict=True):
        tensors[one.declared.name] = one.declared.from_raw(part)
    return request_of(tensors, signature, parameters, wish, metadata)


def request_of(
    tensors: dict[str, Tensor], signature: Signature, parameters: Parameters, wish: Wish, metadata: ModelMetadata
) -> InferenceRequest:
    """The request that those parts make."""
    return InferenceRequest(
        inputs=tensors,
        signature=signature.name,
        outputs=tuple(wish.wanted),
        parameters=sent_on(parameters, metadata),
        id=wish.id or "",
        wire=wish,
    )


def _read_input(item: Any, declarations: Declarations, tensors: dict[str, Tensor], binary: list[_Binary]) -> None:
    if not isinstance(item, dict):
        raise MalformedBody("an entry of inputs must be an object")
    one = declarations.add(item.get("name"), item.get("datatype"), item.get("shape"))
    parameters = parameters_of(item, f'input "{one.name}"')
    refuse(parameters)
    size = parameters.get(BINARY_SIZE)
    if size is None:
        if "data" not in item:
            raise one.misfit("there is no data")
        content_type = parameters.get(listed.CONTENT_TYPE)
        tensors[one.name] = listed.read_exactly(item["data"], one, content_type)
        return
    if type(size) is not int or size < 0:
        raise one.misfit(f"{BINARY_SIZE} must be a whole number from 0 on, got {excerpt(size)}")
    if "data" in item:
        raise one.misfit(f"give either data or {BINARY_SIZE}")
    binary.append(_Binary(one, size))


# Without JSON...


def _only_tensor(body: bytes, target: Target, metadata: ModelMetadata, limits: DecodeLimits) -> InferenceRequest:
    """SPEC: the body is the model's only input, as far as its size gives the shape; all comes back as binary."""
    signature = signature_of(metadata, {})
    if len(signature.inputs) != 1:
        raise InvalidTensor(f"a body without JSON is for models of one input; this one has {len(signature.inputs)}")
    ((name, spec),) = signature.inputs.items()
    datatype = declared(spec)
    shape = [1] if datatype == BYTES or spec.media == "image" else _filled(name, spec, len(body))
    if spec.media == "image":
        datatype = BYTES
    one = Declarations(signature, limits).add(name, datatype, shape)
    data = len(body).to_bytes(4, "little") + body if datatype == BYTES else body
    return InferenceRequest(
        inputs={name: one.from_raw(data)},
        signature=signature.name,
        wire=wish_of({}, signature, target, metadata, binary=True),
    )


def _filled(name: str, spec: TensorSpec, size: int) -> list[int]:
    """The shape with its one free dimension filled in."""
    free = [axis for axis, length in enumerate(spec.shape or (None, None)) if length is None]
    if len(free) > 1:
        raise InvalidTensor(f'the shape of input "{name}" does not follow from its size: send JSON before it')
    shape = [1 if length is None else length for length in spec.shape or ()]
    row = prod(shape) * raw.item_bytes(declared(spec))
    for axis in free:
        if not row or size % row:
            raise InvalidTensor(f'input "{name}" takes multiples of {row} bytes, but {size} came')
        shape[axis] = size // row
    return shape

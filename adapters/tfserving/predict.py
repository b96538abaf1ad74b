"""predict, in: `instances` (row format) or `inputs` (column format) to named tensors.

A body of plain numbers is read by simdjson; every other body, and every faulty one, by the exact parser.
Source: TF Serving, tensorflow_serving/util/json_tensor.cc (FillPredictRequestFromJson).
"""

from functools import partial
from typing import Any, Literal

import numpy as np
import orjson
import simdjson

from adapters import _tensorjson
from adapters.tfserving import rows
from adapters.tfserving.body import SIGNATURE, find_signature, ill_formed, inputs_of, parse_object, signature_name
from adapters.tfserving.errors import NO_SIGNATURE, Unimplemented
from adapters.tfserving.predictions import no_rows
from adapters.tfserving.render import declared, expected
from adapters.tfserving.values import Fault, is_b64, tensor_of
from gateway.errors import InvalidTensor
from gateway.interfaces import DecodeLimits
from gateway.types import DEFAULT_SIGNATURE, InferenceRequest, ModelMetadata, Signature, Tensor, TensorSpec

Format = Literal["instances", "inputs"]
"""Row and column format, by the key that says so; remembered for the answer, which follows it."""

ROW: Format = "instances"
COLUMN: Format = "inputs"
PARAMETERS = "parameters"


def decode(body: bytes, metadata: ModelMetadata, limits: DecodeLimits) -> InferenceRequest:
    """The request that the body makes of this model."""
    return decode_quickly(body, metadata, limits) or _read_exactly(body, metadata, limits)


def decode_quickly(body: bytes, metadata: ModelMetadata, limits: DecodeLimits) -> InferenceRequest | None:
    """The request, if the body holds nothing but rectangles of plain numbers."""
    _tensorjson.check_size(body, limits.elements)
    request = _tensorjson.borrow(body, partial(_read_numbers, body, metadata))
    if request is None or len(body) <= limits.elements:
        return request
    if sum(tensor.size for tensor in request.inputs.values()) > limits.elements:
        raise _tensorjson.too_many(limits.elements)
    return request


def _check_row_outputs(signature: Signature) -> None:
    """An output without rows is known before the run, so nothing is run for it."""
    for name, spec in signature.outputs.items():
        if spec.shape == ():
            raise no_rows(name)


# Fast...


def _read_numbers(body: bytes, metadata: ModelMetadata, document: Any) -> InferenceRequest | None:
    """The request, if there is nothing in it but rectangles of plain numbers."""
    if not isinstance(document, simdjson.Object):
        return None
    name, wire = DEFAULT_SIGNATURE, ""
    for key in document:
        if key == SIGNATURE and isinstance(given := document[key], str):
            name = given or DEFAULT_SIGNATURE
        elif key in (ROW, COLUMN) and not wire:
            wire = key
        else:
            return None
    signature = metadata.signatures.get(name)
    if signature is None or not wire:
        return None
    value: Any = document[wire]
    if wire == ROW and isinstance(value, simdjson.Array) and len(value) and _is_object(value[0]):
        return _read_objects(body, value, signature, name)
    named = wire == COLUMN and isinstance(value, simdjson.Object)
    if not named and len(signature.inputs) != 1:
        return None
    tensors: dict[str, Tensor] = {}
    for label, spec in signature.inputs.items():
        array = value[label] if named else value
        tensor = _numbers(array, spec, body) if isinstance(array, simdjson.Array) else None
        if tensor is None:
            return None
        tensors[label] = tensor
    if not _tensorjson.is_rectangular(body, [t.shape for t in tensors.values()], partial(_skeleton, document, tensors)):
        return None
    if wire == ROW:
        _check_row_outputs(signature)
    return InferenceRequest(inputs=tensors, signature=name, wire=wire)


def _numbers(array: Any, spec: TensorSpec, body: bytes) -> Tensor | None:
    if spec.dtype == "any":
        return _tensorjson.any_numbers(array, body)
    return _tensorjson.numbers(array, spec.numpy_dtype, body)


def _is_object(value: Any) -> bool:
    return isinstance(value, simdjson.Object)


def _read_objects(body: bytes, rows: Any, signature: Signature, name: str) -> InferenceRequest | None:
    """The row format with a name for each value: lists of numbers, alike in every row."""
    # PERF: 0.4 ms for 32 rows of 784 numbers; the exact parser takes 7.
    parts: dict[str, list[Tensor]] = {label: [] for label in signature.inputs}
    for row in rows:
        if not _is_object(row) or len(row) != len(parts):
            return None
        for label, gathered in parts.items():
            array = row[label]
            tensor = _numbers(array, signature.inputs[label], body) if isinstance(array, simdjson.Array) else None
            if tensor is None or (gathered and (tensor.shape, tensor.dtype) != (gathered[0].shape, gathered[0].dtype)):
                return None
            gathered.append(tensor)
    shapes = [tensor.shape for gathered in parts.values() for tensor in gathered]
    # One list more: that of the rows...
    if not _tensorjson.is_rectangular(body, [(len(rows),), *shapes], bytes):
        return None
    _check_row_outputs(signature)
    tensors = {label: np.stack(gathered) for label, gathered in parts.items()}
    return InferenceRequest(inputs=tensors, signature=name, wire=ROW)


def _skeleton(document: Any, tensors: dict[str, Tensor]) -> bytes:
    """The body that the tensors should have come in."""
    members = []
    for key in document:
        value = document[key]
        if isinstance(value, str):
            text = orjson.dumps(value)
        elif isinstance(value, simdjson.Object):
            lists = [(name, tensors.get(name)) for name in value]
            text = _members([(name, b"" if one is None else _tensorjson.skeleton(one.shape)) for name, one in lists])
        else:
            text = _tensorjson.skeleton(next(iter(tensors.values())).shape)
        members.append((key, text))
    return _members(members)


def _members(members: list[tuple[str, bytes]]) -> bytes:
    return b"{" + b",".join(orjson.dumps(key) + b":" + text for key, text in members) + b"}"


# Exact...


def _read_exactly(body: bytes, metadata: ModelMetadata, limits: DecodeLimits) -> InferenceRequest:
    document = parse_object(body, limits)
    name = signature_name(document)
    signature = find_signature(name, metadata, NO_SIGNATURE)
    inputs = inputs_of(signature)
    if ROW in document and COLUMN in document:
        raise ill_formed(
            document, "Not formatted correctly expecting only one of 'inputs' or 'instances' keys to exist "
        )
    if not inputs and document.get(COLUMN) != {}:
        shown = name if document.get(SIGNATURE) else "DEFAULT"
        raise InvalidTensor(f'Failed to get input map for signature: {shown}; it has none: send "inputs": {{}}')
    if ROW in document:
        _check_row_outputs(signature)
        tensors = _from_instances(document, inputs, limits)
        return InferenceRequest(inputs=tensors, signature=name, parameters=_parameters(document), wire=ROW)
    if COLUMN in document:
        tensors = _from_inputs(document[COLUMN], inputs, limits)
        return InferenceRequest(inputs=tensors, signature=name, parameters=_parameters(document), wire=COLUMN)
    raise InvalidTensor("Missing 'inputs' or 'instances' key")


def _parameters(document: dict[str, Any]) -> dict[str, Any]:
    """NOTE: TF Serving has none, and passes over a key that it does not know; a language model is told by them how."""
    parameters = document.get(PARAMETERS)
    return parameters if isinstance(parameters, dict) else {}


def _from_instances(document: dict[str, Any], inputs: dict[str, TensorSpec], limits: DecodeLimits) -> dict[str, Tensor]:
    instances = document[ROW]
    if not isinstance(instances, list):
        raise ill_formed(document, "Expecting 'instances' to be an list/array")
    if not instances:
        raise ill_formed(document, "No values in 'instances' array")
    return rows.tensors_of(instances, inputs, limits)


def _from_inputs(value: Any, inputs: dict[str, TensorSpec], limits: DecodeLimits) -> dict[str, Tensor]:
    if not isinstance(value, dict) or is_b64(value):
        if len(inputs) != 1:
            raise InvalidTensor(
                "inputs is a plain value/list, but expecting an object as multiple input tensors required as per "
                f"tensorinfo_map; {expected(inputs)}"
            )
        return {name: _column(value, spec, limits, COLUMN) for name, spec in inputs.items()}
    missing = next((name for name in inputs if name not in value), None)
    if missing is not None:
        raise InvalidTensor(f"Missing named input: {missing} in 'inputs' object.; {expected(inputs)}")
    return {name: _column(value[name], spec, limits, f"{COLUMN}.{name}") for name, spec in inputs.items()}


def _column(value: Any, spec: TensorSpec, limits: DecodeLimits, place: str) -> Tensor:
    try:
        return tensor_of(value, spec, limits)
    except Fault as fault:
        kind = Unimplemented if fault.code == "UNIMPLEMENTED" else InvalidTensor
        place += "".join(f"[{index}]" for index in fault.path)
        raise kind(f"{fault} (input {declared(spec)}, at {place})") from None

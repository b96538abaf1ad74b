"""A body in any of SageMaker's input formats to the tensors of a signature.

The signature decides: dtype, width and rank come from the model, never from what happens to be in the body.
Source: Amazon SageMaker developer guide, "Common data formats for inference"; sagemaker-inference-toolkit (decoder.py)
and sagemaker-xgboost-container (encoder.py) for what clients send.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from adapters._cast import cast
from adapters._csv import decode_csv
from adapters._jsonlines import decode_dense_lines, decode_jsonlines
from adapters._libsvm import FirstIndex, decode_libsvm
from adapters._media import MediaType, parse_media_type, to_utf8
from adapters._npy import decode_npy, decode_npz
from adapters._recordio import decode_recordio
from adapters._tensorjson import check_lists, check_size
from adapters.sagemaker import documents, grids
from adapters.sagemaker.layout import declared, fits, row_spec, shape_instances, shape_rows
from adapters.sagemaker.sniff import sniff
from gateway.errors import InvalidTensor, MalformedBody, SignatureNotFound, UnsupportedMedia
from gateway.interfaces import DecodeLimits
from gateway.types import DEFAULT_SIGNATURE, ModelMetadata, Signature, Tensor, TensorSpec

OCTETS = "application/octet-stream"
FORM = "application/x-www-form-urlencoded"
VALUES = "values"
"""What records call the features of a model with one input."""


_BYTES_VALUE = re.compile(rb"\x0a\x06values\x12[\x80-\xff]*[\x00-\x7f]\x4a", re.DOTALL)
"""The start of a record's features, if they are bytes and not numbers."""
_LOOKED_AT = 64


class Decoded(Struct, frozen=True):
    """What a body holds."""

    inputs: dict[str, Tensor]
    signature: str
    parameters: Mapping[str, Any] = {}
    stream: bool = False
    """The body asks for an answer in parts."""
    documents: tuple[int, ...] = ()
    """Instances of each JSON document, where there are several."""
    uids: list[str | None] | None = None
    metadata: list[str | None] | None = None


class Body(Struct, frozen=True):
    """A body and what is known of it before it is read."""

    data: bytes
    media: MediaType
    model: ModelMetadata
    limits: DecodeLimits
    first_index: FirstIndex
    label_size: int

    def only(self) -> tuple[str, TensorSpec]:
        """The model's only input. Raises InvalidTensor if it has several."""
        inputs = signature_of(self.model).inputs
        if len(inputs) != 1:
            raise InvalidTensor(
                f"{self.media.name} feeds models with one input, and this one has {', '.join(inputs)}; "
                "send JSON, recordio-protobuf or npz"
            )
        return next(iter(inputs.items()))


def decode(data: bytes, content_type: str, model: ModelMetadata, limits: DecodeLimits, first: FirstIndex) -> Decoded:
    """The tensors of a body. Raises UnsupportedMedia, MalformedBody, InvalidTensor and BodyTooLarge."""
    media = _media(data, content_type, model)
    # SPEC: XGBoost's container takes label_size=1 and drops nothing for it.
    label_size = 0 if model.response.form == "xgboost" else media.count("label_size")
    if media.name in _TEXTS:
        data = to_utf8(data, media)
    *guesses, last = _declared_for(media, model)
    for guess in guesses:
        try:
            return _read(Body(data, media, guess, limits, first, label_size))
        except (MalformedBody, InvalidTensor):
            pass
    return _read(Body(data, media, last, limits, first, label_size))


def _read(body: Body) -> Decoded:
    name = body.media.name
    if name in _READERS:
        return _READERS[name](body)
    if name.startswith("image/"):
        return _image(body)
    raise _unsupported(name)


def _declared_for(media: MediaType, model: ModelMetadata) -> list[ModelMetadata]:
    """The model itself; one that takes anything, as if it took what the format holds, the likeliest first."""
    signature = signature_of(model)
    reader = _READERS.get(media.name)
    if reader in _TYPED or all(spec.dtype != "any" for spec in signature.inputs.values()):
        return [model]
    readings = []
    for dtype in ("float64", "string") if reader in _NUMBERS else ("string",):
        inputs = {name: replace(spec, dtype=dtype) for name, spec in signature.inputs.items()}
        told = replace(signature, inputs=inputs)
        readings.append(replace(model, signatures={**model.signatures, signature.name: told}))
    return readings


def signature_of(model: ModelMetadata, name: str = "") -> Signature:
    """The signature of that name; without one the default, or the only one. Raises SignatureNotFound."""
    signatures = model.signatures
    if not name and DEFAULT_SIGNATURE not in signatures and len(signatures) == 1:
        return next(iter(signatures.values()))
    signature = signatures.get(name or DEFAULT_SIGNATURE)
    if signature is None:
        known = ", ".join(sorted(signatures)) or "none"
        raise SignatureNotFound(f"there is no signature {name or DEFAULT_SIGNATURE!r}; there are: {known}", name)
    return signature


def _media(data: bytes, content_type: str, model: ModelMetadata) -> MediaType:
    """SPEC: what comes without a type, or as octets to a model that takes none, is looked at.

    NOTE: so is what comes as a form: no model takes forms, and `curl -d` calls everything one.
    """
    media = parse_media_type(content_type) if content_type else MediaType(OCTETS)
    specs = list(signature_of(model).inputs.values())
    spec = specs[0] if len(specs) == 1 else TensorSpec("", "float32", None)
    if media.name not in (OCTETS, FORM) or (content_type and media.name == OCTETS and _takes_bytes(spec)):
        return media
    name = sniff(data, spec)
    if not name:
        raise _unsupported(content_type or "a body without a Content-Type, which looks like none of them,")
    return MediaType(name, media.parameters)


def _unsupported(name: str) -> UnsupportedMedia:
    return UnsupportedMedia(f"{name} is not read here; send one of {', '.join(TYPES)}")


def _takes_bytes(spec: TensorSpec) -> bool:
    return spec.media == "image" or spec.dtype in ("uint8", "string", "any")


def _single(body: Body, name: str, tensor: Tensor) -> Decoded:
    return Decoded({name: tensor}, signature_of(body.model).name)


# Text...


def _csv(body: Body) -> Decoded:
    name, spec = body.only()
    rows = decode_csv(body.data, row_spec(spec, body.limits), body.label_size)
    return _single(body, name, shape_rows(rows, spec))


def _libsvm(body: Body) -> Decoded:
    name, spec = body.only()
    return _single(
        body, name, shape_rows(decode_libsvm(body.data, row_spec(spec, body.limits), body.first_index), spec)
    )


def _text(body: Body) -> Decoded:
    name, spec = body.only()
    if spec.dtype != "string":
        raise UnsupportedMedia(f"{body.media.name} feeds models that take text, and this one takes {declared(spec)}")
    try:
        text = body.data.decode()
    except UnicodeDecodeError as error:
        raise MalformedBody(f"the text is not UTF-8 at byte {error.start}") from None
    return _single(body, name, shape_instances(_object(text), spec))


# JSON...


def _json(body: Body) -> Decoded:
    check_size(body.data, body.limits.elements)
    signature = signature_of(body.model)
    if len(signature.inputs) == 1:
        [(name, spec)] = signature.inputs.items()
        rows = grids.json_rows(body.data, row_spec(spec, body.limits))
        if rows is not None:
            return _single(body, name, shape_rows(rows, spec))
    check_lists(body.data, body.limits.elements)
    parsed = documents.parse(body.data)
    return _from_documents(body, parsed, None)


def _jsonlines(body: Body) -> Decoded:
    signature = signature_of(body.model)
    if len(signature.inputs) == 1:
        [(name, spec)] = signature.inputs.items()
        rows = decode_dense_lines(body.data, row_spec(spec, body.limits), grids.OPENINGS)
        if rows is not None:
            return _single(body, name, shape_rows(rows, spec))
    check_lists(body.data, body.limits.elements)
    lines = decode_jsonlines(body.data, body.limits)
    return _from_documents(body, lines.values, lines.numbers)


def _from_documents(body: Body, parsed: list[Any], lines: Sequence[int] | None) -> Decoded:
    """`lines` are the numbers of the documents' lines, if that is what they are called in errors."""
    first = parsed[0]
    name = documents.member(first, "signature_name", str) or ""
    signature = signature_of(body.model, name)
    batches = [
        documents.batch(document, signature.inputs, f"line {lines[index]}: " if lines else "")
        for index, document in enumerate(parsed)
    ]
    counts = [len(batch.instances) for batch in batches]
    if any(batch.columns is not None for batch in batches):
        if len(batches) > 1:
            raise MalformedBody("columns of several instances cannot stand in one of several documents")
        tensors = documents.columns_of(batches[0].columns or {}, signature.inputs, body.limits)
    else:
        instances = [instance for batch in batches for instance in batch.instances]
        tensors = documents.tensors_of(instances, signature.inputs, body.limits, _places(counts, lines))
    return Decoded(
        tensors,
        signature.name,
        documents.member(first, "parameters", dict) or {},
        bool(documents.member(first, "stream", bool)),
        tuple(counts) if lines is None and len(counts) > 1 else (),
    )


def _places(counts: Sequence[int], lines: Sequence[int] | None) -> Callable[[int], str]:
    """How errors name the instances."""
    if lines is None:
        return lambda index: f"row {index + 1}"
    numbers = [number for number, count in zip(lines, counts, strict=True) for _ in range(count)]
    return lambda index: f"line {numbers[index]}"


# Binary...


def _recordio(body: Body) -> Decoded:
    signature = signature_of(body.model)
    if len(signature.inputs) > 1:
        specs = {name: row_spec(spec, body.limits) for name, spec in signature.inputs.items()}
        records = decode_recordio(body.data, specs)
        inputs = {name: shape_rows(rows, signature.inputs[name]) for name, rows in records.features.items()}
        return Decoded(inputs, signature.name, uids=records.uids, metadata=records.metadata)
    name, spec = body.only()
    if spec.media == "image" and _BYTES_VALUE.search(body.data, 0, _LOOKED_AT):
        spec = TensorSpec(name, "string", (None,))  # encoded images, one a record
    records = decode_recordio(body.data, {VALUES: row_spec(spec, body.limits)})
    tensor = shape_rows(records.features[VALUES], spec)
    return Decoded({name: tensor}, signature.name, uids=records.uids, metadata=records.metadata)


def _npy(body: Body) -> Decoded:
    name, spec = body.only()
    return _single(body, name, _array(decode_npy(body.data, body.limits), spec))


def _npz(body: Body) -> Decoded:
    signature = signature_of(body.model)
    specs = signature.inputs
    widest = row_spec(next(iter(specs.values())), body.limits) if len(specs) == 1 else None
    arrays = decode_npz(body.data, widest or row_spec(TensorSpec("", "float32", None), body.limits))
    if len(specs) == 1 and len(arrays) == 1:
        arrays = dict(zip(specs, arrays.values(), strict=True))
    missing = specs.keys() - arrays.keys()
    if missing:
        raise InvalidTensor(f"the npz file has no array {min(missing)}; there are {', '.join(arrays) or 'none'}")
    return Decoded({name: _array(arrays[name], spec) for name, spec in specs.items()}, signature.name)


def _array(array: Tensor, spec: TensorSpec) -> Tensor:
    """SPEC: an array with one dimension less than the model's is one row."""
    if not array.size:
        raise MalformedBody("the array has no rows")
    tensor = array if spec.dtype == "any" else cast(array, spec.numpy_dtype)
    for candidate in (tensor, tensor[np.newaxis]):
        if fits(candidate.shape, spec):
            return candidate
    return shape_instances(tensor if tensor.ndim > 1 else tensor.reshape(1, -1), spec)


def _octets(body: Body) -> Decoded:
    """Only for models that take bytes; see `_media`."""
    name, spec = body.only()
    if spec.media == "image":
        return _single(body, name, _object(body.data))
    if spec.dtype == "string":
        return _single(body, name, shape_instances(_object(body.data), spec))
    if not body.data:
        raise MalformedBody("the body is empty")
    pixels = np.frombuffer(body.data, np.uint8)
    wanted = row_spec(spec, body.limits)
    wanted.check_budget(1, len(pixels))
    if spec.shape is not None and len(spec.shape) == 1:
        return _single(body, name, pixels)
    if wanted.width is not None and len(pixels) % wanted.width:
        raise InvalidTensor(f"{len(pixels)} bytes are no rows of {wanted.width}; the model takes {declared(spec)}")
    return _single(body, name, shape_rows(pixels.reshape(-1, wanted.width or len(pixels)), spec))


def _image(body: Body) -> Decoded:
    _, spec = body.only()
    encoded = spec.dtype == "string" or (spec.dtype == "uint8" and spec.shape is not None and len(spec.shape) == 1)
    if spec.media != "image" and not encoded:
        raise UnsupportedMedia(f"{body.media.name} feeds models that take images, and this one takes {declared(spec)}")
    return _octets(body)


def _object(item: str | bytes) -> Tensor:
    array = np.empty(1, object)
    array[0] = item
    return array


_READERS: dict[str, Callable[[Body], Decoded]] = {
    "application/json": _json,
    "application/jsonlines": _jsonlines,
    "text/csv": _csv,
    "application/x-recordio-protobuf": _recordio,
    "text/libsvm": _libsvm,
    "application/x-npy": _npy,
    "application/x-npz": _npz,
    "text/plain": _text,
    OCTETS: _octets,
    "application/x-image": _image,
    # The same under other names...
    "application/x-jsonlines": _jsonlines,
    "application/jsonl": _jsonlines,
    "application/x-ndjson": _jsonlines,
    "application/jsons": _jsonlines,
    "text/x-libsvm": _libsvm,
}
_TEXTS = frozenset(name for name, reader in _READERS.items() if reader in (_json, _jsonlines, _csv, _libsvm, _text))

_TYPED = frozenset({_json, _jsonlines, _npy, _npz})
"""Readers of formats whose values say themselves what they are."""
_NUMBERS = frozenset({_csv, _libsvm, _recordio})
"""Readers of formats that hold numbers as a rule."""

TYPES = (*list(_READERS)[:9], "image/*")
"""What a refusal lists."""

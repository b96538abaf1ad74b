"""One JSON value to one tensor, with TF Serving's verdicts on what does not fit.

Source: TF Serving, tensorflow_serving/util/json_tensor.cc (AddValueToTensor, FillTensorProto, JsonDecodeBase64Object).
"""

from binascii import Error as Base64Error
from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np
import pybase64

from adapters._lists import cast, first_lengths, flatten, int_range, item_types
from adapters._tensorjson import too_many
from adapters.tfserving.render import json_type, render, type_name
from gateway.interfaces import DecodeLimits
from gateway.types import Tensor, TensorSpec

B64 = "b64"
TEXTS = ("string", "any")
"""Dtypes that take texts, and base64 as bytes."""
MIXED_IMAGES = "an image input takes either base64 values or numbers, not both"

_NUMPY_RANK = 64
_CHUNK = 1024
_B64_HINT = "; b64 feeds string, uint8 and image inputs only"
_TEXT_HINT = '; expected a string, or bytes as {"b64": "..."}'
_IMAGE_HINT = '; an image is sent as {"b64": "..."}'
_ALPHABET_HINT = ", the standard alphabet (+ and /) is expected"
_DATA_URL_HINT = f"{_ALPHABET_HINT}, without 'data:...;base64,' before it"
_END = object()


class Fault(Exception):
    """Why a value is no tensor of its declaration, and where in the value that shows."""

    def __init__(self, text: str, path: tuple[int, ...] = (), code: str = "INVALID_ARGUMENT") -> None:
        super().__init__(text)
        self.path = path
        self.code = code


def is_b64(value: Any) -> bool:
    """Whether the value is an encoded scalar: an object whose only key is `b64`, with a string."""
    return isinstance(value, dict) and len(value) == 1 and isinstance(value.get(B64), str)


def unescape(text: str) -> bytes | None:
    """Base64 as absl::Base64Unescape takes it: standard alphabet, padding optional, whitespace skipped."""
    try:
        return pybase64.b64decode(text, validate=True)
    except (Base64Error, ValueError):
        pass
    packed = "".join(text.split())
    bare = packed.rstrip("=")
    padding = -len(bare) % 4
    if padding == 3 or len(packed) - len(bare) not in (0, padding):
        return None
    try:
        return pybase64.b64decode(bare + "=" * padding, validate=True)
    except (Base64Error, ValueError):
        return None


def try_tensor(value: Any, spec: TensorSpec, limits: DecodeLimits) -> Tensor | None:
    """The tensor that the value is, if it is one. Raises BodyTooLarge."""
    shape = first_lengths(value)
    items = flatten(value, shape) if len(shape) <= min(limits.depth, _NUMPY_RANK) else None
    if items is None:
        return None
    if len(items) > limits.elements:
        raise too_many(limits.elements)
    return _from_items(items, tuple(shape), spec)


def tensor_of(value: Any, spec: TensorSpec, limits: DecodeLimits) -> Tensor:
    """The tensor that the value is. Raises Fault or BodyTooLarge."""
    tensor = try_tensor(value, spec, limits)
    if tensor is None:
        raise _fault(value, spec, min(limits.depth, _NUMPY_RANK))
    return tensor


def _from_items(items: list[Any], shape: tuple[int, ...], spec: TensorSpec) -> Tensor | None:
    if dict not in set(map(type, items)):
        tensor = cast(items, spec)
        return None if tensor is None else tensor.reshape(shape)
    if spec.dtype in TEXTS:
        tensor = cast([unescape(item[B64]) if is_b64(item) else item for item in items], spec)
        return None if tensor is None else tensor.reshape(shape)
    decoded = [data for item in items if is_b64(item) and (data := unescape(item[B64])) is not None]
    if len(decoded) < len(items):
        return None
    if spec.media == "image":
        images = np.empty(len(decoded), object)
        images[:] = decoded
        return images.reshape(shape or (1,))
    if spec.dtype == "uint8" and len(set(map(len, decoded))) == 1:
        return np.frombuffer(b"".join(decoded), np.uint8).copy().reshape(shape + _inner(spec, shape, len(decoded[0])))
    return None


def _inner(spec: TensorSpec, outer: tuple[int, ...], size: int) -> tuple[int, ...]:
    """The shape of one uint8 value's bytes: what the signature leaves for it, or a vector."""
    inner = (spec.shape or ())[len(outer) :]
    sizes = tuple(length for length in inner if length is not None)
    return sizes if sizes and len(sizes) == len(inner) and prod(sizes) == size else (size,)


# Why not...


def _fault(value: Any, spec: TensorSpec, most: int) -> Fault:
    """The first thing that TF Serving would stumble over, in the order of the text."""
    shape = first_lengths(value)
    if len(shape) > most:
        return Fault(f"tensor parsing error: {spec.name}; it is nested more than {most} deep")
    lists: list[Iterator[Any]] = [iter((value,))]
    path: list[int] = []
    while lists:
        item = next(lists[-1], _END)
        level = len(path)
        if item is _END:
            lists.pop()
            if path:
                path.pop()
            continue
        if path:
            path[-1] += 1
        text = _misplaced(item, level, shape)
        if text is None and not isinstance(item, list):
            text = _unfit(item, spec)
        if text is not None:
            return Fault(text, tuple(path), "UNIMPLEMENTED" if text.startswith("Conversion") else "INVALID_ARGUMENT")
        if isinstance(item, list):
            good = _good_items(item, shape[level + 1 :], spec)
            lists.append(iter(item[good:]))
            path.append(good - 1)
    if spec.media == "image":
        return Fault(MIXED_IMAGES)
    return Fault("the base64 values of a uint8 input must all have the same length, and no numbers among them")


def _misplaced(item: Any, level: int, shape: list[int]) -> str | None:
    rank = len(shape)
    if not isinstance(item, list):
        if level == rank:
            return None
        shown = render(item)
        return f"JSON Value: {shown} found at incorrect level: {level + 1} in the JSON DOM. Expected at level: {rank}"
    if level >= rank:
        return f"Encountered list at unexpected level: {level} expected < {rank}"
    if len(item) != shape[level]:
        return f"Encountered list at unexpected size: {len(item)} at level: {level} expected size: {shape[level]}"
    return None


def _good_items(items: list[Any], shape: list[int], spec: TensorSpec) -> int:
    """How many of the first items are surely of that shape and fit the input.

    PERF: many at once, so that the fault in the last of millions is found in good time.
    """
    for start in range(0, len(items), _CHUNK):
        chunk = items[start : start + _CHUNK]
        flat = flatten(chunk, [len(chunk), *shape])
        if flat is None or cast(flat, spec) is None:
            return start
    return len(items)


def _unfit(item: Any, spec: TensorSpec) -> str | None:
    """What is wrong with one scalar for this input, in TF Serving's words."""
    dtype = spec.numpy_dtype
    if dtype.kind == "c":
        return f"Conversion of JSON Value: {render(item)} to type: {type_name(spec.dtype)}"
    hint = ""
    if isinstance(item, dict):
        if spec.dtype in TEXTS and not is_b64(item):
            return f"JSON Value: {render(item)} not formatted correctly for base64 data{_TEXT_HINT}"
        if is_b64(item):
            if spec.dtype in (*TEXTS, "uint8") or spec.media == "image":
                return None if unescape(item[B64]) is not None else _undecodable(item[B64])
            hint = _B64_HINT
    elif type(item) in item_types(spec):
        if dtype.kind not in "iu":
            return None
        least, greatest = int_range(dtype)
        if least <= item <= greatest:
            return None
        hint = f" ({least} to {greatest})"
    if spec.media == "image" and isinstance(item, str | dict):
        hint = _IMAGE_HINT
    return f"JSON Value: {render(item)} Type: {json_type(item)} is not of expected type: {type_name(spec.dtype)}{hint}"


def _undecodable(text: str) -> str:
    return "Unable to base64 decode" + (_DATA_URL_HINT if text.startswith("data:") else _ALPHABET_HINT)

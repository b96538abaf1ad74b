"""A SeldonMessage, in: which payload it carries, and the array that numpy would make of it.

Source: seldon-core, python/seldon_core/utils.py (extract_request_parts_json) and proto/prediction.proto.
"""

from typing import Any, Literal

import numpy as np
import pybase64
from msgspec import Struct

from adapters._excerpt import excerpt
from adapters._lists import first_lengths, flatten
from adapters._tensorjson import too_many
from adapters._tftensor import decode_tftensor
from gateway.errors import InvalidTensor, MalformedBody
from gateway.interfaces import DecodeLimits
from gateway.types import Tensor

Form = Literal["tensor", "ndarray", "tftensor", "jsonData", "strData", "binData"]
"""How a message carries its payload; the answer follows it."""

Mixed = Literal["text", "object"]
"""What values make that have no dtype in common: what numpy makes of them (texts among numbers: all of them texts), or
an object array of the values themselves."""

DATA: tuple[Form, ...] = ("tensor", "ndarray", "tftensor")
"""SPEC: the order in which they are looked for, and so below for the others."""

_PLAIN: tuple[Form, ...] = ("jsonData", "strData", "binData")
_RANK = 64
_EXACT = 1 << 53
"""Up to here a double holds every whole number."""
_REPR = 200
"""Characters of a message that an error repeats."""


class Payload(Struct, frozen=True):
    """What a message carries."""

    form: Form
    value: Any
    """The JSON value under that key, not yet looked at; `binData` may be bytes already."""
    names: list[Any] | None = []
    meta: dict[str, Any] | None = None


def payload_of(message: Any) -> Payload:
    """The message's payload: data, jsonData, strData, binData, in this order. Raises MalformedBody."""
    if isinstance(message, dict):
        meta = meta_of(message)
        if "data" in message:
            form, value, names = _data(message["data"])
            return Payload(form, value, names, meta)
        for form in _PLAIN:
            if form in message:
                return Payload(form, _checked(form, message[form]), meta=meta)
    raise MalformedBody(f"Invalid request data type: {start_of(message, _REPR)}")


def start_of(value: Any, most: int) -> str:
    """The first characters of the value's repr. PERF: nothing is written that is not shown."""
    if isinstance(value, str | bytes):
        return repr(value[:most])[:most]
    if not isinstance(value, list | dict):
        return repr(value)[:most]
    text, closing = ("{", "}") if isinstance(value, dict) else ("[", "]")
    for number, item in enumerate(value):
        if len(text) >= most:
            break
        text += ", " if number else ""
        text += f"{start_of(item, most)}: " if isinstance(value, dict) else ""
        text += start_of(value[item] if isinstance(value, dict) else item, max(0, most - len(text)))
    return (text + closing)[:most]


def meta_of(message: dict[str, Any]) -> dict[str, Any] | None:
    """SPEC: None if there is none; null is taken for none. Raises MalformedBody for what answers cannot repeat."""
    meta = message.get("meta")
    if meta is None:
        return None
    if not isinstance(meta, dict):
        raise MalformedBody("meta is no object")
    for key, kind in (("tags", dict), ("metrics", list), ("requestPath", dict), ("routing", dict)):
        if not isinstance(meta.get(key), kind | None):
            raise MalformedBody(f"meta.{key} is no {'list' if kind is list else 'object'}")
    return meta


def _data(data: Any) -> tuple[Form, Any, list[Any] | None]:
    if not isinstance(data, dict):
        raise MalformedBody("data is no object with tensor, ndarray or tftensor")
    names = data.get("names", [])
    if not isinstance(names, list | None):
        raise MalformedBody("data.names is no list")
    for form in DATA:
        if form in data:
            return form, data[form], names
    return "ndarray", [], names


def _checked(form: Form, value: Any) -> Any:
    if form == "strData" and not isinstance(value, str):
        raise MalformedBody("strData is no text")
    if form == "binData" and not isinstance(value, str | bytes):
        raise MalformedBody("binData is no text in base64")
    return value


# Arrays...


def array_of(payload: Payload, limits: DecodeLimits, mixed: Mixed = "text") -> Tensor:
    """The array of a `data` payload. Raises InvalidTensor and BodyTooLarge."""
    if payload.form == "tftensor":
        return decode_tftensor(payload.value, limits.elements)
    if payload.form == "ndarray":
        return infer(payload.value, limits, mixed)
    tensor = payload.value
    if not isinstance(tensor, dict) or "shape" not in tensor or "values" not in tensor:
        raise InvalidTensor("data.tensor must have shape and values")
    return reshape(infer(tensor["values"], limits, mixed), tensor["shape"])


def reshape(array: Tensor, shape: Any) -> Tensor:
    """SPEC: numpy's rules: -1 is what is left, and a single number is a shape too. Raises InvalidTensor."""
    sizes = [shape] if isinstance(shape, int) else shape
    if not isinstance(sizes, list) or len(sizes) > _RANK or not all(map(_is_size, sizes)):
        raise InvalidTensor(f"data.tensor.shape is no list of whole numbers: {excerpt(start_of(shape, _REPR))}")
    try:
        return array.reshape([int(size) for size in sizes])
    except ValueError:
        text = ",".join(str(size) for size in sizes)
        raise InvalidTensor(f"cannot reshape array of size {array.size} into shape [{text}]") from None


def _is_size(value: Any) -> bool:
    whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    return whole and not isinstance(value, bool) and -1 <= value < 1 << 31


def infer(values: Any, limits: DecodeLimits, mixed: Mixed = "text") -> Tensor:
    """The values as numpy would take them: whole numbers int64 if they fit, with any fraction float64, texts `str`.

    Null, objects and whole numbers that fit nowhere make an object array of the values themselves.
    Raises InvalidTensor where lists have different lengths, and BodyTooLarge.
    """
    shape = first_lengths(values)
    items = flatten(values, shape) if len(shape) <= min(limits.depth, _RANK) else None
    if items is None:
        deep = f" and at most {_RANK} deep" if len(shape) > _RANK else ""
        raise InvalidTensor(f"the array is inhomogeneous: all lists on a level must have the same length{deep}")
    if len(items) > limits.elements:
        raise too_many(limits.elements)
    return _typed(items, mixed).reshape(shape)


def _typed(items: list[Any], mixed: Mixed) -> Tensor:
    types = set(map(type, items))
    if types <= {int, float, bool}:
        if mixed == "object" and {int, float} <= types and any(type(one) is int and abs(one) > _EXACT for one in items):
            return objects(items)
        array = np.array(items, np.float64 if not items else None)
        # NOTE: numpy rounds whole numbers where one is below 0 and one beyond int64.
        return array if array.dtype.kind != "f" or float in types or not items else objects(items)
    if types == {str} or (mixed == "text" and str in types and types <= {str, int, float, bool}):
        return objects([item if type(item) is str else str(item) for item in items])
    return objects(items)


def objects(items: list[Any]) -> Tensor:
    """A vector of the items as they are."""
    array = np.empty(len(items), object)
    array[:] = items
    return array


def single(item: str | bytes) -> Tensor:
    """A text or bytes as a tensor of no dimensions."""
    array = np.empty((), object)
    array[()] = item
    return array


def unbase64(text: str | bytes, what: str = "binData") -> bytes:
    """The bytes; padding may lack, spaces and a `data:` URL's head are skipped. Raises InvalidTensor."""
    if isinstance(text, bytes):
        return text
    try:
        return pybase64.b64decode(text, validate=True)
    except ValueError:
        pass
    head, comma, rest = text.partition(",")
    packed = "".join((rest if comma and head.lstrip().startswith("data:") else text).split()).rstrip("=")
    try:
        return pybase64.b64decode(packed + "=" * (-len(packed) % 4), validate=True)
    except ValueError:
        raise InvalidTensor(f"{what} is no base64: the standard alphabet (+ and /) is expected") from None

"""One value of a JSON instance - the "data element" of SageMaker's documents - to numbers or texts.

A list, or {"values": [...]}, is dense; {"keys": [...], "shape": [...], "values": [...]} is sparse; {"b64": "..."} holds
bytes. Source: Amazon SageMaker developer guide, "Common data formats for inference"; aialgs.data for sparse keys.
"""

from binascii import Error as Base64Error
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pybase64

from adapters import _lists
from adapters._cells import cell_type
from adapters._excerpt import excerpt
from adapters.sagemaker.layout import declared, row_spec, shape_instances
from gateway.errors import InvalidTensor, MalformedBody
from gateway.interfaces import DecodeLimits
from gateway.types import Tensor, TensorSpec

Places = Callable[[int], str]
"""Index of an instance -> how an error names it."""

B64 = "b64"
_PARTS = ("keys", "shape", "values")
_DENSE_OR_SPARSE = frozenset(_PARTS)
_DEEPEST = 32
_EXACT = 2**53


def is_element(value: Any) -> bool:
    """Whether an object is a value, and not an instance that holds one."""
    return isinstance(value, dict) and bool(value) and (value.keys() <= _DENSE_OR_SPARSE or value.keys() == {B64})


def tensor_of(values: Sequence[Any], spec: TensorSpec, limits: DecodeLimits, places: Places) -> Tensor:
    """The values of one input, an instance each, in the declared shape.

    Raises MalformedBody, InvalidTensor and BodyTooLarge.
    """
    plain = [value["values"] if _is_dense(value) else value for value in values]
    shape = _lists.first_lengths(plain)
    if len(shape) <= _DEEPEST:
        items = _lists.flatten(plain, shape)
        tensor = None if items is None else _lists.cast(items, spec)
        if tensor is not None:
            return shape_instances(tensor.reshape(shape), spec, places(0))
    if spec.media == "image" and all(isinstance(value, dict) and B64 in value for value in plain):
        return _objects([_bytes(value, places(index)) for index, value in enumerate(plain)])
    rows: list[Tensor] = []
    wanted = row_spec(spec, limits)
    for index, value in enumerate(plain):
        row = _row(value, spec, limits, places(index))
        if row.size == 1 == wanted.width:
            row = row.reshape(1)  # a value alone is a row of one
        if row.ndim < 2:
            wanted.check_width(row.size, places(index), "values")
        rows.append(row)
        _check_alike(row, rows[0], places(index))
        wanted.check_budget(len(rows), row.size)
    return shape_instances(np.stack(rows), spec, places(0))


def _is_dense(value: Any) -> bool:
    return isinstance(value, dict) and value.keys() == {"values"}


def _objects(items: list[Any]) -> Tensor:
    array = np.empty(len(items), object)
    array[:] = items
    return array


def _check_alike(row: Tensor, first: Tensor, place: str) -> None:
    if row.shape != first.shape:
        raise InvalidTensor(f"{place}: shape {list(row.shape)}, where the first row has {list(first.shape)}")


# One row...


def _row(value: Any, spec: TensorSpec, limits: DecodeLimits, place: str) -> Tensor:
    if isinstance(value, dict):
        if value.keys() == {B64}:
            return _of_bytes(_bytes(value, place), spec, place)
        if not is_element(value):
            names = ", ".join(map(excerpt, list(value)[:4]))
            raise MalformedBody(f"{place}: expected a list, or an object with values, keys and shape; got {names}")
        return _of_parts(value, spec, limits, place)
    if value is None:
        raise MalformedBody(f"{place}: the value for input {spec.name} is null")
    return _dense(value, spec, place)


def _of_bytes(data: bytes, spec: TensorSpec, place: str) -> Tensor:
    if spec.dtype == "string":
        return _objects([data]).reshape(())
    if spec.dtype == "uint8" and spec.media != "image":
        return np.frombuffer(data, np.uint8)
    raise InvalidTensor(f"{place}: base64 is no {declared(spec)}")


def _bytes(value: dict[str, Any], place: str) -> bytes:
    text = value[B64]
    try:
        return pybase64.b64decode(text, validate=True)
    except (Base64Error, ValueError, TypeError):
        raise MalformedBody(f"{place}: {excerpt(text)} is not base64") from None


def _of_parts(value: dict[str, Any], spec: TensorSpec, limits: DecodeLimits, place: str) -> Tensor:
    keys, shape, values = ([] if value.get(name) is None else value[name] for name in _PARTS)
    if not (isinstance(keys, list) and isinstance(shape, list) and isinstance(values, list)):
        raise MalformedBody(f"{place}: keys, shape and values must be lists")
    sizes = _counts(shape, "shape", place)
    if values and not keys:
        row = _dense(values, spec, place)
        if sizes and row_spec(spec, limits).check_shape(sizes, place) != row.size:
            raise InvalidTensor(f"{place}: {row.size} values, but the shape {sizes} says otherwise")
        return row
    if not sizes:
        raise InvalidTensor(f"{place}: " + ("sparse values need a shape" if keys else "there are no values"))
    return _sparse(_counts(keys, "keys", place), sizes, values, spec, limits, place)


def _sparse(
    keys: list[int], sizes: list[int], values: list[Any], spec: TensorSpec, limits: DecodeLimits, place: str
) -> Tensor:
    if spec.dtype == "string":
        raise InvalidTensor(f"{place}: sparse values are numbers, the model takes text")
    count = row_spec(spec, limits).check_shape(sizes, place)
    if len(keys) != len(values):
        raise InvalidTensor(f"{place}: {len(keys)} keys, but {len(values)} values")
    if keys and max(keys) >= count:
        raise InvalidTensor(f"{place}: key {max(keys)} is beyond the {count} values of the shape")
    if len(set(keys)) != len(keys):
        raise InvalidTensor(f"{place}: a key occurs twice")
    row = np.zeros(count, spec.numpy_dtype)
    if keys:
        row[keys] = _vector(values, spec, place)
    return row


def _counts(values: list[Any], name: str, place: str) -> list[int]:
    if not all(type(value) is int and 0 <= value < 2**62 for value in values):
        raise MalformedBody(f"{place}: {name} must be whole numbers, none below 0")
    return values


def _dense(value: Any, spec: TensorSpec, place: str) -> Tensor:
    shape = _lists.first_lengths(value)
    items = _lists.flatten(value, shape) if len(shape) <= _DEEPEST else None
    if items is None:
        raise InvalidTensor(f"{place}: the lists for input {spec.name} are ragged or nested too deeply")
    return _vector(items, spec, place).reshape(shape)


# One value...


def _vector(items: list[Any], spec: TensorSpec, place: str) -> Tensor:
    vector = _lists.cast(items, spec)
    if vector is None:
        parse = _parser(spec)
        values = [_value(item, parse, spec, place, index) for index, item in enumerate(items)]
        vector = _lists.cast(values, spec)
    assert vector is not None
    return vector


def _parser(spec: TensorSpec) -> Callable[[str], Any]:
    parse, _ = cell_type(spec.numpy_dtype)
    return (lambda text: bool(parse(text))) if spec.dtype == "bool" else parse


def _value(item: Any, parse: Callable[[str], Any], spec: TensorSpec, place: str, index: int) -> Any:
    """The item as a Python value of the input's kind.

    SPEC: null and "NaN" are NaN to a float model, numbers in quotes are numbers; nothing else is converted.
    """
    kind = spec.numpy_dtype.kind
    try:
        if type(item) in _lists.ITEM_TYPES[kind] and kind != "i" and kind != "u":
            return item
        if kind == "O":
            return _text(item)
        if item is None or isinstance(item, str):
            return parse(item or "")
        if type(item) is int or (type(item) is float and item.is_integer() and abs(item) <= _EXACT):
            return parse(str(int(item)))
    except ValueError:
        pass
    shown = "a list or an object" if isinstance(item, dict | list) else excerpt("null" if item is None else item)
    raise InvalidTensor(f"{place}, value {index + 1}: {shown} is no {spec.dtype}")


def _text(item: Any) -> str | bytes:
    if isinstance(item, dict) and item.keys() == {B64}:
        return pybase64.b64decode(item[B64], validate=True)
    if not isinstance(item, str):
        raise ValueError
    return item

"""A payload to the named inputs of a model that declares them: an ONNX graph, an image or a language model."""

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np

from adapters._cast import cast
from adapters._excerpt import excerpt
from adapters._lists import int_range
from adapters.seldon.messages import DATA, Payload, array_of, infer, objects, unbase64
from gateway.errors import InvalidTensor
from gateway.interfaces import DecodeLimits
from gateway.types import Tensor, TensorSpec

Specs = Mapping[str, TensorSpec]


def bind(payload: Payload, specs: Specs, limits: DecodeLimits) -> dict[str, Tensor]:
    """The inputs. Raises InvalidTensor and BodyTooLarge."""
    if payload.form == "jsonData" and isinstance(payload.value, dict):
        return _by_name(payload.value, specs, limits)
    if not specs:
        raise InvalidTensor("the model takes no inputs: send jsonData with an empty object")
    if len(specs) == 1:
        [(name, spec)] = specs.items()
        return {name: _only(payload, spec, limits)}
    if payload.form in DATA and payload.names:
        return _columns(payload, specs, limits)
    raise InvalidTensor(
        f"the model has several inputs ({', '.join(specs)}): send jsonData with an object of them, "
        "or data whose names are the inputs, one column each"
    )


def bind_array(array: Tensor, spec: TensorSpec) -> Tensor:
    """Numbers that came as an array already, as the input takes them. Raises InvalidTensor."""
    return np.asarray(fit(_typed(array, spec), spec), order="C")


# One input...


def _only(payload: Payload, spec: TensorSpec, limits: DecodeLimits) -> Tensor:
    match payload.form:
        case "strData":
            return _text(payload.value, spec)
        case "binData":
            return _binary(unbase64(payload.value), spec)
        case "jsonData":
            return bind_array(infer(payload.value, limits, "object"), spec)
        case _:
            return bind_array(array_of(payload, limits, "object"), spec)


def _text(text: str, spec: TensorSpec) -> Tensor:
    """SPEC: a model that takes no text takes what the text is the base64 of."""
    if spec.dtype == "string" and spec.media != "image":
        return _one_item(text, spec)
    if spec.media == "image" or spec.dtype == "uint8":
        return _binary(unbase64(text, "strData"), spec)
    raise InvalidTensor(f"strData feeds models that take text or images, and this one takes {declared(spec)}")


def _binary(data: bytes, spec: TensorSpec) -> Tensor:
    if spec.media == "image":
        return objects([data])
    if spec.dtype == "string":
        return _one_item(data, spec)
    if spec.dtype != "uint8":
        raise InvalidTensor(f"binData feeds models that take bytes or images, and this one takes {declared(spec)}")
    if spec.shape is None or len(spec.shape) < 2:
        return np.frombuffer(data, np.uint8)
    width = prod(size or 1 for size in spec.shape[1:])
    if None in spec.shape[1:] or not width or len(data) % width:
        raise InvalidTensor(f"{len(data)} bytes are no rows of {width}; the model takes {declared(spec)}")
    return np.frombuffer(data, np.uint8).reshape(-1, *spec.shape[1:])


def _one_item(item: str | bytes, spec: TensorSpec) -> Tensor:
    return objects([item]).reshape((1,) * (1 if spec.shape is None else len(spec.shape)))


# Several...


def _by_name(values: dict[str, Any], specs: Specs, limits: DecodeLimits) -> dict[str, Tensor]:
    unknown = [name for name in values if name not in specs]
    if unknown:
        raise InvalidTensor(
            f"jsonData has {excerpt(unknown[0])}, which is no input; the inputs are {', '.join(specs) or 'none'}"
        )
    tensors = {}
    for name, value in values.items():
        try:
            tensors[name] = bind_array(infer(value, limits, "object"), specs[name])
        except InvalidTensor as error:
            raise InvalidTensor(f"jsonData.{name}: {error}") from None
    return tensors


def _columns(payload: Payload, specs: Specs, limits: DecodeLimits) -> dict[str, Tensor]:
    """SPEC: names are the features' names, and a model of several inputs has one for each feature."""
    names = payload.names or []
    unknown = [name for name in names if name not in specs]
    if unknown or len(set(names)) < len(names):
        raise InvalidTensor(f"data.names must be inputs of the model, each once; they are {', '.join(specs)}")
    if payload.form == "ndarray":
        columns = _ndarray_columns(payload.value, len(names))
        return {
            name: bind_array(infer(column, limits, "object"), specs[name])
            for name, column in zip(names, columns, strict=True)
        }
    array = array_of(payload, limits, "object")
    if array.ndim < 2 or array.shape[1] != len(names):
        shape = ",".join(map(str, array.shape))
        raise InvalidTensor(
            f"data has {len(names)} names and the shape [{shape}]; one column for each name is expected"
        )
    return {name: bind_array(array[:, place], specs[name]) for place, name in enumerate(names)}


def _ndarray_columns(rows: Any, width: int) -> list[list[Any]]:
    if not isinstance(rows, list) or not all(isinstance(row, list) and len(row) == width for row in rows):
        raise InvalidTensor(f"data.ndarray must be a list of rows of {width} values, one for each name")
    return [list(column) for column in zip(*rows, strict=True)] if rows else [[]] * width


# Dtype and shape...


def _typed(array: Tensor, spec: TensorSpec) -> Tensor:
    dtype = spec.numpy_dtype
    if array.dtype == object:
        return _from_objects(array, spec)
    if dtype.kind == "O" and not array.size:
        return array.astype(object)
    return cast(array, dtype)


def _from_objects(array: Tensor, spec: TensorSpec) -> Tensor:
    items = array.ravel().tolist()
    types = set(map(type, items))
    if types <= {str, bytes}:
        if spec.media == "image":
            return objects([unbase64(item, "the image") for item in items]).reshape(array.shape)
        if spec.dtype == "string":
            return array
    if types <= {int, float, bool} and spec.numpy_dtype.kind in "iufb":
        return _exact_numbers(items, spec.numpy_dtype).reshape(array.shape)
    fits: tuple[type, ...] = (str, bytes) if spec.numpy_dtype.kind == "O" else (int, float)
    item = next((one for one in items if not isinstance(one, fits)), items[0])
    raise InvalidTensor(f"{_shown(item)} is among the values, and the model takes {declared(spec)}")


def _exact_numbers(items: list[Any], dtype: np.dtype) -> Tensor:
    """Whole numbers too large or too different for one dtype of numpy's choice."""
    if dtype.kind == "f":
        try:
            return np.array([float(item) for item in items]).astype(dtype)
        except OverflowError:
            raise InvalidTensor("a number is beyond float64") from None
    least, greatest = int_range(dtype) if dtype.kind in "iu" else (0, 1)
    for item in items:
        if not least <= item <= greatest or item != int(item):
            raise InvalidTensor(f"{excerpt(item)} does not fit {dtype.name}")
    return np.array([int(item) for item in items], dtype)


def _shown(item: Any) -> str:
    if item is None:
        return "null"
    return "an object" if isinstance(item, dict) else f"the text {excerpt(item)}"


def fit(array: Tensor, spec: TensorSpec) -> Tensor:
    """SPEC: one dimension less than the model's is one row; flat rows are laid out as the model's inner dimensions."""
    shape = spec.shape
    if shape is None or array.ndim == len(shape) or (spec.media == "image" and array.dtype.kind == "O"):
        return array
    inner = shape[1:]
    if array.ndim == len(inner) and _agree(array.shape, inner) and shape[0] in (None, 1):
        return array[np.newaxis]
    flat = array.ndim == 1 or (array.ndim == 2 and len(shape) > 2)
    if flat and inner and None not in inner and array.size:
        width = prod(size for size in inner if size is not None)
        if width == array.shape[-1] or (array.ndim == 1 and len(inner) == 1 and width == 1):
            return array.reshape(-1, *(size or 0 for size in inner))
    return array


def _agree(sizes: tuple[int, ...], declared_sizes: tuple[int | None, ...]) -> bool:
    return all(size == wanted or wanted is None for size, wanted in zip(sizes, declared_sizes, strict=True))


def declared(spec: TensorSpec) -> str:
    """What an input takes, for people."""
    if spec.shape is None:
        return spec.dtype
    return f"{spec.dtype} [{','.join('-1' if size is None else str(size) for size in spec.shape)}]"

"""JSON documents to instances: every form in which SageMaker's clients write them.

{"instances": [...]}, {"examples": [...]}, {"inputs": ...}, a list of rows, one row, or one instance; an instance is
{"features": element}, {"data": {"features": element}}, an object of the model's inputs, or an element alone.
Source: Amazon SageMaker developer guide, "Common data formats for inference"; the TensorFlow Serving and Hugging Face
containers for `inputs`, `examples` and `parameters`.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from msgspec import Struct

from adapters._excerpt import excerpt
from adapters.sagemaker.elements import Places, is_element, tensor_of
from adapters.sagemaker.layout import row_width
from gateway.errors import BodyTooLarge, InvalidTensor, MalformedBody
from gateway.interfaces import DecodeLimits
from gateway.types import Tensor, TensorSpec

_BOM = b"\xef\xbb\xbf"
_LISTS = ("instances", "examples")
_WRAPPERS = ("features", "data")
_DANGLING = re.compile(rb",\s*[\]}]")

_SPACE = re.compile(r"[ \t\r\n]*")
_LONGEST_INT = 300
_MOST_DOCUMENTS = 1 << 16
"""In one body. PERF: each costs some microseconds and a few hundred bytes, however small it is."""

Inputs = Mapping[str, TensorSpec]


class Batch(Struct, frozen=True):
    """What a document asks."""

    instances: list[Any]
    columns: Mapping[str, Any] | None = None
    """Whole tensors by input, instead of instances."""


# Text...


def parse(body: bytes) -> list[Any]:
    """The documents of a body: one, or several back to back. Raises MalformedBody and BodyTooLarge.

    NaN and the infinities are read too: Python's clients write them.
    """
    body = body.removeprefix(_BOM)
    if not body.strip():
        raise MalformedBody("the body is empty")
    try:
        return [orjson.loads(body)]
    except orjson.JSONDecodeError:
        pass
    try:
        return _documents(body.decode())
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError, ValueError) as error:
        hint = "; a comma stands before a closing bracket" if _DANGLING.search(body) else ""
        raise MalformedBody(f"not JSON: {_reason(error)}{hint}") from None


def _documents(text: str) -> list[Any]:
    decoder = json.JSONDecoder(parse_int=_int)
    documents: list[Any] = []
    at = _skip_space(text, 0)
    while at < len(text):
        if len(documents) == _MOST_DOCUMENTS:
            raise BodyTooLarge(f"the body has more than {_MOST_DOCUMENTS} JSON documents; send one with more instances")
        document, at = decoder.raw_decode(text, at)
        documents.append(document)
        at = _skip_space(text, at)
    return documents


def _skip_space(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at


def _int(text: str) -> int:
    if len(text) > _LONGEST_INT:
        raise ValueError
    return int(text)


def _reason(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} at line {error.lineno}, column {error.colno}"
    if isinstance(error, UnicodeDecodeError):
        return f"it is not UTF-8 at byte {error.start}"
    return "nested too deeply" if isinstance(error, RecursionError) else "a number is too long"


# Forms...


def member(document: Any, name: str, kind: type[Any]) -> Any:
    """A member of a document beside its data, if it is there and of that type."""
    value = document.get(name) if isinstance(document, dict) else None
    return value if isinstance(value, kind) else None


def batch(document: Any, inputs: Inputs, place: str) -> Batch:
    """The instances of one document. Raises MalformedBody."""
    if isinstance(document, list):
        return Batch(_rows(document, inputs))
    if not isinstance(document, dict) or is_element(document):
        return Batch([document])
    for name in _LISTS:
        if name in document and name not in inputs:
            instances = document[name]
            if not isinstance(instances, list):
                raise MalformedBody(f"{place}{name} must be a list")
            return Batch(instances)
    if "inputs" in document and "inputs" not in inputs:
        return _inputs(document["inputs"], inputs)
    return Batch([document])


def _rows(values: list[Any], inputs: Inputs) -> list[Any]:
    """A list of rows; one without lists in it is itself a row, unless the model takes single values."""
    if values and not any(isinstance(value, list | dict) for value in values) and _takes_vectors(inputs):
        return [values]
    return values


def _takes_vectors(inputs: Inputs) -> bool:
    return any(row_width(spec.shape) != 1 for spec in inputs.values())


def _inputs(value: Any, inputs: Inputs) -> Batch:
    """What a TensorFlow model's `inputs` hold is whole tensors; a Hugging Face model's is one text, or several."""
    if isinstance(value, list):
        return Batch(_rows(value, inputs))
    named = isinstance(value, dict) and bool(value.keys() & inputs.keys())
    if named and any(isinstance(column, list) for column in value.values()):
        return Batch([], value)
    return Batch([value])


# Tensors...


def tensors_of(instances: Sequence[Any], inputs: Inputs, limits: DecodeLimits, places: Places) -> dict[str, Tensor]:
    """A tensor for each input. Raises MalformedBody, InvalidTensor and BodyTooLarge."""
    if not instances:
        raise MalformedBody("there are no instances")
    if len(inputs) == 1:
        [spec] = inputs.values()
        name = next(iter(inputs))
        values = [_only(instance, name, places, index) for index, instance in enumerate(instances)]
        return {name: tensor_of(values, spec, limits, places)}
    objects = [_object(instance, inputs, places, index) for index, instance in enumerate(instances)]
    return {
        name: tensor_of(_column(objects, name, places), spec, limits, places)
        for name, spec in inputs.items()
        if any(name in one for one in objects)  # one that all leave out may be optional
    }


def columns_of(columns: Mapping[str, Any], inputs: Inputs, limits: DecodeLimits) -> dict[str, Tensor]:
    """A tensor for each input from its whole column. Raises MalformedBody, InvalidTensor and BodyTooLarge."""
    unknown = columns.keys() - inputs.keys()
    if unknown:
        raise InvalidTensor(f"inputs: there is no input {excerpt(min(unknown))}; there are {', '.join(inputs)}")
    tensors = {}
    for name, column in columns.items():
        rows = _rows(column, {name: inputs[name]}) if isinstance(column, list) else [column]
        if not rows:
            raise MalformedBody(f"inputs: the column {name} is empty")
        tensors[name] = tensor_of(rows, inputs[name], limits, _places_in(name))
    return tensors


def _places_in(column: str) -> Places:
    return lambda index: f"{column}, row {index + 1}"


def _only(instance: Any, name: str, places: Places, index: int) -> Any:
    """The value of the only input."""
    value = instance
    while isinstance(value, dict):
        if name in value:
            return value[name]
        if is_element(value):
            return value
        wrapper = next((wrapper for wrapper in _WRAPPERS if wrapper in value), None)
        if wrapper is None:
            found = ", ".join(map(excerpt, list(value)[:4])) or "nothing"
            raise MalformedBody(f"{places(index)}: expected features, data or {excerpt(name)}; there is {found}")
        value = value[wrapper]
    return value


def _object(instance: Any, inputs: Inputs, places: Places, index: int) -> Mapping[str, Any]:
    """The object that holds the values of all inputs."""
    value = instance
    while isinstance(value, dict):
        if value.keys() & inputs.keys():
            return value
        value = next((value[wrapper] for wrapper in _WRAPPERS if wrapper in value), None)
    raise InvalidTensor(f"{places(index)}: expected an object with the model's inputs {', '.join(inputs)}")


def _column(objects: Sequence[Mapping[str, Any]], name: str, places: Places) -> list[Any]:
    for index, one in enumerate(objects):
        if name not in one:
            raise InvalidTensor(f"{places(index)}: the input {name} is missing")
    return [one[name] for one in objects]

"""Values and declarations as they appear in error texts.

Source: TF Serving, tensorflow_serving/util/json_tensor.cc (JsonValueToString, JsonTypeString).
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from gateway.types import TensorSpec

_SHOWN = 256
"""Characters of a value that an error shows."""

_TYPE_NAMES = {
    "float32": "float",
    "float64": "double",
    "float16": "half",
    "float8e4m3fn": "float8_e4m3fn",
    "float8e4m3fnuz": "float8_e4m3fnuz",
    "float8e5m2": "float8_e5m2",
    "float8e5m2fnuz": "float8_e5m2fnuz",
}


def type_name(dtype: str) -> str:
    """A dtype in TensorFlow's words."""
    return _TYPE_NAMES.get(dtype, dtype)


def json_type(value: Any) -> str:
    """A JSON value's type in RapidJSON's words."""
    if value is None:
        return "Null"
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, int | float):
        return "Number"
    if isinstance(value, list):
        return "Array"
    return "Object" if isinstance(value, dict) else "String"


def render(value: Any) -> str:
    """A JSON value, indented as RapidJSON's PrettyWriter does, and cut where it gets long."""
    shown: list[str] = []
    size = 0
    for token in _tokens(value, ""):
        if size > _SHOWN:
            shown.append("...")
            break
        shown.append(token)
        size += len(token)
    return "".join(shown)


def cut(name: str | bytes) -> str:
    """A name as the client wrote it, and of a long one the beginning."""
    text = name.decode("utf-8", "replace") if isinstance(name, bytes) else name
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _tokens(value: Any, margin: str) -> Iterator[str]:
    """NOTE: recursion is no deeper than what is shown, for each level shows at least a bracket."""
    if isinstance(value, list):
        yield "["
        for index, item in enumerate(value):
            if index:
                yield ", "
            yield from _tokens(item, margin + "    ")
        yield "]"
    elif isinstance(value, dict):
        yield "{"
        for index, (key, member) in enumerate(value.items()):
            yield ",\n" if index else "\n"
            yield f"{margin}    {_scalar(key)}: "
            yield from _tokens(member, margin + "    ")
        yield f"\n{margin}}}" if value else "}"
    else:
        yield _scalar(value)


def _scalar(value: Any) -> str:
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    if isinstance(value, str) and len(value) > _SHOWN:
        return f'{json.dumps(value[:_SHOWN], ensure_ascii=False)[:-1]}..."'
    return json.dumps(value, ensure_ascii=False)


def declared(spec: TensorSpec) -> str:
    """An input as its signature declares it, e.g. `"x" float32 [-1,784]`."""
    if spec.shape is None:
        shape = "of any shape"
    else:
        shape = "[" + ",".join("-1" if size is None else str(size) for size in spec.shape) + "]"
    return f'"{spec.name}" {spec.dtype} {shape}'


def expected(inputs: Mapping[str, TensorSpec]) -> str:
    """All of a signature's inputs, for whoever has named others."""
    return "expected inputs: " + ", ".join(declared(spec) for spec in inputs.values())

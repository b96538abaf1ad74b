"""predict, out: tensors to `predictions` (row format) or `outputs` (column format).

Source: TF Serving, tensorflow_serving/util/json_tensor.cc (MakeJsonFromTensors).
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import orjson

from adapters._ragged import own_rows
from adapters._tensorjson import NonFinite, dump, is_finite, texts
from gateway.errors import InvalidTensor
from gateway.types import Tensor

_BYTES_SUFFIX = "_bytes"
"""A string output of such a name is written in base64."""

Outputs = Mapping[str, Tensor]


def rows(outputs: Outputs, non_finite: NonFinite, named: bool) -> bytes:
    """One value for each row, or one object where there are several outputs. Raises InvalidTensor."""
    _check_rows(outputs)
    if len(outputs) == 1 and not named:
        return b'{"predictions":' + _only(outputs, non_finite) + b"}"
    # PERF: numpy scalars and views of rows in a dict for each row; orjson writes them all in one call.
    values = zip(*(_rows(name, tensor) for name, tensor in outputs.items()), strict=True)
    table = [dict(zip(outputs, row, strict=True)) for row in values]
    return b'{"predictions":' + dump_objects(table, outputs.values(), non_finite) + b"}"


def ragged_rows(outputs: Outputs, lengths: Sequence[int], non_finite: NonFinite, named: bool) -> bytes:
    """As `rows`, each without what has only filled it up."""
    table = [{name: _rows(name, own) for name, own in row.items()} for row in own_rows(outputs, lengths)]
    values = table if named or len(outputs) > 1 else [value for row in table for value in row.values()]
    return b'{"predictions":' + dump_objects(values, outputs.values(), non_finite) + b"}"


def columns(outputs: Outputs, non_finite: NonFinite, named: bool) -> bytes:
    """The only tensor, or an object of all of them."""
    if len(outputs) == 1 and not named:
        return b'{"outputs":' + _only(outputs, non_finite) + b"}"
    members = [
        orjson.dumps(name) + b":" + dump(tensor, non_finite, name.endswith(_BYTES_SUFFIX))
        for name, tensor in outputs.items()
    ]
    return b'{"outputs":{' + b",".join(members) + b"}}"


def dump_objects(value: Any, tensors: Any, non_finite: NonFinite) -> bytes:
    """Lists and dicts of numpy values taken from those tensors."""
    if non_finite == "null" or all(map(is_finite, tensors)):
        return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)
    return _dump_each(value, non_finite)


def _dump_each(value: Any, non_finite: NonFinite) -> bytes:
    """Piece by piece: orjson alone writes null for what is not finite."""
    if isinstance(value, np.ndarray | np.generic):
        return dump(np.asarray(value), non_finite)
    if isinstance(value, dict):
        members = [orjson.dumps(name) + b":" + _dump_each(member, non_finite) for name, member in value.items()]
        return b"{" + b",".join(members) + b"}"
    if isinstance(value, list | tuple):
        return b"[" + b",".join(_dump_each(item, non_finite) for item in value) + b"]"
    return orjson.dumps(value)


def no_rows(name: str) -> InvalidTensor:
    """The complaint about a scalar output in the row format."""
    return InvalidTensor(f'Tensor name: {name} has no shape information ; it is a scalar: send "inputs" instead')


def _only(outputs: Outputs, non_finite: NonFinite) -> bytes:
    ((name, tensor),) = outputs.items()
    return dump(tensor, non_finite, name.endswith(_BYTES_SUFFIX))


def _rows(name: str, tensor: Tensor) -> Any:
    if tensor.dtype.kind in "OUS":
        return texts(tensor, name.endswith(_BYTES_SUFFIX))
    # NOTE: 64-bit integers from ONNX Runtime are of C's long long, whose scalars orjson does not know.
    return np.ascontiguousarray(tensor).view(np.dtype(tensor.dtype.name))


def _check_rows(outputs: Outputs) -> None:
    rows = None
    for name, tensor in outputs.items():
        if tensor.ndim == 0:
            raise no_rows(name)
        if rows is None:
            rows = len(tensor)
        elif len(tensor) != rows:
            raise InvalidTensor(
                f"Tensor name: {name} has inconsistent batch size: {len(tensor)} expecting: {rows}; "
                'send "inputs" instead'
            )

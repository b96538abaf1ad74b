"""Tensors as bare bytes: little-endian, row-major, a string as its length in 4 bytes and then itself.

Source: Triton, docs/protocol/extension_binary_data.md; `raw_input_contents` of the gRPC protocol is the same.
"""

import struct
from collections.abc import Iterator
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from adapters.v2.datatypes import BF16, BOOL, BYTES, DTYPES
from gateway.errors import InferenceFailed, InvalidTensor
from gateway.types import Tensor

_LENGTH = struct.Struct("<I")
_LONGEST = 2**32 - 1


class Misfit(Exception):
    """Why the bytes are no such tensor; whoever knows its name says so."""


def item_bytes(datatype: str) -> int:
    """How many bytes one element takes; 0 if that depends on the element."""
    if datatype == BYTES:
        return 0
    return 2 if datatype == BF16 else DTYPES[datatype].itemsize


def read(data: bytes | memoryview, datatype: str, shape: tuple[int, ...], count: int) -> Tensor:
    """The tensor of `count` elements that the bytes are; numbers are not copied, so it may be read-only.

    Raises Misfit.
    """
    if datatype == BYTES:
        return _read_strings(data, count).reshape(shape)
    wanted = count * item_bytes(datatype)
    if len(data) != wanted:
        raise Misfit(f"{count} elements of {datatype} are {wanted} bytes, but {len(data)} came")
    if datatype == BF16:
        # A bfloat16 is the upper half of the float32 of the same value.
        return (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32).reshape(shape)
    if datatype == BOOL and count and int(np.frombuffer(data, np.uint8).max()) > 1:
        raise Misfit("a BOOL is a byte of 0 or 1")
    dtype = DTYPES[datatype]
    tensor = np.frombuffer(data, dtype.newbyteorder("<")) if count else np.empty(0, dtype)
    return tensor.astype(dtype, copy=False).reshape(shape)


def _read_strings(data: bytes | memoryview, count: int) -> Tensor:
    if 4 * count > len(data):
        raise Misfit(f"{count} strings are at least {4 * count} bytes, but {len(data)} came")
    strings = np.empty(count, object)
    end = len(data)
    at = 0
    for index in range(count):
        start = at + 4
        if start > end:
            raise Misfit(f"string {index} is cut off")
        at = start + _LENGTH.unpack_from(data, start - 4)[0]
        if at > end:
            raise Misfit(f"string {index} is cut off: {at - start} bytes are announced, {end - start} came")
        strings[index] = bytes(data[start:at])
    if at != end:
        raise Misfit(f"{end - at} bytes are left after {count} strings")
    return strings


def write(tensor: Tensor, datatype: str) -> bytes:
    """The tensor's bytes."""
    if datatype == BYTES:
        return b"".join(part for item in octets(tensor) for part in (_LENGTH.pack(len(item)), item))
    if datatype == BF16:
        return _to_bfloat16(np.ascontiguousarray(tensor, np.float32))
    return tensor.astype(DTYPES[datatype].newbyteorder("<"), copy=False).tobytes()


def _to_bfloat16(tensor: Tensor) -> bytes:
    """Rounded to the nearest, ties to even; a NaN keeps its upper bits, and stays one."""
    bits = tensor.view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return np.where(np.isnan(tensor), (bits >> 16) | 0x40, rounded).astype("<u2").tobytes()


def octets(tensor: Tensor) -> Iterator[bytes]:
    """The elements of a string tensor, text as UTF-8."""
    for item in tensor.ravel().tolist():
        yield _octets(item)


def _octets(item: Any) -> bytes:
    if isinstance(item, str):
        item = item.encode("utf-8", "surrogatepass")
    if not isinstance(item, bytes) or len(item) > _LONGEST:
        raise InferenceFailed(f"an output holds {type(item).__name__}, which is no string")
    return item


def split(data: memoryview, sizes: list[int]) -> list[memoryview]:
    """The tensors' bytes. Raises InvalidTensor if they are not exactly those that came."""
    if sum(sizes) != len(data):
        raise InvalidTensor(
            f"the inputs' binary_data_size add up to {sum(sizes)} bytes, but {len(data)} follow the JSON part"
        )
    return [data[start:end] for start, end in pairwise(accumulate(sizes, initial=0))]

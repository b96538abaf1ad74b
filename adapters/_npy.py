"""numpy's own file formats, npy and npz; of the latter also the sparse matrices that scipy saves. Never a pickle.

Headers are read by a pattern, sizes are checked before memory is taken.
Source: numpy/lib/_format_impl.py (npy 1.0 to 3.0); scipy/sparse/_matrix_io.py.
"""

import io
import re
import struct
import sys
import zipfile
import zlib
from collections.abc import Mapping
from math import prod

import numpy as np

from adapters._excerpt import excerpt
from adapters._rowspec import RowSpec
from adapters._sparse import densify
from gateway.errors import BodyTooLarge, InvalidTensor, MalformedBody, NotAcceptable
from gateway.interfaces import DecodeLimits
from gateway.types import Tensor

_MAGIC = b"\x93NUMPY"
_HEADER_MOST = 10_000
_DESCR = re.compile(rb"'descr'\s*:\s*'([<>|=]?)([a-zA-Z])([0-9]{0,6})'")
_FORTRAN = re.compile(rb"'fortran_order'\s*:\s*(True|False)")
_SHAPE = re.compile(rb"'shape'\s*:\s*\(((?:\s*+[0-9]{1,19}+(?![0-9])L?+\s*+,?+)*+)\)")
_AXES = 32
_FIRST_SURROGATE, _LAST_SURROGATE = 0xD800, 0xDFFF

_MEMBERS = 32
_MEMBER = b"PK\x01\x02"
"""What each member's entry in the zip's directory begins with."""
_ZIP_ERRORS = (zipfile.BadZipFile, zlib.error, struct.error, EOFError, RuntimeError, ValueError, OSError)
"""What zipfile raises for what it cannot read."""
_VALUE_BYTES = 8
_OVERHEAD_BYTES = 1 << 20


# npy...


def decode_npy(body: bytes, limits: DecodeLimits) -> Tensor:
    """The array as it was sent, C-contiguous; it may share the body's memory. Raises MalformedBody and BodyTooLarge."""
    dtype, fortran, shape, data = _header(body)
    size = prod(shape)
    if size > limits.elements:
        raise BodyTooLarge(f"an array of {size} values is over the limit of {limits.elements}")
    if len(data) != size * dtype.itemsize:
        raise MalformedBody(f"the npy header says {size * dtype.itemsize} bytes of data, got {len(data)}")
    if not size:
        return np.zeros(shape, dtype) if max(shape) <= limits.elements else np.zeros((0,), dtype)
    if dtype.kind == "U":
        _check_unicode(np.frombuffer(data, np.dtype("u4").newbyteorder(dtype.byteorder)))
    array = np.frombuffer(data, dtype).reshape(shape, order="F" if fortran else "C")
    return np.require(array, dtype.newbyteorder("="), ["C", "A"])


def _check_unicode(codes: Tensor) -> None:
    """NOTE: numpy makes such an array without a look, and fails with a SystemError when a text is taken out of it."""
    if ((codes > sys.maxunicode) | ((codes >= _FIRST_SURROGATE) & (codes <= _LAST_SURROGATE))).any():
        raise MalformedBody("the npy array holds code points that are no Unicode text")


def _header(body: bytes) -> tuple[np.dtype, bool, tuple[int, ...], memoryview]:
    """The dtype, whether columns come first, the shape, and the data."""
    if not body.startswith(_MAGIC) or body[6:7] not in (b"\x01", b"\x02", b"\x03"):
        raise MalformedBody("the body is not an npy file")
    length_bytes = 2 if body[6:7] == b"\x01" else 4
    start = len(_MAGIC) + 2 + length_bytes
    length = int.from_bytes(body[start - length_bytes : start], "little")
    header = body[start : start + length]
    if length > _HEADER_MOST or len(header) < length:
        raise MalformedBody("the npy header is cut off or too long")
    descr, fortran, shape = _DESCR.search(header), _FORTRAN.search(header), _SHAPE.search(header)
    if fortran is None or shape is None:
        raise MalformedBody("the npy header is malformed")
    sizes = [int(text) for text in re.findall(rb"[0-9]+", shape[1])]
    if len(sizes) > _AXES:
        raise MalformedBody(f"the npy header says {len(sizes)} dimensions; at most {_AXES} are read")
    return _dtype(descr), fortran[1] == b"True", tuple(sizes), memoryview(body)[start + length :]


def _dtype(descr: re.Match[bytes] | None) -> np.dtype:
    kind = descr[2].decode() if descr else ""
    if kind == "O":
        raise MalformedBody("the npy array holds Python objects: it is a pickle, and those are never loaded")
    if descr is None or kind not in "biufSU":
        raise InvalidTensor("the npy array must hold numbers, bools or texts")
    try:
        dtype = np.dtype((descr[1] + descr[2] + descr[3]).decode())
    except TypeError:
        dtype = None
    if dtype is None or not dtype.itemsize:
        raise MalformedBody(f"the npy dtype {excerpt(descr[2] + descr[3])} is unknown")
    return dtype


def encode_npy(array: Tensor) -> bytes:
    """The array in its own dtype, as numpy.save writes it; texts as fixed-width unicode."""
    if array.dtype.kind == "O":
        array = _fixed_width(array)
    file = io.BytesIO()
    np.lib.format.write_array(file, np.ascontiguousarray(array).reshape(array.shape), (1, 0), allow_pickle=False)
    return file.getvalue()


def _fixed_width(array: Tensor) -> Tensor:
    items = [item.decode("utf-8", "replace") if isinstance(item, bytes) else item for item in array.ravel().tolist()]
    longest = max(map(len, items), default=1)
    if longest * len(items) > _OVERHEAD_BYTES + 8 * sum(map(len, items)):
        raise NotAcceptable("these texts differ too much in length for application/x-npy")
    return np.array(items, np.str_).reshape(array.shape)


# npz...


def decode_npz(body: bytes, spec: RowSpec) -> dict[str, Tensor]:
    """The arrays by name, as they were sent. A sparse matrix comes dense, as the one array "", once its shape was
    checked against `spec`. Raises MalformedBody, InvalidTensor and BodyTooLarge.
    """
    members = _unzip(body, spec.limits)
    arrays = {}
    for name, data in members.items():
        try:
            arrays[name] = decode_npy(data, spec.limits)
        except (MalformedBody, InvalidTensor) as error:
            raise type(error)(f"member {excerpt(name)}: {error}") from None
    return {"": _densify(arrays, spec)} if {"format", "shape", "data"} <= arrays.keys() else arrays


def _unzip(body: bytes, limits: DecodeLimits) -> dict[str, bytes]:
    if body.count(_MEMBER) > _MEMBERS:
        raise BodyTooLarge(f"an npz file of more than {_MEMBERS} members is not read")
    most = _VALUE_BYTES * limits.elements + _OVERHEAD_BYTES
    try:
        with zipfile.ZipFile(io.BytesIO(body)) as archive:
            infos = archive.infolist()
            if sum(info.file_size for info in infos) > most:
                raise BodyTooLarge(f"the npz file's members are over the limit of {most} bytes")
            for info in infos:
                if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                    raise MalformedBody(f"member {excerpt(info.filename)}: unknown compression")
            # NOTE: zipfile stops at the size that the directory names, whatever the compressed data would give.
            return {info.filename.removesuffix(".npy"): archive.read(info) for info in infos}
    except (
        zipfile.BadZipFile,
        zlib.error,
        EOFError,
        NotImplementedError,
        RuntimeError,
        ValueError,
        OSError,
        struct.error,
    ):
        raise MalformedBody("the body is not an npz file") from None


def _densify(parts: Mapping[str, Tensor], spec: RowSpec) -> Tensor:
    shape = parts["shape"]
    if shape.dtype.kind not in "iu" or shape.size != 2:
        raise MalformedBody("the sparse matrix has no shape of two sizes")
    rows, columns = (int(size) for size in shape.ravel())
    if rows < 0 or columns < 1:
        raise MalformedBody("the sparse matrix has no columns")
    spec.check_width(columns, "the sparse matrix")
    spec.check_budget(rows, columns)
    return densify(parts, rows, columns)

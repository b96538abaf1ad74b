"""The five layouts of a saved scipy sparse matrix, made dense. Values of one place are summed, as scipy does."""

from collections.abc import Callable, Mapping

import numpy as np

from gateway.errors import MalformedBody
from gateway.types import Tensor

Cells = tuple[Tensor, Tensor, Tensor]
"""Row, column and value of each cell that is set."""


def densify(parts: Mapping[str, Tensor], rows: int, columns: int) -> Tensor:
    """`[rows, columns]` in the dtype of the data. The caller has checked the size. Raises MalformedBody."""
    name = parts["format"].item() if parts["format"].size == 1 else ""
    unpack = _LAYOUTS.get(name.decode("latin-1") if isinstance(name, bytes) else name)
    if unpack is None:
        raise MalformedBody("the sparse matrix is none of csr, csc, coo, bsr and dia")
    if parts["data"].dtype.kind not in "biuf":
        raise MalformedBody("the sparse matrix does not hold numbers")
    try:
        row, column, data = unpack(parts, rows, columns)
    except KeyError as error:
        raise MalformedBody(f"the sparse matrix has no member {error}") from None
    if not len(row) == len(column) == len(data):
        raise MalformedBody("the sparse matrix's members differ in length")
    if len(row) and not (row.min() >= 0 and row.max() < rows and column.min() >= 0 and column.max() < columns):
        raise MalformedBody("the sparse matrix has an index beyond its shape")
    dense = np.zeros((rows, columns), data.dtype)
    np.add.at(dense, (row, column), data)
    return dense


def _csr(parts: Mapping[str, Tensor], rows: int, columns: int) -> Cells:
    indices, data = _indices(parts, "indices"), parts["data"].ravel()
    return _expand(_indices(parts, "indptr"), rows, len(indices)), indices, data


def _csc(parts: Mapping[str, Tensor], rows: int, columns: int) -> Cells:
    column, row, data = _csr(parts, columns, rows)
    return row, column, data


def _coo(parts: Mapping[str, Tensor], rows: int, columns: int) -> Cells:
    if "coords" in parts:
        if parts["coords"].ndim != 2 or len(parts["coords"]) != 2:
            raise MalformedBody("the sparse matrix's coords are no pairs")
        row, column = _indices(parts, "coords").reshape(2, -1)
        return row, column, parts["data"].ravel()
    return _indices(parts, "row"), _indices(parts, "col"), parts["data"].ravel()


def _bsr(parts: Mapping[str, Tensor], rows: int, columns: int) -> Cells:
    """Blocks of `data`, `[blocks, height, width]`."""
    data, indices = parts["data"], _indices(parts, "indices")
    if data.ndim != 3 or not data.shape[1] or not data.shape[2] or len(data) != len(indices):
        raise MalformedBody("the sparse matrix's blocks are malformed")
    _, height, width = data.shape
    block_row = _expand(_indices(parts, "indptr"), rows // height, len(indices))
    row = block_row[:, np.newaxis, np.newaxis] * height + np.arange(height)[:, np.newaxis]
    column = indices[:, np.newaxis, np.newaxis] * width + np.arange(width)
    return np.broadcast_to(row, data.shape).ravel(), np.broadcast_to(column, data.shape).ravel(), data.ravel()


def _dia(parts: Mapping[str, Tensor], rows: int, columns: int) -> Cells:
    """Diagonals: `data[k, j]` lies in column j, `offsets[k]` columns right of the main diagonal."""
    data, offsets = parts["data"], _indices(parts, "offsets")
    if data.ndim != 2 or len(data) != len(offsets):
        raise MalformedBody("the sparse matrix's diagonals are malformed")
    column = np.broadcast_to(np.arange(data.shape[1]), data.shape)
    row = column - offsets[:, np.newaxis]
    inside = (row >= 0) & (row < rows) & (column < columns)
    return row[inside], column[inside], data[inside]


def _indices(parts: Mapping[str, Tensor], name: str) -> Tensor:
    if parts[name].dtype.kind not in "iu":
        raise MalformedBody(f"the sparse matrix's {name} are no integers")
    return parts[name].ravel().astype(np.int64)


def _expand(indptr: Tensor, rows: int, count: int) -> Tensor:
    """The row of each of `count` entries, from where each row's entries start."""
    if len(indptr) != rows + 1 or indptr[0] != 0 or indptr[-1] != count or (np.diff(indptr) < 0).any():
        raise MalformedBody("the sparse matrix's indptr does not fit its shape")
    return np.repeat(np.arange(rows), np.diff(indptr))


_LAYOUTS: dict[str, Callable[[Mapping[str, Tensor], int, int], Cells]] = {
    "csr": _csr,
    "csc": _csc,
    "coo": _coo,
    "bsr": _bsr,
    "dia": _dia,
}

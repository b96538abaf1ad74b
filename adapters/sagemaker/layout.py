"""Rows of values to the shape that a model declares: one row is always one instance, whatever its rank."""

from math import prod

from adapters._rowspec import RowSpec
from gateway.errors import InvalidTensor
from gateway.interfaces import DecodeLimits
from gateway.types import Tensor, TensorSpec


def row_spec(spec: TensorSpec, limits: DecodeLimits) -> RowSpec:
    """What the values of one row must be."""
    return RowSpec(spec.numpy_dtype, row_width(spec.shape), limits)


def row_width(shape: tuple[int | None, ...] | None) -> int | None:
    """Values a row of a model of that shape; None for any number."""
    if shape is None:
        return None
    if len(shape) < 2:
        # A vector of fixed length is either one row, or as many rows of one value.
        return None if shape and (shape[0] or 1) > 1 else 1
    sizes = [size for size in shape[1:] if size is not None]
    return prod(sizes) if len(sizes) == len(shape) - 1 else None


def shape_rows(rows: Tensor, spec: TensorSpec) -> Tensor:
    """Flat rows `[n, width]` in the declared shape. Raises InvalidTensor."""
    shape = spec.shape
    if shape is None or len(shape) == 2:
        return rows
    if len(shape) < 2:
        return _flat(rows, spec)
    inner = [size if size is not None else -1 for size in shape[1:]]
    known = prod(size for size in inner if size >= 0)
    if inner.count(-1) > 1 or rows.shape[1] % max(known, 1):
        raise InvalidTensor(
            f"input {spec.name} takes {declared(spec)}, and {rows.shape[1]} values in a row do not tell its sizes; "
            "send nested lists or npy"
        )
    return rows.reshape(len(rows), *(rows.shape[1] // max(known, 1) if size < 0 else size for size in inner))


def _flat(rows: Tensor, spec: TensorSpec) -> Tensor:
    """Rows for a vector or a scalar."""
    shape = spec.shape or ()
    if 1 not in rows.shape or (not shape and rows.size != 1):
        raise InvalidTensor(f"input {spec.name} takes {declared(spec)}, got {rows.shape[0]} rows of {rows.shape[1]}")
    return rows.reshape(-1) if shape else rows.reshape(())


def shape_instances(values: Tensor, spec: TensorSpec, place: str = "row 1") -> Tensor:
    """`[n, ...]`, an instance each, in the declared shape. Raises InvalidTensor."""
    if fits(values.shape, spec):
        return values
    if len(values) == 1 and spec.shape and spec.shape[0] is not None and fits(values.shape[1:], spec):
        instance: Tensor = values[0]  # the model has no dimension for a batch
        return instance
    rows = values.reshape(len(values), -1)
    if values.ndim > 2:
        raise InvalidTensor(f"{place}: expected shape {declared_row(spec)}, got {list(values.shape[1:])}")
    RowSpec(values.dtype, row_width(spec.shape)).check_width(rows.shape[1], place, "values")
    return shape_rows(rows, spec)


def fits(shape: tuple[int, ...], spec: TensorSpec) -> bool:
    """Whether a tensor of that shape is what the model declares."""
    if spec.shape is None:
        return True
    return len(shape) == len(spec.shape) and all(
        want is None or want == size for want, size in zip(spec.shape, shape, strict=True)
    )


def declared(spec: TensorSpec) -> str:
    """The input's dtype and shape, for error texts."""
    shape = "any shape" if spec.shape is None else f"[{','.join('?' if n is None else str(n) for n in spec.shape)}]"
    return f"{spec.dtype} {shape}"


def declared_row(spec: TensorSpec) -> str:
    """The shape of one instance, for error texts."""
    return f"[{', '.join('?' if size is None else str(size) for size in (spec.shape or ())[1:])}]"

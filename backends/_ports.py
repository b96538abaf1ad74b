"""The ends of a model: a tensor of the request is checked and made what the runtime takes, and back.

Nothing that numpy would silently misread gets through: wrong dtypes, foreign byte orders, holes between the items.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from gateway.errors import InferenceFailed, InvalidTensor
from gateway.types import FLOAT32_CARRIED, Tensor, TensorSpec


class InputPort(Struct, frozen=True):
    """One input of a signature."""

    name: str
    """As clients know it."""
    inner: str
    """The runtime's name for it."""
    spec: TensorSpec
    dtype: np.dtype
    rank: int | None
    fixed: tuple[tuple[int, int], ...]
    """Axis and size of each fixed dimension."""
    text: bool = False
    """The runtime takes `str` only: `bytes` must be decoded."""
    sequence: bool = False
    """The runtime takes a list of the tensors along the first axis."""
    optional: bool = False

    def accept(self, array: Tensor) -> Any:
        """What the runtime takes for it. Raises InvalidTensor."""
        shape = array.shape
        if array.dtype != self.dtype:
            array = self._native(array)
        if self.rank is not None and len(shape) != self.rank:
            raise self._misfit(array)
        for axis, size in self.fixed:
            if shape[axis] != size:
                raise self._misfit(array)
        flags = array.flags
        if not (flags.c_contiguous and flags.aligned):
            array = np.array(array, order="C")
        if self.text:
            array = self._decoded(array)
        return self._split(array) if self.sequence else array

    def _split(self, array: Tensor) -> list[Tensor]:
        if not array.ndim:
            raise self._misfit(array)
        return [array[index, ...] for index in range(len(array))]

    def _native(self, array: Tensor) -> Tensor:
        if array.dtype.newbyteorder("=") != self.dtype:
            raise self._misfit(array)
        return array.astype(self.dtype)

    def _misfit(self, array: Tensor) -> InvalidTensor:
        given = "string" if array.dtype == object else array.dtype.name
        return InvalidTensor(
            f'input "{self.name}" is {given} of shape {_shape(array.shape)}, but the model takes {describe(self.spec)}'
            f"{_one_row(self.spec) if array.ndim != self.rank else ''}"
        )

    def _decoded(self, array: Tensor) -> Tensor:
        """PERF: text costs one look at the types, 20 to 40 ns an item; bytes cost 100 ns an item."""
        items = array.ravel().tolist()
        if set(map(type, items)) <= {str}:
            return array
        texts = np.empty(len(items), object)
        try:
            texts[:] = [item if type(item) is str else item.decode() for item in items]
        except (UnicodeDecodeError, AttributeError):
            texts[:] = [self._string(item, index) for index, item in enumerate(items)]
        return texts.reshape(array.shape)

    def _string(self, item: object, index: int) -> str:
        if isinstance(item, str):
            return item
        if not isinstance(item, bytes):
            raise InvalidTensor(f'input "{self.name}": item {index} is {type(item).__name__}, not a string')
        try:
            return item.decode("utf-8")
        except UnicodeDecodeError:
            raise InvalidTensor(
                f'input "{self.name}": item {index} is binary and not UTF-8, but the model takes text'
            ) from None

    def unencodable(self, array: Tensor) -> InvalidTensor | None:
        """The complaint about a `str` that has no UTF-8, such as half a surrogate pair."""
        if self.text:
            for index, item in enumerate(array.ravel().tolist()):
                try:
                    item.encode("utf-8")
                except UnicodeEncodeError:
                    return InvalidTensor(f'input "{self.name}": item {index} is not valid Unicode text')
                except AttributeError:
                    continue
        return None


class OutputPort(Struct, frozen=True):
    """One output of a signature."""

    name: str
    inner: str
    spec: TensorSpec
    plain: bool = True
    """The runtime gives an array, never anything else."""

    def tensor(self, value: Any) -> Tensor:
        """What the runtime gave, as one tensor. Raises InferenceFailed if no tensor can hold it."""
        if isinstance(value, np.ndarray):
            return value
        if value is None:
            raise InferenceFailed(f'output "{self.name}" is optional, and the model gave nothing for it')
        if isinstance(value, dict):
            return np.array(list(value.values()), self.spec.numpy_dtype)
        if not value:
            return np.empty((0, *(size or 0 for size in (self.spec.shape or ())[1:])), self.spec.numpy_dtype)
        return self._of_maps(value) if isinstance(value[0], dict) else self._stacked(value)

    def _of_maps(self, maps: Sequence[dict[Any, Any]]) -> Tensor:
        keys = maps[0].keys()
        if any(one.keys() != keys for one in maps):
            raise InferenceFailed(f'output "{self.name}" is a sequence of maps with different keys; no tensor holds it')
        return np.array([list(one.values()) for one in maps], self.spec.numpy_dtype)

    def _stacked(self, tensors: Sequence[Tensor]) -> Tensor:
        shapes = sorted({tensor.shape for tensor in tensors})
        if len(shapes) > 1:
            raise InferenceFailed(
                f'output "{self.name}" is a sequence of tensors of different shapes, '
                f"such as {_shape(shapes[0])} and {_shape(shapes[-1])}; no tensor holds it"
            )
        return np.stack(tensors)


def input_port(
    name: str, spec: TensorSpec, *, inner: str = "", text: bool = False, sequence: bool = False, optional: bool = False
) -> InputPort:
    """The port for an input of that spec."""
    shape = spec.shape
    return InputPort(
        name=name,
        inner=inner or spec.name,
        spec=spec,
        dtype=spec.numpy_dtype,
        rank=None if shape is None else len(shape),
        fixed=tuple((axis, size) for axis, size in enumerate(shape or ()) if size is not None),
        text=text and spec.dtype == "string",
        sequence=sequence,
        optional=optional,
    )


def gather(ports: Sequence[InputPort], inputs: Mapping[str, Tensor], into: dict[str, Any]) -> int:
    """Put each input under the runtime's name for it and count the elements. Raises InvalidTensor."""
    elements = found = 0
    for port in ports:
        array = inputs.get(port.name)
        if array is None:
            if port.optional:
                continue
            raise wrong_names(ports, inputs)
        found += 1
        elements += array.size
        into[port.inner] = port.accept(array)
    if found != len(inputs):
        raise wrong_names(ports, inputs)
    return elements


def wrong_names(ports: Sequence[InputPort], inputs: Mapping[str, Tensor]) -> InvalidTensor:
    """The complaint about inputs that are missing or that nobody knows."""
    known = [port.name for port in ports]
    missing = [port.name for port in ports if port.name not in inputs and not port.optional]
    unknown = [name for name in inputs if name not in known]
    faults = [f"{word} {_quoted(names)}" for word, names in (("missing", missing), ("unknown", unknown)) if names]
    return InvalidTensor(f"inputs: {' and '.join(faults)}; the signature takes {_quoted(known) or 'none'}")


def check_wanted(names: Sequence[str], known: Collection[str]) -> None:
    """Raises InvalidTensor for a wanted output that the signature does not give."""
    for name in names:
        if name not in known:
            raise InvalidTensor(f'there is no output "{name[:128]}"; the signature gives {_quoted(tuple(known))}')


def describe(spec: TensorSpec) -> str:
    """A spec for people: `float32 of shape [-1,4]`."""
    carrier = f"{spec.dtype} (as float32)" if spec.dtype in FLOAT32_CARRIED else spec.dtype
    return f"{carrier} of {'any shape' if spec.shape is None else f'shape {_shape(spec.shape)}'}"


def _one_row(spec: TensorSpec) -> str:
    """How the smallest batch looks, where that can be told."""
    shape = spec.shape or ()
    if len(shape) < 2 or shape[0] is not None or None in shape[1:]:
        return ""
    return f"; a batch of one has shape {_shape((1, *shape[1:]))}"


def _shape(shape: Sequence[int | None]) -> str:
    return f"[{','.join('-1' if size is None else str(size) for size in shape)}]"


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(f'"{name[:128]}"' for name in names[:16]) + (", ..." if len(names) > 16 else "")

"""What a request declares of its tensors, checked against the model before anything is built."""

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
from msgspec import Struct

from adapters._excerpt import excerpt
from adapters._tensorjson import most_texts, too_many
from adapters.v2.datatypes import BYTES, DTYPES, declared, takes
from adapters.v2.raw import Misfit, read
from gateway.errors import BodyTooLarge, InvalidTensor, MalformedBody, SignatureNotFound
from gateway.interfaces import DecodeLimits
from gateway.types import DEFAULT_SIGNATURE, ModelMetadata, Signature, Tensor, TensorSpec

_RANK = 64
"""The most dimensions that an array can have."""


class Declared(Struct, frozen=True):
    """One input as the request announces it."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    count: int
    """The product of the shape."""
    spec: TensorSpec

    def misfit(self, why: object) -> InvalidTensor:
        """The complaint about this input's data."""
        return InvalidTensor(f'input "{excerpt(self.name)[1:-1]}" ({self.datatype} {list(self.shape)}): {why}')

    def from_raw(self, data: bytes | memoryview) -> Tensor:
        """The tensor that the bytes are."""
        try:
            return self.fit(read(data, self.datatype, self.shape, self.count))
        except Misfit as misfit:
            raise self.misfit(misfit) from None

    def fit(self, tensor: Tensor) -> Tensor:
        """The tensor as the model's backend takes it."""
        if self.spec.dtype == "any" and self.datatype == BYTES:
            return _texts(tensor)
        return tensor


def _texts(tensor: Tensor) -> Tensor:
    """Bytes that are all UTF-8 as text, others as they are."""
    items = tensor.ravel().tolist()
    try:
        decoded = [item.decode() if isinstance(item, bytes) else item for item in items]
    except UnicodeDecodeError:
        return tensor
    texts = np.empty(len(items), object)
    texts[:] = decoded
    return texts.reshape(tensor.shape)


class Declarations:
    """The inputs of one request, read one after the other."""

    def __init__(self, signature: Signature, limits: DecodeLimits) -> None:
        self._inputs = signature.inputs
        self._limits = limits
        self._elements = self._texts = 0
        self._seen: set[str] = set()

    def add(self, name: Any, datatype: Any, shape: Any) -> Declared:
        """One more input; nothing of its size has been allocated yet. Raises InvalidTensor or BodyTooLarge."""
        if not isinstance(name, str):
            raise MalformedBody("an input's name must be a string")
        spec = self._spec(name)
        if not isinstance(datatype, str) or datatype not in DTYPES:
            known = ", ".join(DTYPES)
            raise InvalidTensor(f'input "{spec.name}": unknown datatype {excerpt(datatype)}; there are {known}')
        if not takes(spec, datatype):
            raise InvalidTensor(
                f'input "{spec.name}" is sent as {datatype}, but the model takes {declared(spec)} {_shape(spec)}'
            )
        sizes = _sizes(spec.name, shape)
        count = prod(sizes)
        self._elements += count
        # An empty tensor's other sizes count too: numpy multiplies them.
        if max(self._elements, prod(max(size, 1) for size in sizes)) > self._limits.elements:
            raise too_many(self._limits.elements)
        if datatype == BYTES:
            self._texts += count
            if self._texts > most_texts(self._limits.elements):
                raise BodyTooLarge(f"the inputs hold more than {most_texts(self._limits.elements)} texts")
        return Declared(spec.name, datatype, sizes, count, spec)

    def _spec(self, name: str) -> TensorSpec:
        spec = self._inputs.get(name)
        if spec is None and len(self._inputs) == 1:
            ((label, only),) = self._inputs.items()
            if only.dtype == "any":  # its one input has a name for us only
                name, spec = label, only
        if spec is None:
            known = ", ".join(f'"{label}" {declared(one)} {_shape(one)}' for label, one in self._inputs.items())
            raise InvalidTensor(f"there is no input {excerpt(name)}; the model takes {known or 'none'}")
        if name in self._seen:
            raise InvalidTensor(f'input "{name}" is given twice')
        self._seen.add(name)
        # An input's spec carries the graph's own name for it; clients know the signature's.
        return TensorSpec(name, spec.dtype, spec.shape, spec.media)


def _shape(spec: TensorSpec) -> list[int] | str:
    return "of any shape" if spec.shape is None else [-1 if size is None else size for size in spec.shape]


def _sizes(name: str, shape: Any) -> tuple[int, ...]:
    if shape is None:
        raise InvalidTensor(f'input "{name}": shape is missing')
    if not isinstance(shape, Sequence) or isinstance(shape, str) or len(shape) > _RANK:
        raise InvalidTensor(f'input "{name}": shape must be a list of at most {_RANK} sizes')
    if any(type(size) is not int or size < 0 for size in shape):
        raise InvalidTensor(f'input "{name}": shape must hold whole numbers from 0 on, got {excerpt(list(shape))}')
    return tuple(shape)


def signature_of(metadata: ModelMetadata, parameters: dict[str, Any]) -> Signature:
    """The signature that the request's parameter `signature_name` picks, else the default one, else the first."""
    name = parameters.get("signature_name", "")
    if not isinstance(name, str):
        raise MalformedBody("the parameter signature_name must be a string")
    default = DEFAULT_SIGNATURE if DEFAULT_SIGNATURE in metadata.signatures else next(iter(metadata.signatures), "")
    signature = metadata.signatures.get(name or default)
    if signature is None:
        known = ", ".join(metadata.signatures)
        raise SignatureNotFound(f"there is no signature {excerpt(name)}; there are: {known}", name)
    return signature

"""Tensors to a server of the Open Inference Protocol v2, in binary where it offers that.

Source: Open Inference Protocol, REST; Triton, docs/protocol/extension_binary_data.md.
"""

import struct
from collections.abc import Mapping
from typing import Any

import numpy as np

from backends.remote.client import Ask
from backends.remote.failures import bad_answer
from backends.remote.settings import Config
from backends.remote.values import V2_DTYPES, V2_NAMES, dumps, loads, tensor
from gateway.errors import GatewayError, InvalidTensor
from gateway.types import DEFAULT_SIGNATURE, InferenceRequest, Signature, Tensor, TensorSpec

_BINARY = "binary_tensor_data"
_HEADER = "inference-header-content-length"
_SIZE = struct.Struct("<I")


class V2:
    """The dialect."""

    platform = "remote_v2"

    def __init__(self, model: str, config: Config) -> None:
        version = f"/versions/{config.version}" if config.version else ""
        self._model = f"/v2/models/{model}{version}"
        self.probe = f"{self._model}/ready"
        self._binary: bool | None = None
        """Whether the server reads and writes binary tensors; None until it was asked."""

    async def signatures(self, asked: Any) -> dict[str, Signature]:
        """What the server tells; `asked` gives the body at a path. Raises GatewayError."""
        document = loads(await asked(Ask(self._model)))
        try:
            inputs, outputs = _specs(document["inputs"]), _specs(document["outputs"])
        except (KeyError, TypeError, AttributeError):
            raise bad_answer("its metadata is not as the protocol has it") from None
        return {DEFAULT_SIGNATURE: Signature(DEFAULT_SIGNATURE, "predict", inputs, outputs)}

    async def prepare(self, asked: Any) -> None:
        """Learn once whether the server offers binary tensors."""
        if self._binary is None:
            try:
                document = loads(await asked(Ask("/v2")))
            except GatewayError:
                return
            self._binary = isinstance(document, dict) and _BINARY in (document.get("extensions") or ())

    def ask(self, signature: Signature, inputs: Mapping[str, Tensor], request: InferenceRequest) -> Ask:
        """The call. Raises InvalidTensor."""
        parts: list[bytes] = []
        described = [self._input(name, array, signature.inputs[name], parts) for name, array in inputs.items()]
        outputs = [{"name": name, "parameters": {"binary_data": bool(self._binary)}} for name in signature.outputs]
        document: dict[str, Any] = {"inputs": described, "outputs": outputs}
        parameters = {
            name: value for name, value in request.parameters.items() if isinstance(value, str | int | float | bool)
        }
        if parameters:
            document["parameters"] = parameters
        head = dumps(document)
        headers = request.headers
        if parts:
            headers = (*headers, (_HEADER, str(len(head))), ("content-type", "application/octet-stream"))
        return Ask(f"{self._model}/infer", b"".join((head, *parts)), headers, request.deadline)

    def _input(self, name: str, array: Tensor, spec: TensorSpec, parts: list[bytes]) -> dict[str, Any]:
        described = {"name": name, "shape": list(array.shape), "datatype": V2_NAMES[spec.dtype]}
        if self._binary:
            parts.append(_raw(array, spec))
            return described | {"parameters": {"binary_data_size": len(parts[-1])}}
        return described | {"data": [_text(item, name) for item in array.ravel().tolist()]}

    def read(self, body: bytes, headers: Mapping[str, str], signature: Signature) -> dict[str, Tensor]:
        """The outputs. Raises InferenceFailed."""
        size = headers.get(_HEADER, str(len(body)))
        if not (size.isascii() and size.isdigit() and len(size) < 20 and int(size) <= len(body)):
            raise bad_answer("its header has no length")
        document, place = loads(body[: int(size)]), int(size)
        found = {}
        try:
            for one in document["outputs"]:
                spec = signature.outputs.get(one["name"])
                length = (one.get("parameters") or {}).get("binary_data_size")
                raw = None
                if length is not None:
                    raw = body[place : place + length]
                    place += length
                if spec is not None:
                    found[one["name"]] = _output(one, spec, raw)
        except (KeyError, TypeError, AttributeError, ValueError, struct.error, UnicodeDecodeError):
            raise bad_answer("its outputs are not as the protocol has them") from None
        return found


def _specs(told: Any) -> dict[str, TensorSpec]:
    return {
        one["name"]: TensorSpec(
            one["name"],
            V2_DTYPES[one["datatype"]],
            tuple(None if size < 0 else size for size in one["shape"]),
        )
        for one in told
    }


def _output(told: dict[str, Any], spec: TensorSpec, raw: bytes | None) -> Tensor:
    shape = [int(size) for size in told["shape"]]
    if told["datatype"] != V2_NAMES[spec.dtype]:
        raise ValueError(told["datatype"])
    array = tensor(told["data"], spec, told["name"]).ravel() if raw is None else _from_raw(raw, spec)
    return array.reshape(shape)


def _raw(array: Tensor, spec: TensorSpec) -> bytes:
    if spec.dtype == "string":
        items = [item if isinstance(item, bytes) else _encoded(item) for item in array.ravel().tolist()]
        return b"".join(_SIZE.pack(len(item)) + item for item in items)
    if spec.dtype == "bfloat16":
        return _rounded(array).astype("<u2").tobytes()
    return array.astype(array.dtype.newbyteorder("<")).tobytes()


def _rounded(array: Tensor) -> Tensor:
    """The upper halves of float32 numbers, to the nearest, ties to even; NaN stays NaN."""
    bits = np.ascontiguousarray(array).view(np.uint32)
    rounded = (bits.astype(np.uint64) + 0x7FFF + ((bits >> 16) & 1)) >> 16
    halves: Tensor = np.where(np.isnan(array), (bits >> 16) | 0x40, rounded)
    return halves


def _from_raw(raw: bytes, spec: TensorSpec) -> Tensor:
    if spec.dtype == "string":
        return _from_lengths(raw)
    if spec.dtype == "bfloat16":
        widened: Tensor = (np.frombuffer(raw, "<u2").astype(np.uint32) << 16).view(np.float32)
        return widened
    if spec.dtype == "bool":
        flags: Tensor = np.frombuffer(raw, np.uint8) != 0
        return flags
    return np.frombuffer(raw, spec.numpy_dtype.newbyteorder("<")).astype(spec.numpy_dtype)


def _from_lengths(raw: bytes) -> Tensor:
    """Each item behind its length; text where it is UTF-8, as JSON would have it."""
    items: list[str | bytes] = []
    place = 0
    while place < len(raw):
        (length,) = _SIZE.unpack_from(raw, place)
        item = raw[place + 4 : place + 4 + length]
        if len(item) != length:
            raise ValueError("cut off")
        try:
            items.append(item.decode())
        except UnicodeDecodeError:
            items.append(item)
        place += 4 + length
    array = np.empty(len(items), object)
    array[:] = items
    return array


def _encoded(item: str) -> bytes:
    try:
        return item.encode()
    except UnicodeEncodeError:
        raise InvalidTensor("a string is not valid Unicode text") from None


def _text(item: Any, name: str) -> Any:
    if not isinstance(item, bytes):
        return item
    try:
        return item.decode()
    except UnicodeDecodeError:
        raise InvalidTensor(f'input "{name}": the server behind takes no binary strings') from None

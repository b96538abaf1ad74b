"""A SeldonMessage, out: the payload in the request's encoding, the names of its columns, and the meta.

Source: seldon-core, python/seldon_core/utils.py (construct_response_json, array_to_grpc_datadef).
"""

import re
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import orjson
import pybase64
from msgspec import Struct

from adapters._ragged import own_rows
from adapters._tensorjson import dump
from adapters._tftensor import encode_tftensor
from adapters.seldon.documents import NonFinite, Writer, text_of
from adapters.seldon.messages import DATA, Form
from adapters.seldon.metas import Meta, answer_meta
from gateway.errors import InferenceFailed
from gateway.types import LENGTHS, InferenceResponse, Tensor

Floats = Literal["exact", "short"]
"""float32 as the float64 that it is, as Seldon writes it, or as the shortest text that reads back as the same."""

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}")
_VALUE = re.compile(r"[\x20-\x7e\x80-\xff\t]{0,4096}")
_BODILESS = (204, 205, 304)
_NOT_THEIRS = frozenset({"content-length", "content-type", "transfer-encoding", "connection", "date", "server"})


class Wish(Struct, frozen=True):
    """What the answer must remember of its request."""

    form: Form
    meta: Meta | None = None
    returned_meta: bool = True
    """The model may have changed the meta that it was given; what it gives back counts."""
    request_path: Mapping[str, str] = {}
    bare: bool = False
    """The answer is what the model returned, and nothing around it."""
    is_class: bool = False
    """A user's class answers, so that lists of one text are lists."""
    own_metrics: bool = True
    """The model's own metrics may be shown."""
    feedback: bool = False
    """SPEC: feedback's answer goes through protobuf, which leaves out what is empty."""


class Answer(Struct, frozen=True):
    """Body, status and the headers that the model set."""

    body: bytes
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()


class Encoder:
    """Writes answers as the configuration wants them."""

    def __init__(self, writer: Writer, non_finite: NonFinite, floats: Floats, own_metrics: bool) -> None:
        self._writer = writer
        self._non_finite: NonFinite = non_finite
        self._short = floats == "short"
        self._own_metrics = own_metrics

    def encode(self, response: InferenceResponse, wish: Wish) -> Answer:
        """The answer. Raises InferenceFailed."""
        parameters = response.parameters
        headers = _headers(parameters.get("headers"))
        if parameters.get("raw"):
            value = parameters.get("json")
            return Answer(self._writer.finish(self._writer.dumps(value)), _status(parameters, value), headers)
        payload = self._payload(response, wish)
        if wish.bare:
            return Answer(self._writer.finish(payload), _status(parameters, None), headers)
        given = (parameters.get("meta") if wish.returned_meta else None) or wish.meta
        meta = answer_meta(given, parameters, self._own_metrics and wish.own_metrics, wish.request_path)
        body = b"{" + payload + b',"meta":' + (self._writer.dumps(meta) if meta else b"{}") + b"}"
        return Answer(self._writer.finish(body), _status(parameters, None), headers)

    # The payload, as a member of the message, or bare...

    def _payload(self, response: InferenceResponse, wish: Wish) -> bytes:
        if "json" in response.parameters:
            return self._member("jsonData", self._writer.dumps(response.parameters["json"]), wish)
        outputs = response.outputs
        if LENGTHS in response.parameters:
            rows = [self._object(row) for row in own_rows(outputs, response.parameters[LENGTHS])]
            return self._member("jsonData", rows[0] if len(rows) == 1 else b"[" + b",".join(rows) + b"]", wish)
        if len(outputs) != 1:
            return self._member("jsonData", self._object(outputs), wish)
        [tensor] = outputs.values()
        item = _only_item(tensor, wish)
        if isinstance(item, str):
            return self._member("strData", self._writer.dumps(item), wish)
        if isinstance(item, bytes):
            return self._member("binData", b'"' + pybase64.b64encode(item) + b'"', wish)
        if wish.bare:
            return self._items(tensor)
        return b'"data":' + self._data(tensor, response.parameters.get("names"), wish)

    def _object(self, outputs: Mapping[str, Tensor]) -> bytes:
        members = (orjson.dumps(name) + b":" + self._items(tensor) for name, tensor in outputs.items())
        return b"{" + b",".join(members) + b"}"

    def _member(self, name: str, value: bytes, wish: Wish) -> bytes:
        return value if wish.bare else b'"' + name.encode() + b'":' + value

    def _data(self, tensor: Tensor, class_names: Any, wish: Wish) -> bytes:
        names = _names(tensor, class_names)
        head = b"" if wish.feedback and not names else b'"names":' + self._writer.dumps(names) + b","
        form = wish.form if wish.form in DATA else "tensor"
        if tensor.dtype.kind not in "iuf" or form == "ndarray":
            return b"{" + head + b'"ndarray":' + self._items(tensor) + b"}"
        if form == "tftensor":
            return b"{" + head + b'"tftensor":' + self._writer.dumps(encode_tftensor(tensor)) + b"}"
        shape = b'{"shape":' + orjson.dumps(tensor.shape)
        if wish.feedback and not tensor.size:
            return b"{" + head + b'"tensor":' + shape + b"}}"
        return b"{" + head + b'"tensor":' + shape + b',"values":' + self._items(tensor.reshape(-1)) + b"}}"

    def _items(self, tensor: Tensor) -> bytes:
        if tensor.dtype.kind in "OSU":
            return self._writer.dumps(tensor.tolist())
        if tensor.dtype.itemsize < 8 and tensor.dtype.kind == "f" and not self._short:
            tensor = tensor.astype(np.float64)
        return dump(tensor, self._non_finite)


def _only_item(tensor: Tensor, wish: Wish) -> Any:
    """SPEC: what is no array is a text or bytes; a model that declares tensors gives one for one."""
    if tensor.dtype.kind not in "OSU":
        return None
    if tensor.ndim == 0:
        return tensor.item()
    if wish.is_class or tensor.size != 1 or wish.form not in ("strData", "binData"):
        return None
    item = tensor.reshape(()).item()
    return text_of(item) if wish.form == "strData" and isinstance(item, bytes) else item


def _names(tensor: Tensor, class_names: Any) -> list[Any]:
    """SPEC: one for each column of what has columns; the width is not looked at."""
    if tensor.ndim < 2:
        return []
    if class_names is not None:
        return list(class_names)
    return [f"t:{index}" for index in range(tensor.shape[1])]


def _status(parameters: Mapping[str, Any], raw: Any) -> int:
    """The status that the model chose. SPEC: a raw answer does so in status.code."""
    chosen = parameters.get("status")
    if chosen is None and isinstance(raw, dict) and isinstance(raw.get("status"), dict):
        chosen = raw["status"].get("code")
    if type(chosen) is not int or not 200 <= chosen <= 599 or chosen in _BODILESS:
        return 200
    return chosen


def _headers(given: Any) -> tuple[tuple[str, str], ...]:
    """The headers that the model set. Raises InferenceFailed for what is none."""
    if not given:
        return ()
    pairs = [(str(name), str(value)) for name, value in (given.items() if isinstance(given, dict) else given)]
    for name, value in pairs:
        if not _TOKEN.fullmatch(name) or not _VALUE.fullmatch(value) or name.lower() in _NOT_THEIRS:
            raise InferenceFailed(f"the model set a header that cannot be sent: {name[:64]!r}")
    return tuple(pairs)

"""A model's outputs as a JSON object, with binary tensors behind it where those were asked for.

Source: Open Inference Protocol, "Inference Response JSON Object"; Triton, docs/protocol/extension_binary_data.md.
"""

from collections.abc import Iterator
from typing import Any

import orjson

from adapters._tensorjson import NonFinite
from adapters.v2 import listed, raw
from adapters.v2.datatypes import BYTES, given
from adapters.v2.wishes import BINARY_SIZE, Wish
from gateway.errors import InferenceFailed
from gateway.types import InferenceResponse, Reply, Tensor


def encode(response: InferenceResponse, wish: Wish, non_finite: NonFinite) -> Reply:
    """The reply to an inference request."""
    members: list[bytes] = []
    tail: list[bytes] = []
    for name, tensor, datatype in outputs_of(response, wish):
        head = {"name": name, "datatype": datatype, "shape": tensor.shape}
        if wish.is_binary(name):
            data = raw.write(tensor, datatype)
            members.append(orjson.dumps(head | {"parameters": {BINARY_SIZE: len(data)}}))
            tail.append(data)
        else:
            members.append(_member(head, tensor, datatype, non_finite))
    text = _named(wish) + b',"outputs":[' + b",".join(members) + b"]}"
    if not tail:
        return Reply(text)
    headers = (("Inference-Header-Content-Length", str(len(text))),)
    return Reply(b"".join((text, *tail)), 200, "application/octet-stream", headers)


def _member(head: dict[str, Any], tensor: Tensor, datatype: str, non_finite: NonFinite) -> bytes:
    data, encoded = listed.write(tensor, datatype, non_finite)
    if encoded:
        head = head | {"parameters": {listed.CONTENT_TYPE: listed.BASE64}}
    return orjson.dumps(head)[:-1] + b',"data":' + data + b"}"


def _named(wish: Wish) -> bytes:
    """The object's beginning, still open."""
    head = {"model_name": wish.model, "model_version": wish.version}
    return orjson.dumps(head if wish.id is None else head | {"id": wish.id})[:-1]


def outputs_of(response: InferenceResponse, wish: Wish) -> Iterator[tuple[str, Tensor, str]]:
    """Name, tensor and datatype of each output to give. Raises InferenceFailed for what has no datatype."""
    outputs = response.outputs
    for name in wish.wanted or outputs:
        if name not in outputs:
            raise InferenceFailed(f'the model gave no output "{name}"')
        tensor = outputs[name]
        spec = wish.outputs.get(name)
        datatype = given(tensor, spec)
        if datatype is None:
            raise InferenceFailed(f'output "{name}" is {tensor.dtype.name}, for which the protocol has no datatype')
        # A user's class gives a text or bytes alone; clients of this protocol expect a vector of them.
        alone = tensor.ndim == 0 and datatype == BYTES and spec is not None and spec.dtype == "any"
        yield name, tensor.reshape(1) if alone else tensor, datatype

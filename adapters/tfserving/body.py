"""What the bodies of predict, classify and regress have in common: a JSON object that may name a signature.

Source: TF Serving, tensorflow_serving/util/json_tensor.cc (ParseJson, FillSignature).
"""

from typing import Any

from msgspec.structs import replace

from adapters import _json
from adapters._tensorjson import check_lists, check_size
from adapters.tfserving.render import cut, render
from gateway.errors import BodyTooLarge, InvalidTensor, MalformedBody, SignatureNotFound
from gateway.interfaces import DecodeLimits
from gateway.types import DEFAULT_SIGNATURE, ModelMetadata, Signature, TensorSpec

SIGNATURE = "signature_name"

_EXACT_SHARE = 4
"""What is read one by one takes some 100 bytes a value: of the limit on values, it may have this part."""


def parse_object(body: bytes, limits: DecodeLimits) -> dict[str, Any]:
    """The body's JSON object, its signature's name checked to be a string.

    Raises MalformedBody, InvalidTensor or BodyTooLarge.
    """
    check_size(body, limits.elements)
    check_lists(body, limits.elements)
    _check_exact(body, limits.elements // _EXACT_SHARE)
    document = _json.parse(body)
    if not isinstance(document, dict):
        raise MalformedBody(f"JSON Value: {render(document)} Is not object")
    if not isinstance(document.get(SIGNATURE, ""), str):
        raise ill_formed(document, "not formatted correctly. 'signature_name' key must be a string value.")
    return document


def _check_exact(body: bytes, most: int) -> None:
    """Raise BodyTooLarge if the body may hold more values than that; commas in strings count too."""
    if len(body) > 2 * most and body.count(b",") > most:
        raise BodyTooLarge(
            "the body holds too many values: bodies that need the exact reader (NaN, strings, ragged lists, objects, "
            f"examples, or a mistake in them) may hold {most} values"
        )


def signature_name(document: dict[str, Any]) -> str:
    """The signature that the body asks for; an empty name means the default one."""
    return document.get(SIGNATURE) or DEFAULT_SIGNATURE


def find_signature(name: str, metadata: ModelMetadata, complaint: str) -> Signature:
    """The model's signature of that name. Raises SignatureNotFound: the complaint, and what there is instead.

    The complaint has `{}` where the name belongs.
    """
    signature = metadata.signatures.get(name)
    if signature is None:
        raise SignatureNotFound(f"{complaint.format(cut(name))}; there are: {', '.join(metadata.signatures)}", name)
    return signature


def inputs_of(signature: Signature) -> dict[str, TensorSpec]:
    """The inputs, each called as clients know it: a signature's specs carry the graph's own names."""
    return {name: replace(spec, name=name) for name, spec in signature.inputs.items()}


def ill_formed(document: dict[str, Any], reason: str) -> InvalidTensor:
    """A body that has the wrong keys, or the wrong kind of value under one."""
    return InvalidTensor(f"JSON Value: {render(document)} {reason}")

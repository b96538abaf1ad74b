"""The online test of a service: its page, what the page's scripts need to know, and which form suits the service."""

from collections.abc import Callable, Sequence
from typing import Any, Literal
from urllib.parse import quote

import msgspec
from starlette.responses import Response

from gateway.console.detail import shown
from gateway.console.visit import Row, Visit
from gateway.control.endpoint import PREFIX
from gateway.control.permissions import require
from gateway.control.views import ServiceView
from gateway.summary import VersionSummary
from gateway.types import Signature

Mode = Literal["tensor", "image", "chat", "paint"]

_TASKS: dict[str, Mode] = {"generate": "chat", "text-to-image": "paint"}
_TYPES: dict[str, Mode] = {"openai": "chat"}

WORDS = (
    "argmax", "broke_off", "canary", "copied", "first_token", "headers", "in_gateway", "least", "mode_chat",
    "mode_image", "mode_paint", "mode_tensor", "more_rows", "most", "no_answer", "no_history", "no_models",
    "no_preview", "not_a_picture", "nothing_found", "not_json", "output", "protocol_http", "protocol_sagemaker",
    "protocol_seldon", "protocol_tfserving", "protocol_v2", "raw", "role_assistant", "role_user", "round_trip",
    "row", "shape", "shown_below", "signed_out", "stable", "stopped", "timing", "tokens", "too_large",
    "too_many_pixels", "values", "version",
)  # fmt: skip
"""Keys of the catalogue, below `test.`, that the scripts say."""


async def _test(visit: Visit) -> Response:
    service = await visit.call("GET", "/services/{name}")
    control = visit.calls.control
    require(visit.user, "use", service["name"], control.service(service["name"]), control.config.gateway.sharing)
    assert control.fleet is not None
    view = msgspec.convert(service, ServiceView)
    told = context(view, control.fleet.entrance().url, control.config.limits.body_bytes, visit.texts)
    return await shown(visit, "test.html", "test", service=service, context=told)


PAGES = (Row("GET", "/services/{name}/test", _test),)


def context(view: ServiceView, url: str, body_bytes: int, t: Callable[[str], str]) -> str:
    """For the attribute `data-context`, as JSON; `url` is where the gateway's own callers reach it."""
    newest = _newest(view)
    signatures = newest.contracts if newest else ()
    told: dict[str, Any] = {
        "service": {
            "name": view.name,
            "type": view.type,
            "needs_key": bool(view.config["app_auth"]),
            "mode": mode_of(view, newest),
            "image_form": _image_form(view, signatures),
        },
        "relay": f"{PREFIX}/services/{quote(view.name, safe='')}/test",
        "data": f"{url}/services/{quote(view.name, safe='')}",
        "body_bytes": body_bytes,
        "signatures": [_signature(one) for one in signatures if one.method == "predict"],
        "words": {f"test.{key}": t(f"test.{key}") for key in WORDS},
    }
    return msgspec.json.encode(told).decode()


def mode_of(view: ServiceView, newest: VersionSummary | None) -> Mode:
    """The form that suits the service: by what its model is for, by its inputs and outputs, or by its protocol."""
    if newest is not None and newest.task in _TASKS:
        return _TASKS[newest.task]
    for signature in newest.contracts if newest else ():
        if any(spec.media == "image" for spec in signature.inputs.values()) or "dclasses" in signature.outputs:
            return "image"
    return _TYPES.get(view.type, "tensor")


def _newest(view: ServiceView) -> VersionSummary | None:
    """The version that most calls get: of the stable deployment's model, the newest that answers."""
    answering = [one for one in view.models if one.name == view.model and one.state == "AVAILABLE"]
    pinned = view.config["model_version"]
    return max(answering, key=lambda one: (one.version == pinned, one.version), default=None)


def _image_form(view: ServiceView, signatures: Sequence[Signature]) -> str:
    """How a picture is sent: users' classes take Seldon's way, as the platform's manual has it."""
    if view.type in ("tfserving", "seldon"):
        return view.type
    takes_anything = any(spec.dtype == "any" for one in signatures for spec in one.inputs.values())
    return "seldon" if takes_anything else "tfserving"


def _signature(one: Signature) -> dict[str, Any]:
    inputs = {
        name: {"dtype": spec.dtype, "shape": spec.shape, "media": spec.media} for name, spec in one.inputs.items()
    }
    return {"name": one.name, "inputs": inputs, "outputs": list(one.outputs)}

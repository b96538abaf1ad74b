"""Text to image over a websocket, as the platform's manual has it: `/generate`, a JSON object in, events out.

In: `{"prompt", "negativePrompt", "cfg", "step", "width", "height"}`, and `seed`, `scheduler`, `n`. Out:
`{"type": "status", "message": "start"}`, `{"type": "progress", "message": "0.0"}` and upward,
`{"type": "output", "message": base64 of a PNG}`, or `{"type": "error", "message": ...}`.
A frame is a call of the method WEBSOCKET.
"""

import re
from collections.abc import AsyncIterator, Iterable

import msgspec
import pybase64
from msgspec import Struct

from adapters._error_headers import error_headers
from adapters._json import parse
from adapters._pictures import IMAGE, asked, draws
from adapters._png import png
from gateway.errors import (
    BackendError,
    BodyTimeout,
    BodyTooLarge,
    CapacityError,
    DeadlineExceeded,
    Forbidden,
    GatewayError,
    InvalidTensor,
    MalformedBody,
    MethodNotAllowed,
    ModelExists,
    ModelNotFound,
    NotAcceptable,
    RateLimited,
    RequestError,
    RouteNotFound,
    Unauthenticated,
    UnsupportedMedia,
    UserError,
    UserFailed,
)
from gateway.interfaces import WEBSOCKET, Adapter, DecodeLimits, Infer, Operation
from gateway.types import Call, InferenceRequest, InferenceResponse, ModelMetadata, Reply, Target, Tensor

PATH = "/generate"
_FIELDS = ("negativePrompt", "cfg", "step", "width", "height", "seed", "scheduler", "n")

STATUSES: tuple[tuple[type[GatewayError], int], ...] = (
    (RouteNotFound, 404),
    (MethodNotAllowed, 426),
    (ModelNotFound, 404),
    (Unauthenticated, 401),
    (Forbidden, 403),
    (NotAcceptable, 406),
    (BodyTimeout, 408),
    (ModelExists, 409),
    (BodyTooLarge, 413),
    (UnsupportedMedia, 415),
    (RequestError, 400),
    (RateLimited, 429),
    (DeadlineExceeded, 504),
    (CapacityError, 503),
    (BackendError, 500),
    (GatewayError, 500),
)
"""Before the websocket is open; the first class that fits decides."""


class Config(Struct, frozen=True, forbid_unknown_fields=True):
    """The table [protocols.textimage]."""


class TextImage:
    """The adapter."""

    ignores_unknown_codings = False

    def routes(self) -> Iterable[Operation]:
        """The one websocket."""
        yield Infer(
            method=WEBSOCKET, path=PATH, pattern=re.compile(PATH), target=_target, fits=draws,
            decode=_decode, encode=_encode, stream=_stream,
        )  # fmt: skip

    def claims(self, call: Call) -> int:
        """Its own path only."""
        return 3 if call.raw_path == PATH else 0

    def encode_error(self, error: GatewayError, call: Call) -> Reply:
        """An event, or for a call that is no websocket's `{"error": ...}`."""
        status = next(status for kind, status in STATUSES if isinstance(error, kind))
        if isinstance(error, UserError | UserFailed):
            status = error.status
        if isinstance(error, MethodNotAllowed):
            text = "this path speaks websocket: open it as ws://.../generate"
            return Reply(msgspec.json.encode({"error": text}), status, headers=(("Upgrade", "websocket"),))
        text = _text(error)
        body = _event("error", text) if call.method == WEBSOCKET else msgspec.json.encode({"error": text})
        return Reply(body, status, headers=error_headers(error))


def _target(call: Call) -> Target:
    return Target()


def _decode(call: Call, target: Target, metadata: ModelMetadata) -> InferenceRequest:
    if not draws(metadata):
        raise InvalidTensor("this model does not make pictures")
    given = parse(call.body)
    if not isinstance(given, dict):
        raise MalformedBody('expected an object such as {"prompt": "a red seven"}')
    prompt = given.get("prompt")
    if not isinstance(prompt, str):
        raise MalformedBody(f"prompt: expected a text, got {'nothing' if prompt is None else type(prompt).__name__}")
    return asked(prompt, {name: given[name] for name in _FIELDS if name in given}, stream=True)


def _encode(response: InferenceResponse, request: InferenceRequest, call: Call) -> Reply:
    return Reply(_output(response.outputs[IMAGE][0]))


def _stream(given: AsyncIterator[InferenceResponse], request: InferenceRequest, call: Call) -> Reply:
    return Reply(_events(given))


async def _events(given: AsyncIterator[InferenceResponse]) -> AsyncIterator[bytes]:
    yield _event("status", "start")
    try:
        async for part in given:
            if IMAGE in part.outputs:
                for pixels in part.outputs[IMAGE]:
                    yield _output(pixels)
            elif "progress" in part.parameters:
                yield _event("progress", f"{round(part.parameters['progress'], 4)}")
    except GatewayError as error:
        yield _event("error", _text(error))
    except Exception:  # the pipeline logs it
        yield _event("error", "internal error; the gateway's log has its reason")


def _output(pixels: Tensor) -> bytes:
    return _event("output", pybase64.b64encode(png(pixels)).decode())


def _text(error: GatewayError) -> str:
    """What is wrong, with the field as the client knows it."""
    return str(error).removeprefix("parameters.").encode("utf-8", "replace").decode()


def _event(kind: str, message: str) -> bytes:
    return msgspec.json.encode({"type": kind, "message": message})


def create(config: Config, limits: DecodeLimits) -> Adapter:
    """The adapter under this configuration."""
    return TextImage()

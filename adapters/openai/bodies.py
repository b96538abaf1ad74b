"""A request's JSON, read once: it names the model, so it is parsed before the model is known."""

from typing import Any

import orjson
from msgspec import Struct

from adapters._excerpt import excerpt
from adapters.openai.errors import Refusal
from gateway.errors import BodyTooLarge, MalformedBody
from gateway.types import Call, Target

_MOST_OBJECTS = 1 << 16
"""Braces and brackets in a body: more is no conversation, and costs more to build than its bytes tell."""


class Bodies(Struct, frozen=True):
    """Reads bodies up to a size."""

    most_bytes: int

    def target(self, call: Call) -> Target:
        """The model that the body names, and all of the body. Raises MalformedBody, BodyTooLarge or Refusal."""
        document = self._parse(call.body)
        model = document.get("model")
        if model is not None and not isinstance(model, str):
            raise Refusal(f"model: expected a string, got {excerpt(model)}", "model", "invalid_type")
        return Target(model or None, parsed=document, named=True)

    def _parse(self, body: bytes) -> dict[str, Any]:
        if len(body) > self.most_bytes:
            raise BodyTooLarge(f"the body has {len(body)} bytes; the limit is {self.most_bytes}")
        if len(body) > _MOST_OBJECTS and body.count(b"{") + body.count(b"[") > _MOST_OBJECTS:
            raise BodyTooLarge(f"the body holds more than {_MOST_OBJECTS} objects and lists")
        try:
            document = orjson.loads(body)
        except orjson.JSONDecodeError as error:
            raise MalformedBody(f"the body is not JSON: {error.msg} at character {error.pos}") from None
        if not isinstance(document, dict):
            raise MalformedBody("the body must be a JSON object")
        return document

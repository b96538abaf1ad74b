"""Pictures: a prompt in, PNG files in base64 out."""

import time
from typing import Any

import orjson
import pybase64
from msgspec import Struct

from adapters._pictures import IMAGE, draws
from adapters._pictures import asked as asked_for
from adapters._png import png
from adapters.openai import fields
from adapters.openai.asked import Asked, asked
from adapters.openai.errors import Refusal
from gateway.types import Call, InferenceRequest, InferenceResponse, ModelMetadata, Reply, Target

_OWN = ("prompt",)
_LONGEST = 32_000
"""SPEC: characters of a prompt for the newest of OpenAI's own models."""
_DRAWN = ("n", "negative_prompt", "steps", "guidance_scale", "seed", "scheduler")
"""Passed on as they are; all but the first are extensions."""


class Images(Struct, frozen=True):
    """The call's two functions."""

    unknown: fields.Unknown

    def decode(self, call: Call, target: Target, metadata: ModelMetadata) -> InferenceRequest:
        """The request that the body makes. Raises Refusal."""
        if not draws(metadata):
            raise Refusal("this model does not make pictures", "model", status=404)
        given, ignored = fields.read(target.parsed, fields.IMAGE, _OWN, self.unknown)
        prompt = target.parsed.get("prompt")
        if not isinstance(prompt, str) or not 0 < len(prompt) <= _LONGEST:
            raise Refusal(f"prompt: expected a text of 1 to {_LONGEST} characters", "prompt", "invalid_value")
        wanted = {name: given[name] for name in _DRAWN if name in given}
        if given.get("size", "auto") != "auto":
            wanted["width"], wanted["height"] = map(int, given["size"].split("x"))
        wire = asked("img", target, metadata, given, ignored)
        return asked_for(prompt, wanted, stream=False, wire=(wire, given.get("response_format") == "url"))

    def encode(self, response: InferenceResponse, request: InferenceRequest, call: Call) -> Reply:
        """The files; where a URL was asked for, one that holds the file itself."""
        wire, as_url = request.wire
        assert isinstance(wire, Asked)
        pictures = response.outputs[IMAGE]
        body = {
            "created": int(time.time()),
            "data": [_file(pybase64.b64encode(png(pixels)).decode(), as_url) for pixels in pictures],
            "output_format": "png",
            "size": f"{pictures.shape[2]}x{pictures.shape[1]}",
        }
        return Reply(orjson.dumps(body), headers=wire.headers)


def _file(encoded: str, as_url: bool) -> dict[str, Any]:
    return {"url": f"data:image/png;base64,{encoded}"} if as_url else {"b64_json": encoded}

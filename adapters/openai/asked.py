"""What an answer must remember of its question, and what all answers have alike."""

import hashlib
import secrets
import time
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from adapters.openai import fields
from gateway.types import InferenceResponse, ModelMetadata, Target

Headers = tuple[tuple[str, str], ...]

_MOST_NAMED = 16
"""Ignored fields that a header names."""


class Asked(Struct, frozen=True):
    """One call, from `decode` on."""

    id: str
    created: int
    started: float
    model: str
    """The id that the client asked for."""
    fingerprint: str
    choices: int = 1
    includes_usage: bool = False
    ignored: tuple[str, ...] = ()
    named_tool: bool = False
    """Whether the client named the function to call."""
    top_logprobs: int = 0

    @property
    def headers(self) -> Headers:
        """How long it took, and which fields nobody looked at."""
        spent = ("openai-processing-ms", str(int((time.monotonic() - self.started) * 1000)))
        if not self.ignored:
            return (spent,)
        names = ", ".join(ascii(name[:64])[1:-1] for name in self.ignored[:_MOST_NAMED])
        return (spent, ("x-ignored-params", names))

    def head(self, kind: str) -> dict[str, Any]:
        """What every whole answer and every chunk begins with."""
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": self.fingerprint,
        }


def asked(
    prefix: str, target: Target, metadata: ModelMetadata, given: Mapping[str, Any], ignored: list[str], **more: Any
) -> Asked:
    """The call with those fields, under an id of its own."""
    version = f"{metadata.platform}:{metadata.name}:{metadata.version}"
    return Asked(
        id=f"{prefix}-{secrets.token_hex(12)}",
        created=int(time.time()),
        started=time.monotonic(),
        model=target.model or metadata.name,
        fingerprint=f"fp_{hashlib.sha256(version.encode()).hexdigest()[:10]}",
        includes_usage=fields.includes_usage(given),
        ignored=tuple(ignored),
        **more,
    )


def texts(response: InferenceResponse) -> list[str]:
    """What the model wrote, one text a choice."""
    return [_text(item) for item in response.outputs["text"].ravel().tolist()]


def _text(item: Any) -> str:
    if isinstance(item, bytes):
        return item.decode("utf-8", "replace")
    return str(item).encode("utf-8", "replace").decode()


def usage(told: Any) -> dict[str, Any]:
    """The tokens counted; zeros where the model counts none."""
    if isinstance(told, Mapping):
        return dict(told)
    return {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}

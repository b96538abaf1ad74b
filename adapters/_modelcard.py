"""What OpenAI's clients are told of a model, and which of their calls it answers.

A backend tells its task in `extras`, one that has several its `tasks`; for others the default signature does: `prompt`
to `text`, or `text` to `embedding`. Source: OpenAI's API reference, the object Model.
"""

from typing import Any, Literal

from gateway.types import DEFAULT_SIGNATURE, ModelMetadata, TensorSpec

Task = Literal["generate", "embed"]

CHAT = "chat"
"""The signature that takes `messages`, a JSON text, and gives `text`."""
EMBED = "embed"
"""The signature that embeds, of a model whose default one does something else."""
OWNER = "tensorgate"


def task_of(metadata: ModelMetadata | None) -> Task | None:
    """Whether the model writes text or embeds it; None for one that does neither."""
    if metadata is None:
        return None
    if several := metadata.extras.get("tasks"):
        return several[0]  # type: ignore[no-any-return]
    told = metadata.extras.get("task")
    if told in ("generate", "embed"):
        return told  # type: ignore[no-any-return]
    if CHAT in metadata.signatures:
        return "generate"
    default = metadata.signatures.get(DEFAULT_SIGNATURE)
    if default is None:
        return None
    if _is_text(default.inputs.get("prompt")) and _is_text(default.outputs.get("text")):
        return "generate"
    return "embed" if _is_text(default.inputs.get("text")) and "embedding" in default.outputs else None


def can(metadata: ModelMetadata, task: Task) -> bool:
    """Whether that is a task of the model's, perhaps one of several."""
    return task_of(metadata) == task or task in metadata.extras.get("tasks", ())


def is_forwarded(metadata: ModelMetadata) -> bool:
    """Whether another server answers, which judges the request's fields itself."""
    return "forwards" in metadata.extras


def _is_text(spec: TensorSpec | None) -> bool:
    return spec is not None and spec.dtype == "string"


def card(name: str, metadata: ModelMetadata | None) -> dict[str, Any]:
    """The object Model, under that id; of a model that is still being loaded little is known."""
    extras = metadata.extras if metadata else {}
    told = {"id": name, "object": "model", "created": _whole(extras.get("created")), "owned_by": OWNER}
    length = extras.get("context_length")
    return told | ({"max_model_len": length} if isinstance(length, int) else {})


def _whole(value: Any) -> int:
    return int(value) if isinstance(value, int | float) else 0

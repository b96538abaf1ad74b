"""The models as OpenAI's clients list them: those that write or embed text, and those nobody knows yet."""

import orjson

from adapters._modelcard import card, task_of
from gateway.errors import ModelNotFound
from gateway.types import Call, ModelStatus, Reply, Target

_COMING = ("START", "LOADING")


def index(statuses: list[ModelStatus], call: Call) -> Reply:
    """All of them, each under its name and its aliases."""
    data = [card(name, status.metadata) for status in statuses if _is_shown(status)
            for name in (status.name, *status.aliases)]  # fmt: skip
    return Reply(orjson.dumps({"object": "list", "data": data}))


def one(status: ModelStatus | None, call: Call, target: Target) -> Reply:
    """The one that the path names. Raises ModelNotFound."""
    if status is None or not _is_shown(status):
        name = target.model or ""
        raise ModelNotFound(f"the model {name[:128]!r} does not exist, or reads and writes no text", name)
    return Reply(orjson.dumps(card(target.model or status.name, status.metadata)))


def _is_shown(status: ModelStatus) -> bool:
    """SPEC: the list must not wait for models to be loaded; of what is still coming nobody knows what it can do."""
    if status.metadata is not None:
        return task_of(status.metadata) is not None
    return any(version.state in _COMING for version in status.versions)

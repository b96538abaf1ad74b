"""The model repository: what there is, and models that come and go by call.

Source: Triton, docs/protocol/extension_model_repository.md.
"""

from collections.abc import Mapping
from typing import Any

import orjson

from adapters._inference_pb2 import (
    RepositoryIndexRequest,
    RepositoryIndexResponse,
    RepositoryModelLoadRequest,
    RepositoryModelLoadResponse,
    RepositoryModelUnloadRequest,
    RepositoryModelUnloadResponse,
)
from adapters.v2 import describe, messages
from adapters.v2.documents import parse_object
from adapters.v2.wishes import flag, parameters_of
from gateway.errors import MalformedBody
from gateway.interfaces import DecodeLimits, LoadModel, ManagedModel, UnloadModel, from_path
from gateway.types import Call, ModelStatus, Reply

URL = "url"
"""The parameter of a load that says where the model's folder is; without it, the folder of its name in a root."""


class Repository:
    """Both transports' ways to list, load and unload."""

    def __init__(self, limits: DecodeLimits) -> None:
        self._limits = limits

    def index(self, models: list[ModelStatus], call: Call) -> Reply:
        """Every version that the caller may use."""
        ready = flag(parse_object(call.body, self._limits), "ready", False) if call.body.strip() else False
        return Reply(orjson.dumps(list(describe.index(models, ready))))

    def load(self, call: Call) -> LoadModel:
        """SPEC: Triton's parameters `config` and `file:...` would change a model, and are refused."""
        document = parse_object(call.body, self._limits) if call.body.strip() else {}
        return _load(from_path(call).model or "", parameters_of(document, "the request"))

    def unload(self, call: Call) -> UnloadModel:
        """The body's parameters say nothing that matters here."""
        return UnloadModel(from_path(call).model or "")

    def done(self, models: list[ManagedModel], call: Call) -> Reply:
        """An empty success."""
        return Reply(b"")


def _load(name: str, parameters: Mapping[str, Any]) -> LoadModel:
    """SPEC: to load what is loaded succeeds; here the folder is watched anyway."""
    unknown = parameters.keys() - {URL}
    url = parameters.get(URL, "")
    if unknown or not isinstance(url, str):
        raise MalformedBody(f'a load takes the parameter "{URL}" only, a string')
    return LoadModel(name, url, again=True)


def index_message(models: list[ModelStatus], call: Call) -> Reply:
    """As `Repository.index`, over gRPC."""
    ready = messages.parse(RepositoryIndexRequest, call.body).ready
    message = RepositoryIndexResponse()
    for one in describe.index(models, ready):
        message.models.add(**one)
    return messages.reply(message)


def load_message(call: Call) -> LoadModel:
    """As `Repository.load`, over gRPC."""
    message = messages.parse(RepositoryModelLoadRequest, call.body)
    return _load(message.model_name, messages.values_of(message.parameters))


def loaded_message(models: list[ManagedModel], call: Call) -> Reply:
    """An empty success."""
    return messages.reply(RepositoryModelLoadResponse())


def unload_message(call: Call) -> UnloadModel:
    """As `Repository.unload`, over gRPC."""
    return UnloadModel(messages.parse(RepositoryModelUnloadRequest, call.body).model_name)


def unloaded_message(models: list[ManagedModel], call: Call) -> Reply:
    """An empty success."""
    return messages.reply(RepositoryModelUnloadResponse())

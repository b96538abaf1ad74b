"""The face that SageMaker itself speaks to: health, batch parameters, and models that come and go by call.

Source: Amazon SageMaker developer guide, "Use Your Own Inference Code" and "Build Your Own Container for Multi-Model
Endpoints"; multi-model-server (ManagementRequestHandler) for paging and bodies.
"""

from urllib.parse import parse_qs, unquote

import orjson

from adapters._excerpt import excerpt
from adapters.sagemaker.errors import InvalidParameter
from gateway.errors import MalformedBody
from gateway.interfaces import ListModels, LoadModel, ManagedModel, UnloadModel
from gateway.types import Call, Reply

_PAGE = 100


def ping(ready: bool, call: Call) -> Reply:
    """200 only while requests are taken, and no body: the status is all that is read."""
    return Reply(b"", 200 if ready else 503)


def execution_parameters(max_concurrent_transforms: int, batch_strategy: str, max_payload_mb: int) -> Reply:
    """What a batch job may ask of this container."""
    document = {
        "MaxConcurrentTransforms": max_concurrent_transforms,
        "BatchStrategy": batch_strategy,
        "MaxPayloadInMB": max_payload_mb,
    }
    return Reply(orjson.dumps(document))


# Commands...


def load(call: Call) -> LoadModel:
    """POST /models: `{"model_name", "url"}`, or the same as query parameters. Raises MalformedBody."""
    document: dict[str, object] = {**_query(call)}
    if call.body.strip():
        document |= _object(call.body)
    name, url = document.get("model_name"), document.get("url")
    for key, value in (("model_name", name), ("url", url)):
        if not isinstance(value, str) or not value:
            raise MalformedBody(f"{key} is missing, or is no text")
    return LoadModel(str(name), str(url))


def _object(body: bytes) -> dict[str, object]:
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError:
        document = None
    if not isinstance(document, dict):
        raise MalformedBody("expected a JSON object with model_name and url")
    return document


def unload(call: Call) -> UnloadModel:
    """DELETE /models/NAME."""
    return UnloadModel(unquote(call.params["model"]))


def list_all(call: Call) -> ListModels:
    """GET /models. Raises InvalidParameter for a page that there cannot be."""
    _page(call)
    return ListModels()


def list_one(call: Call) -> ListModels:
    """GET /models/NAME."""
    return ListModels(unquote(call.params["model"]))


# Answers...


def loaded(models: list[ManagedModel], call: Call) -> Reply:
    """After a load."""
    return _status(f'Model "{models[0].name}" loaded')


def unloaded(models: list[ManagedModel], call: Call) -> Reply:
    """After an unload."""
    return _status(f'Model "{models[0].name}" unloaded')


def listed(models: list[ManagedModel], call: Call) -> Reply:
    """One page, and the token of the next if there is one."""
    start, limit = _page(call)
    page: dict[str, object] = {"models": [_described(model) for model in models[start : start + limit]]}
    if start + limit < len(models):
        page["nextPageToken"] = str(start + limit)
    return Reply(orjson.dumps(page))


def described(models: list[ManagedModel], call: Call) -> Reply:
    """One model."""
    return Reply(orjson.dumps(_described(models[0])))


def _described(model: ManagedModel) -> dict[str, str]:
    return {"modelName": model.name, "modelUrl": model.url}


def _status(text: str) -> Reply:
    return Reply(orjson.dumps({"status": text}))


def _query(call: Call) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(call.query).items()}


def _page(call: Call) -> tuple[int, int]:
    """Where the page starts, and how long it is at most."""
    query = _query(call)
    start, limit = (_count(query, name, default) for name, default in (("next_page_token", 0), ("limit", _PAGE)))
    return start, min(limit, _PAGE) or _PAGE


def _count(query: dict[str, str], name: str, default: int) -> int:
    text = query.get(name, "")
    if not text:
        return default
    if not text.isdecimal() or not text.isascii() or len(text) > 9:
        raise InvalidParameter(f"{name} must be a number, got {excerpt(text)}")
    return int(text)

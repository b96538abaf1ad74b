"""Models that come and go by call: which folders they may lie in, and what is loaded from there."""

import asyncio
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

from gateway.config import NAME_PATTERN
from gateway.errors import Forbidden, MalformedBody, ModelExists, ModelNotFound, OutOfMemory
from gateway.interfaces import ListModels, LoadModel, ManagedModel, UnloadModel
from gateway.models import Models
from gateway.routing import Directory

_SHOWN = 256


class ModelControl:
    """Loads what clients name, from inside the roots only; whether a client may is for others to say."""

    def __init__(self, roots: Sequence[Path], most: int, models: Models, directory: Callable[[], Directory]) -> None:
        self._roots = tuple(roots)
        self._most = most
        """Loaded at once; 0 for any number."""
        self._models = models
        self._directory = directory
        self._loaded: dict[str, ManagedModel] = {}
        self._loading: set[str] = set()

    async def run(self, command: LoadModel | UnloadModel | ListModels) -> list[ManagedModel]:
        """The models that the command was about, once it is done."""
        match command:
            case LoadModel(name, url, again):
                if again and self._directory().serves(name):
                    return [self._loaded.get(name) or ManagedModel(name, url)]
                return [await self._load(name, url)]
            case UnloadModel(name):
                return [await self._unload(name)]
            case ListModels(name):
                return [self._known(name)] if name else [self._loaded[each] for each in sorted(self._loaded)]
        raise TypeError(f"unknown command: {type(command).__name__}")

    def _known(self, name: str) -> ManagedModel:
        model = self._loaded.get(name)
        if model is None:
            raise ModelNotFound(f"no model {name[:_SHOWN]!r} is loaded", name)
        return model

    async def _load(self, name: str, url: str) -> ManagedModel:
        if not re.fullmatch(NAME_PATTERN, name):
            raise MalformedBody(
                f"{name[:_SHOWN]!r} is not a model name: letters, digits, '.', '_' and '-', at most 128, "
                "a letter or digit first"
            )
        if name in self._loading or self._directory().taken(name) or name in self._loaded:
            raise ModelExists(f"there is a model or service {name!r} already")
        if self._most and len(self._loaded) + len(self._loading) >= self._most:
            raise OutOfMemory(f"{self._most} models are loaded, which is as many as may be: unload one first")
        self._loading.add(name)
        try:
            await self._models.add(name, await asyncio.to_thread(self._place, name, url))
        finally:
            self._loading.discard(name)
        self._loaded[name] = ManagedModel(name, url)
        return self._loaded[name]

    async def _unload(self, name: str) -> ManagedModel:
        model = self._known(name)
        del self._loaded[name]
        await self._models.remove(name)
        return model

    def _place(self, name: str, url: str) -> Path:
        """The model's folder: where the URL leads, or without one the first of that name in a root."""
        if url:
            return self._folder(url)
        for root in self._roots:
            if (root / name).is_dir():
                return self._folder(os.path.abspath(root / name))
        raise ModelNotFound(f"there is no folder {name!r} where models may be loaded from", name)

    def _folder(self, url: str) -> Path:
        """The folder that the URL names, links followed. Raises Forbidden outside the roots, else MalformedBody."""
        path = _local(url)
        if path is None:
            raise MalformedBody(f"expected the absolute path of a folder or its file: URL, got {url[:_SHOWN]!r}")
        real = Path(os.path.realpath(path))
        # What does not exist outside the roots is told apart from what does by nobody.
        roots = [Path(os.path.realpath(root)) for root in self._roots]
        if not any(real != root and real.is_relative_to(root) for root in roots):
            raise Forbidden("the model's URL leads outside the folders that models may be loaded from")
        if not real.is_dir():
            raise MalformedBody(f"there is no folder at {url[:_SHOWN]!r}")
        return real


def _local(url: str) -> str | None:
    """The absolute path that it names, if it does."""
    if "\0" in url or "%00" in url:
        return None
    if url.startswith("/"):
        return url
    try:
        parts = urlsplit(url)
    except ValueError:
        return None
    if parts.scheme == "file" and parts.netloc in ("", "localhost") and parts.path.startswith("/"):
        return unquote(parts.path)
    return None

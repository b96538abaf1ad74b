"""Bodies that lie elsewhere: a URI under a configured prefix is a file in that prefix's folder."""

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote

from gateway.errors import BodyTooLarge, MalformedBody

_SHOWN = 256


class Inputs:
    """The folders that stand for URI prefixes."""

    def __init__(self, folders: Mapping[str, str], base: Path, most_bytes: int) -> None:
        found = {f"{prefix.rstrip('/')}/": base / folder for prefix, folder in folders.items()}
        self._folders = dict(sorted(found.items(), key=lambda item: len(item[0]), reverse=True))
        self._most_bytes = most_bytes

    def locate(self, uri: str) -> tuple[Path, Path]:
        """The folder and the file in it that the URI means, looked up nowhere yet.

        Raises MalformedBody for a URI under no prefix, or one that is more than a name below it.
        """
        for prefix, folder in self._folders.items():
            if uri.startswith(prefix):
                key = _text(uri[len(prefix) :])
                if not uri.startswith("s3:"):  # keys there are no URL paths
                    key = unquote(key)
                parts = key.split("/")
                if "\0" in key or any(part in ("", ".", "..") for part in parts):
                    raise MalformedBody(f"the input location {uri[:_SHOWN]!r} names no object under {prefix}")
                return folder, folder.joinpath(*parts)
        known = ", ".join(sorted(self._folders)) or "none"
        raise MalformedBody(f"the input location {uri[:_SHOWN]!r} is under no known prefix; there are: {known}")

    def read(self, uri: str) -> bytes:
        """The object; blocks. Raises MalformedBody where there is none, BodyTooLarge."""
        folder, path = self.locate(uri)
        real = os.path.realpath(path)
        try:
            if not Path(real).is_relative_to(os.path.realpath(folder)):
                raise FileNotFoundError
            # A pipe would let the reader wait for ever.
            with os.fdopen(os.open(real, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
                if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    raise FileNotFoundError
                body = file.read(self._most_bytes + 1)
        except OSError:
            raise MalformedBody(f"there is no object at the input location {uri[:_SHOWN]!r}") from None
        if len(body) > self._most_bytes:
            raise BodyTooLarge(f"the object at the input location is larger than the limit of {self._most_bytes} bytes")
        return body


def _text(header: str) -> str:
    """A header's value as its sender meant it: UTF-8, where it is."""
    try:
        return header.encode("latin-1").decode("utf-8")
    except UnicodeError:
        return header

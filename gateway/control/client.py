"""The control API as its callers see it: one request a call, errors as their text."""

import os
from pathlib import Path
from typing import Any

import httpx

from gateway.config import ConfigError

DEFAULT_URL = "http://127.0.0.1:8081"
URL_VARIABLE, TOKEN_VARIABLE = "TENSORGATE_ADMIN_URL", "TENSORGATE_TOKEN"
SECONDS = 60.0


class Client:
    """A gateway's control plane, somewhere."""

    def __init__(self, url: str = "", token_file: Path | None = None) -> None:
        """Raises ConfigError where no token can be found."""
        self._url = (url or os.environ.get(URL_VARIABLE) or DEFAULT_URL).rstrip("/")
        if "://" not in self._url:
            self._url = f"http://{self._url}"
        self._token = _token(token_file)

    def call(self, method: str, path: str, body: Any = None, **query: Any) -> Any:
        """The answer's body. Raises ConfigError with what is wrong."""
        asked = {name: str(value) for name, value in query.items() if value not in (None, "")}
        try:
            reply = httpx.request(
                method,
                f"{self._url}/control/v1{path}",
                params=asked,
                json=body,
                headers={"Authorization": f"Bearer {self._token}"},
                timeout=SECONDS,
                trust_env=False,
            )
        except httpx.HTTPError as error:
            raise ConfigError(f"no control plane answers at {self._url}: {error}") from None
        if reply.status_code == 204:
            return None
        try:
            told = reply.json()
        except ValueError:
            raise ConfigError(f"what answers at {self._url} is no control plane") from None
        if reply.is_error:
            raise ConfigError(_told(told, reply.status_code))
        return told


def _told(answer: Any, status: int) -> str:
    error = answer.get("error", {}) if isinstance(answer, dict) else {}
    field, text = error.get("field", ""), error.get("message", f"status {status}")
    return f"{field}: {text}" if field else str(text)


def _token(file: Path | None) -> str:
    if file is not None:
        try:
            return file.read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{file}: cannot be read: {getattr(error, 'strerror', error)}") from None
    token = os.environ.get(TOKEN_VARIABLE, "")
    if not token:
        raise ConfigError(f"no token: put one into {TOKEN_VARIABLE}, or name a file that holds one with --token-file")
    return token.strip()

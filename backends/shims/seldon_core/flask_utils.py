"""Seldon's exception with a status of its own."""

from __future__ import annotations

from typing import Any


class SeldonMicroserviceException(Exception):
    """Raised by a class to refuse a request; answered with `status_code` and `reason`."""

    status_code = 400

    def __init__(
        self,
        message: str,
        status_code: int | None = None,
        payload: Any = None,
        reason: str = "MICROSERVICE_BAD_DATA",
    ) -> None:
        super().__init__(message)
        self.message = message
        if status_code is not None:
            self.status_code = status_code
        self.payload = payload
        self.reason = reason

    def to_dict(self) -> dict[str, Any]:
        """The error's body as Seldon answers it."""
        return {"status": {"status": 1, "info": self.message, "code": -1, "reason": self.reason}}

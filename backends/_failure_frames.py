"""Errors of the house in a frame's header: written in a worker of ours, and the same class again in the gateway."""

import json
from typing import Any

from gateway import errors
from gateway.errors import GatewayError, InferenceFailed

KINDS = {name: kind for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, GatewayError)}


def told(error: GatewayError) -> dict[str, Any]:
    """The error with all that it knows; of a plugin's own class, as the one that it is derived from."""
    kind = next(name for one in type(error).__mro__ if KINDS.get(name := one.__name__) is one)
    details = {name: value for name, value in vars(error).items() if not name.startswith("_") and _is_plain(value)}
    return {"kind": "own", "class": kind, "message": str(error), "details": details}


def recalled(header: dict[str, Any]) -> GatewayError:
    """The error that `told` has written."""
    kind = KINDS.get(header["class"], InferenceFailed)
    error = kind.__new__(kind, header["message"])  # the constructors differ, what they leave does not
    vars(error).update(header["details"])
    return error


def _is_plain(value: Any) -> bool:
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        return False
    return True

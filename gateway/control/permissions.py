"""Who may do what with a service: the manual's table, with owners and administrators above it.

| action | read-write | read-only | none |
|---|---|---|---|
| view | yes | yes | no |
| use (online test, batch jobs) | yes | yes | no |
| operate (start, stop, edit, keys, scaling) | yes | no | no |
| canary | yes | no | no |
| duration | yes | no | no |
| delete | yes | no | no |
"""

from typing import Literal

from gateway.config import ServiceConfig
from gateway.control.accounts import User
from gateway.control.errors import NotAllowed, NotFound

Action = Literal["view", "use", "operate", "canary", "duration", "delete"]
Share = Literal["rw", "ro", "none"]

MATRIX: dict[Action, frozenset[Share]] = {
    "view": frozenset({"rw", "ro"}),
    "use": frozenset({"rw", "ro"}),
    "operate": frozenset({"rw"}),
    "canary": frozenset({"rw"}),
    "duration": frozenset({"rw"}),
    "delete": frozenset({"rw"}),
}
"""Action to the shares that allow it."""


def share(user: User, service: ServiceConfig, sharing: bool) -> Share:
    """What the user has of the service; `sharing` is whether the administrator lets members share at all."""
    if user.role == "admin" or (service.owner and service.owner == user.name):
        return "rw"
    same_project = bool(service.project) and service.project == user.project
    return service.sharing if sharing and same_project else "none"


def may(user: User, action: Action, service: ServiceConfig, sharing: bool) -> bool:
    """Whether the user may do so."""
    return share(user, service, sharing) in MATRIX[action]


def require(user: User, action: Action, name: str, service: ServiceConfig, sharing: bool) -> None:
    """Raise NotAllowed, or NotFound where the user may not even know of the service."""
    if may(user, action, service, sharing):
        return
    if not may(user, "view", service, sharing):
        raise NotFound(f"there is no service {name[:128]!r}")
    raise NotAllowed(f"you may look at {name} and use it, but not {_WORDS[action]} it")


_WORDS: dict[Action, str] = {
    "view": "look at",
    "use": "use",
    "operate": "start, stop or edit",
    "canary": "change the canary of",
    "duration": "change the duration of",
    "delete": "delete",
}

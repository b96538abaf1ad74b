"""What would change between two states of the services, field by field."""

from collections.abc import Iterator, Mapping
from typing import Any, Literal

import msgspec
from msgspec import Struct

from gateway.config import ServiceConfig

HIDDEN = frozenset({"keys", "app_codes"})
"""Fields whose values are not shown."""


class FieldChange(Struct, frozen=True):
    """One field of a service."""

    field: str
    before: Any
    after: Any


class Change(Struct, frozen=True):
    """One service."""

    kind: Literal["create", "edit", "delete"]
    service: str
    fields: tuple[FieldChange, ...] = ()


def plan(before: Mapping[str, ServiceConfig], after: Mapping[str, ServiceConfig]) -> tuple[Change, ...]:
    """The changes, by service; none for a service that stays as it is."""
    return tuple(_changes(before, after))


def _changes(before: Mapping[str, ServiceConfig], after: Mapping[str, ServiceConfig]) -> Iterator[Change]:
    for name in sorted(before.keys() | after.keys()):
        if name not in after:
            yield Change("delete", name)
        elif name not in before:
            yield Change("create", name, tuple(_fields(ServiceConfig(), after[name])))
        elif fields := tuple(_fields(before[name], after[name])):
            yield Change("edit", name, fields)


def _fields(before: ServiceConfig, after: ServiceConfig) -> Iterator[FieldChange]:
    old, new = flat(before), flat(after)
    for field in sorted(old.keys() | new.keys()):
        if old.get(field) != new.get(field):
            hidden = field.partition(".")[0] in HIDDEN
            yield FieldChange(field, *(("hidden", "hidden") if hidden else (old.get(field), new.get(field))))


def flat(service: ServiceConfig) -> dict[str, Any]:
    """The service's fields by path: `canary.weight`, `limits.concurrency`."""
    return dict(_flat("", msgspec.to_builtins(service)))


def _flat(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        for key, one in value.items():
            yield from _flat(f"{path}.{key}" if path else key, one)
    elif value is not None:
        yield path, value


def told(change: Change) -> str:
    """One line for people."""
    if change.kind != "edit":
        return f"{change.kind} {change.service}"
    fields = ", ".join(f"{one.field}: {_shown(one.before)} -> {_shown(one.after)}" for one in change.fields)
    return f"edit {change.service}: {fields}"


def _shown(value: Any) -> str:
    text = "unset" if value is None else msgspec.json.encode(value).decode()
    return text if len(text) <= 64 else f"{text[:61]}..."

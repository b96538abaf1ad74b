"""Commands for services: looked for, made, changed, started, stopped."""

import argparse
import tomllib
from collections.abc import Mapping
from typing import Any

from gateway.config import ConfigError
from gateway.control.client import Client
from gateway.control.commandline import Parsers, Told, command, named, rows, service_told

_SERVICES = {
    "NAME": "name", "STATE": "state", "TYPE": "type", "MODEL": "model", "VERSION": "version",
    "CANARY": "config.canary.weight", "NODES": "config.nodes", "KEY": "config.app_auth", "EXPIRES": "expires",
    "OWNER": "owner",
}  # fmt: skip


def add_services(commands: Parsers) -> None:
    """All of them."""
    listed = command(
        commands, "list", _list, rows(_SERVICES, "no services", "services"), "Look for services.",
        example="services list --model mnist --sort expires",
    )  # fmt: skip
    for name in ("name", "state", "owner", "node", "model"):
        listed.add_argument(f"--{name}", help=f"only those of this {name}")
    listed.add_argument("--sort", default="name", help="name, expires, -expires, state or owner (default %(default)s)")
    named(command(commands, "show", _show, service_told, "Look at one service."))
    created = command(
        commands, "create", _create, service_told, "Create a service.",
        example="services create digits --model mnist --type tfserving --duration 8h --set app_auth=true",
    )  # fmt: skip
    named(created)
    _fields(created)
    edited = command(
        commands, "edit", _edit, service_told, "Change some fields of a service.",
        example="services edit digits --set limits.concurrency=8 --set aliases='[\"numbers\"]'",
    )  # fmt: skip
    named(edited)
    _fields(edited)
    started = command(commands, "start", _start, service_told, "Start a service again, some things chosen anew.")
    named(started)
    started.add_argument("--duration", help="how long it runs, as 8h; empty for ever")
    started.add_argument("--nodes", type=int, help="how many nodes it has")
    started.add_argument("--threads", type=int, help="threads of one node")
    stopped = command(commands, "stop", _stop, _one_or_many, "Stop services.")
    stopped.add_argument("names", nargs="+", metavar="NAME")
    stopped.add_argument("--reason", default="", help="what callers are told; for one service only")
    deleted = command(commands, "delete", _delete, _one_or_many, "Delete services.")
    deleted.add_argument("names", nargs="+", metavar="NAME")
    lasting = command(
        commands, "adjust-duration", _duration, service_told, "Let a running service run longer or shorter."
    )
    named(lasting)
    lasting.add_argument("duration", help="from its start on, as 8h; 'unlimited' for ever")


def _fields(parser: argparse.ArgumentParser) -> None:
    for name in ("model", "type", "version", "duration", "owner", "project", "sharing"):
        parser.add_argument(f"--{name}", help=f"the field {name}")
    text = "any field, its value as in TOML"
    parser.add_argument("--set", action="append", default=[], metavar="FIELD=VALUE", help=text)


def _list(client: Client, options: argparse.Namespace) -> Any:
    asked = {name: getattr(options, name) for name in ("name", "state", "owner", "node", "model", "sort")}
    return client.call("GET", "/services", **asked)


def _show(client: Client, options: argparse.Namespace) -> Any:
    return client.call("GET", f"/services/{options.name}")


def _create(client: Client, options: argparse.Namespace) -> Any:
    return client.call("POST", "/services", {"name": options.name, **_given(options)})


def _edit(client: Client, options: argparse.Namespace) -> Any:
    given = _given(options)
    if not given:
        raise ConfigError("nothing to change: give --set FIELD=VALUE, or one of the options for a field")
    current = client.call("GET", f"/services/{options.name}")["config"]
    merged = {name: _over(value, current.get(name)) for name, value in given.items()}
    return client.call("PATCH", f"/services/{options.name}", merged)


def _given(options: argparse.Namespace) -> dict[str, Any]:
    named = ("model", "type", "version", "duration", "owner", "project", "sharing")
    fields: dict[str, Any] = {name: value for name in named if (value := getattr(options, name)) is not None}
    for one in options.set:
        path, sign, text = one.partition("=")
        if not sign:
            raise ConfigError(f"--set {one}: expected FIELD=VALUE")
        *tables, last = path.split(".")
        into = fields
        for name in tables:
            into = into.setdefault(name, {})
        into[last] = _toml(text)
    return fields


def _toml(text: str) -> Any:
    """A value as TOML writes it; what is none is a text."""
    try:
        return tomllib.loads(f"x = {text}")["x"]
    except tomllib.TOMLDecodeError:
        return text


def _over(value: Any, current: Any) -> Any:
    """A table's new values over those that it has."""
    if not isinstance(value, Mapping) or not isinstance(current, Mapping):
        return value
    return {**current, **{name: _over(one, current.get(name)) for name, one in value.items()}}


def _start(client: Client, options: argparse.Namespace) -> Any:
    chosen = {name: getattr(options, name) for name in ("duration", "nodes")}
    body: dict[str, Any] = {name: value for name, value in chosen.items() if value is not None}
    if options.threads is not None:
        current = client.call("GET", f"/services/{options.name}")["config"]["node"]
        body["node"] = {**current, "threads": options.threads}
    return client.call("POST", f"/services/{options.name}/start", body)


def _stop(client: Client, options: argparse.Namespace) -> Any:
    if len(options.names) == 1:
        return client.call("POST", f"/services/{options.names[0]}/stop", {"reason": options.reason})
    return client.call("POST", "/services/stop", {"names": options.names})


def _delete(client: Client, options: argparse.Namespace) -> Any:
    if len(options.names) == 1:
        client.call("DELETE", f"/services/{options.names[0]}")
        return {"done": options.names, "failed": {}}
    return client.call("POST", "/services/delete", {"names": options.names})


def _one_or_many(told: Any) -> Told:
    if "done" not in told:
        yield from service_told(told)
        return
    yield from (f"{name}: done" for name in told["done"])
    yield from (f"{name}: {reason}" for name, reason in told["failed"].items())


def _duration(client: Client, options: argparse.Namespace) -> Any:
    duration = "" if options.duration == "unlimited" else options.duration
    return client.call("PUT", f"/services/{options.name}/duration", {"duration": duration})

"""Commands for a service's keys, its canary and its nodes."""

import argparse
from pathlib import Path
from typing import Any

from gateway.config import ConfigError, read_toml
from gateway.control.client import Client
from gateway.control.commandline import Parsers, Told, command, done, named, rows, service_told

_KEYS = {"ID": "id", "NAME": "name", "SCOPES": "scopes", "EXPIRES": "expires_at", "REVOKED": "revoked"}
_DECISIONS = {"AT": "at", "NODES": "nodes", "WANT": "want", "TARGET": "target", "RULE": "rule"}


def add_keys(commands: Parsers) -> None:
    """All of them."""
    named(command(commands, "list", _keys, rows(_KEYS, "no keys", "keys"), "List a service's keys."))
    made = command(commands, "create", _new_key, _code, "Make a key; its code is shown this once.",
                    example="keys create digits ci --scope tfserving --expires 2027-01-31T12:00:00Z")  # fmt: skip
    named(made)
    made.add_argument("id", help="what lists and logs call it")
    made.add_argument("--scope", action="append", default=[], help="what it opens; without it, everything")
    made.add_argument("--expires", help="a moment, such as 2027-01-31T12:00:00Z")
    rotated = command(commands, "rotate", _rotate, _code, "Replace a key by a new one; both open for a while.")
    named(rotated)
    rotated.add_argument("id", help="the key")
    rotated.add_argument("--overlap", default="24h", help="how long both open (default %(default)s)")
    revoked = command(commands, "revoke", _revoke, done, "Take a key away; the next request with it is refused.")
    named(revoked)
    revoked.add_argument("id", help="the key")


def _keys(client: Client, options: argparse.Namespace) -> Any:
    return client.call("GET", f"/services/{options.name}/keys")


def _new_key(client: Client, options: argparse.Namespace) -> Any:
    body = {"id": options.id, "scopes": options.scope, "expires_at": options.expires}
    return client.call("POST", f"/services/{options.name}/keys", body)


def _rotate(client: Client, options: argparse.Namespace) -> Any:
    return client.call("POST", f"/services/{options.name}/keys/{options.id}/rotate", {"overlap": options.overlap})


def _revoke(client: Client, options: argparse.Namespace) -> Any:
    return client.call("DELETE", f"/services/{options.name}/keys/{options.id}")


def _code(told: Any) -> Told:
    yield f"id    {told['key']['id']}"
    yield f"code  {told['code']}"
    yield "      shown this once; callers send it as Authorization: APPCODE <code>"


# Canary...


def add_canary(commands: Parsers) -> None:
    """All of them."""
    published = command(commands, "publish", _publish, service_told, "Publish a canary, or change it.",
                         example="canary publish digits --model mnist-new --weight 10")  # fmt: skip
    named(published)
    published.add_argument("--model", default="", help="its model package; without it, the service's own")
    published.add_argument("--model-version", type=int, default=0, help="the model's version (default: the latest)")
    published.add_argument("--weight", type=int, default=0, help="percent of the requests (default %(default)s)")
    published.add_argument("--version", default="1.0.0", help="the service's version that it would make")
    weighed = command(commands, "weight", _weigh, service_told, "Change the canary's share.")
    named(weighed)
    weighed.add_argument("weight", type=int, help="percent of the requests, 0 to 100")
    named(command(commands, "takeover", _take_over, service_told, "Let the canary take over all requests."))
    named(command(commands, "offline", _take_offline, service_told, "Take the canary offline."))


def _publish(client: Client, options: argparse.Namespace) -> Any:
    fields = ("model", "model_version", "weight", "version")
    return client.call("PUT", f"/services/{options.name}/canary", {name: getattr(options, name) for name in fields})


def _weigh(client: Client, options: argparse.Namespace) -> Any:
    return client.call("PUT", f"/services/{options.name}/canary/weight", {"weight": options.weight})


def _take_over(client: Client, options: argparse.Namespace) -> Any:
    return client.call("POST", f"/services/{options.name}/canary/takeover")


def _take_offline(client: Client, options: argparse.Namespace) -> Any:
    return client.call("DELETE", f"/services/{options.name}/canary")


# Scaling...


def add_scale(commands: Parsers) -> None:
    """All of them."""
    fixed = command(commands, "nodes", _nodes, service_told, "Have a fixed number of nodes.")
    named(fixed)
    fixed.add_argument("nodes", type=int, help="how many")
    elastic = command(commands, "set", _elastic, service_told, "Let the load decide, by a TOML file of [scaling].",
                       example="scale set digits -f scaling.toml")  # fmt: skip
    named(elastic)
    elastic.add_argument("-f", "--file", type=Path, required=True, help="holds min, max, expectations, up, down")
    tried = command(commands, "simulate", _simulate, rows(_DECISIONS, "no moments"),
                     "What a rule would do: a TOML file of [scaling], and lines of SECONDS,METRIC=VALUE,...",
                     example="scale simulate -f scaling.toml --series load.csv --nodes 2")  # fmt: skip
    tried.add_argument("-f", "--file", type=Path, required=True, help="holds min, max, expectations, up, down")
    tried.add_argument("--series", type=Path, required=True, help="e.g. 0,concurrency=3 on the first line")
    tried.add_argument("--nodes", type=int, default=1, help="nodes at the beginning (default %(default)s)")


def _nodes(client: Client, options: argparse.Namespace) -> Any:
    return client.call("PUT", f"/services/{options.name}/nodes", {"nodes": options.nodes})


def _elastic(client: Client, options: argparse.Namespace) -> Any:
    return client.call("PUT", f"/services/{options.name}/scaling", _scaling(options.file))


def _simulate(client: Client, options: argparse.Namespace) -> Any:
    series = [_moment(line, number) for number, line in enumerate(_read(options.series), 1) if line.strip()]
    body = {"scaling": _scaling(options.file), "series": series, "nodes": options.nodes}
    return client.call("POST", "/scaling/simulate", body)


def _scaling(file: Path) -> Any:
    tables = read_toml(file, file.name)
    return tables.get("scaling", tables)


def _read(file: Path) -> list[str]:
    try:
        return file.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file.name}: cannot be read: {getattr(error, 'strerror', error)}") from None


def _moment(line: str, number: int) -> tuple[float, dict[str, float]]:
    try:
        at, *metrics = line.split(",")
        return float(at), {name.strip(): float(value) for name, _, value in (one.partition("=") for one in metrics)}
    except ValueError:
        raise ConfigError(f"line {number}: expected SECONDS,METRIC=VALUE,..., got {line[:64]!r}") from None

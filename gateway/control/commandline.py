"""How a command that talks to the control plane is made: its options, its call, and how the answer is printed."""

import argparse
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from gateway.control import tabled
from gateway.control.client import Client

Told = Iterable[str]
Run = Callable[[Client, argparse.Namespace], Any]
Say = Callable[[Any], Told]
Parsers = Any
"""What argparse's add_subparsers returns."""

_DETAILS = ("name", "state", "type", "model", "version", "owner", "expires", "share")
_ADMIN = "the control plane (default: the variable TENSORGATE_ADMIN_URL, else http://127.0.0.1:8081)"


def group(commands: Parsers, name: str, text: str) -> Parsers:
    """A command that only has others below it."""
    parser = commands.add_parser(name, help=text, description=text)
    return parser.add_subparsers(title="commands", required=True, metavar="COMMAND")


def command(
    commands: Parsers, name: str, run: Run, say: Say, text: str, *, example: str = ""
) -> argparse.ArgumentParser:
    """A command that makes one call, or a few, and prints what comes of it."""
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=text, description=text, epilog=f"example: tensorgate {example}" if example else None
    )
    parser.add_argument("--admin", default="", metavar="URL", help=_ADMIN)
    parser.add_argument("--token-file", type=Path, metavar="FILE", help="holds the token (default: TENSORGATE_TOKEN)")
    parser.add_argument("--json", action="store_true", help="print the answer as JSON")

    def act(options: argparse.Namespace) -> int:
        told = run(Client(options.admin, options.token_file), options)
        print(json.dumps(told, indent=2, ensure_ascii=False) if options.json else "\n".join(say(told)))
        return 0

    parser.set_defaults(run=act)
    return parser


def rows(columns: tabled.Columns, empty: str, key: str = "") -> Say:
    """A table of the answer, or of what lies under that key of it."""
    return lambda told: tabled.table(told[key] if key else told, columns, empty)


def service_told(told: Any) -> Told:
    """One service."""
    yield from tabled.lines(told, _DETAILS)
    if canary := told["config"]["canary"]:
        package = canary["model"] or "the same model"
        halted = f", halted: {canary['halted']}" if canary["halted"] else ""
        yield f"canary    {package}, version {canary['version']}, {canary['weight']} % of the requests{halted}"
    for model in told["models"]:
        error = f", {model['error']}" if model["error"] else ""
        yield f"model {model['name']} {model['version']}: {model['state']}{error}"


def done(told: Any) -> Told:
    """For calls that answer nothing."""
    return ("done",) if told is None else (json.dumps(told, ensure_ascii=False),)


def named(parser: argparse.ArgumentParser) -> None:
    """A command about one service."""
    parser.add_argument("name", metavar="NAME", help="the service")

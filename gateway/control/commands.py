"""The commands that talk to a running gateway's control plane."""

import argparse
from pathlib import Path
from typing import Any

from gateway.config import read_toml
from gateway.control import tabled
from gateway.control.client import Client
from gateway.control.commandline import Parsers, Run, Told, command, done, group, rows
from gateway.control.release_commands import add_canary, add_keys, add_scale
from gateway.control.service_commands import add_services

_EVENTS = {"ID": "id", "AT": "at", "WHO": "actor", "KIND": "kind", "SERVICE": "service", "WHAT": "text"}
_USERS = {"NAME": "name", "ROLE": "role", "PROJECT": "project", "DISABLED": "disabled"}
_TOKENS = {"ID": "id", "USER": "user", "LABEL": "label", "CREATED": "created_at", "EXPIRES": "expires_at"}
_REVISIONS = {"NUMBER": "number", "AT": "at", "WHO": "actor", "NOTE": "note"}
_PACKAGES = {"NAME": "name", "BACKEND": "backend", "VERSIONS": "versions", "PROBLEM": "problem"}


def add_commands(commands: Parsers) -> None:
    """All of them, below the program's own."""
    add_services(group(commands, "services", "Look for services, make, change, start and stop them."))
    add_keys(group(commands, "keys", "A service's application keys."))
    add_canary(group(commands, "canary", "A service's canary."))
    add_scale(group(commands, "scale", "How many nodes a service has."))
    _add_users(group(commands, "users", "Who may use the control plane."))
    _add_tokens(group(commands, "tokens", "Tokens for the control plane."))
    _add_revisions(commands)
    events = command(commands, "events", _events, rows(_EVENTS, "nothing has happened"), "What has happened.")
    events.add_argument("--service", help="of one service only")
    events.add_argument("--limit", type=int, default=50, help="how many (default %(default)s)")
    packages = rows(_PACKAGES, "no model packages")
    command(commands, "packages", lambda client, _: client.call("GET", "/packages"), packages, "List model packages.")


# Users and tokens...


def _add_users(commands: Parsers) -> None:
    command(commands, "list", lambda client, _: client.call("GET", "/users"), rows(_USERS, "no users"), "List them.")
    added = command(commands, "add", _add_user, _user, "Add one.", example="users add ada --project vision")
    added.add_argument("name", metavar="NAME")
    added.add_argument("--role", default="member", choices=("admin", "member"), help="default: member")
    added.add_argument("--project", default="", help="whose services may be shared with this user")
    removed = command(commands, "remove", _remove_user, done, "Remove one, and all tokens.")
    removed.add_argument("name", metavar="NAME")


def _add_user(client: Client, options: argparse.Namespace) -> Any:
    body = {"name": options.name, "role": options.role, "project": options.project}
    return client.call("POST", "/users", body)


def _remove_user(client: Client, options: argparse.Namespace) -> Any:
    return client.call("DELETE", f"/users/{options.name}")


def _user(told: Any) -> Told:
    return tabled.lines(told, ("name", "role", "project"))


def _add_tokens(commands: Parsers) -> None:
    tokens = rows(_TOKENS, "no tokens")
    command(commands, "list", lambda client, _: client.call("GET", "/tokens"), tokens, "List them.")
    made = command(commands, "create", _new_token, _text_of, "Make one; it is shown this once.")
    made.add_argument("--user", default="", help="whose; without it, your own")
    made.add_argument("--label", default="", help="what it is for")
    made.add_argument("--expires", help="a moment, such as 2027-01-31T12:00:00Z")
    revoked = command(commands, "revoke", _revoke_token, done, "Revoke one.")
    revoked.add_argument("id", help="as the list shows it")


def _new_token(client: Client, options: argparse.Namespace) -> Any:
    path = f"/users/{options.user}/tokens" if options.user else "/tokens"
    return client.call("POST", path, {"label": options.label, "expires_at": options.expires})


def _revoke_token(client: Client, options: argparse.Namespace) -> Any:
    return client.call("DELETE", f"/tokens/{options.id}")


def _text_of(told: Any) -> Told:
    yield f"id     {told['token']['id']}"
    yield f"token  {told['text']}"


# Revisions...


def _add_revisions(commands: Parsers) -> None:
    for name, path, text in (("plan", "/plan", "What applying a file would change."),
                             ("apply", "/apply", "Apply a file's services, all or none.")):  # fmt: skip
        parser = command(commands, name, _wanted(path), tabled.changes, text, example=f"{name} -f services.toml")
        parser.add_argument("-f", "--file", type=Path, required=True, help="TOML with tables [services.NAME]")
        parser.add_argument("--prune", action="store_true", help="services that the file does not name go")
    command(commands, "drift", lambda client, _: client.call("GET", "/drift"), tabled.changes,
             "How the services differ from the gateway's configuration file.")  # fmt: skip
    revisions = rows(_REVISIONS, "no revisions")
    command(commands, "revisions", lambda client, _: client.call("GET", "/revisions"), revisions, "List the revisions.")
    back = command(commands, "rollback", _roll_back, tabled.changes, "Go back to a revision.")
    back.add_argument("revision", type=int, help="its number")


def _wanted(path: str) -> Run:
    def run(client: Client, options: argparse.Namespace) -> Any:
        services = read_toml(options.file, options.file.name).get("services", {})
        return client.call("POST", path, {"services": services, "prune": options.prune})

    return run


def _roll_back(client: Client, options: argparse.Namespace) -> Any:
    return client.call("POST", "/rollback", {"revision": options.revision})


def _events(client: Client, options: argparse.Namespace) -> Any:
    return client.call("GET", "/events", service=options.service, limit=options.limit)

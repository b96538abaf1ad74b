"""Passes: what they open, for how long, and what does not open anything."""

from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.auth import Authenticator
from gateway.config import Config, convert
from gateway.passes import GOOD_SECONDS, PREFIX, Entrance, Passes
from gateway.types import Call


class Time:
    """A monotonic clock that a test turns."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


def authenticator(passes: Passes | None) -> Authenticator:
    """Of two services that need keys, one of which has none yet."""
    services = {"digits": {"app_auth": True}, "iris": {"app_auth": True, "app_codes": ["chosen"]}}
    config = convert({"models_dir": "models", "gateway": {"data_dir": "d"}, "services": services}, Config, "t.toml")
    return Authenticator(config.services, Path(), own_passes=passes)


def call(code: str) -> Call:
    return Call("POST", "/", headers=[(b"x-tensorgate-key", code.encode("latin-1"))])


def test_a_pass_opens_one_service() -> None:
    """Its own, under the name of whom it was made for; and no other."""
    passes = Passes()
    grant = authenticator(Passes(passes.secret)).opened(call(passes.issue("digits", "test:ada")))
    assert (frozenset({"digits"}), "test:ada") == (grant.services, grant.key)


def test_budgets_are_the_users() -> None:
    """All of a user's passes count as one caller, and those of another as another."""
    passes = Passes()
    auth = authenticator(passes)
    calls = [call(passes.issue("digits", f"test:{name}")) for name in ("ada", "ada", "bob")]
    first, again, other = [auth.caller(one, auth.opened(one)) for one in calls]
    assert first == again
    assert first != other


def test_a_pass_is_over() -> None:
    """After its time it opens nothing."""
    time = Time()
    passes = Passes(clock=time)
    code = passes.issue("digits", "test:ada")
    time.now += GOOD_SECONDS - 1
    assert passes.opening(code) is not None
    time.now += 2
    assert passes.opening(code) is None


@pytest.mark.parametrize(
    "spoil",
    [
        lambda code: code[:-1],
        lambda code: code.replace(PREFIX, "tg_"),
        lambda code: PREFIX,
        lambda code: f"{PREFIX}.",
        lambda code: f"{PREFIX}\xff.\xff",
        lambda code: f"{PREFIX}AAAA{code.removeprefix(PREFIX)}",
        lambda code: Passes().issue("digits", "test:ada"),
    ],
)
def test_forgeries(spoil: Callable[[str], str]) -> None:
    """What was not made here, or was changed, opens nothing, and breaks nothing."""
    passes = Passes()
    assert not authenticator(passes).opened(call(spoil(passes.issue("digits", "test:ada"))))


def test_none_without_a_control_plane() -> None:
    """Where nobody can have made a pass, there are none."""
    passes = Passes()
    assert not authenticator(None).opened(call(passes.issue("digits", "test:ada")))


@pytest.mark.parametrize(
    ("host", "url"), [("127.0.0.1", "http://127.0.0.1:80"), ("::1", "http://[::1]:80"), ("h", "http://h:80")]
)
def test_the_entrance(host: str, url: str) -> None:
    """Addresses of six are written in brackets."""
    assert url == Entrance(host, 80, Passes()).url

"""Keys of which only hashes are known: what they open, for what, and how long."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from scene import on_loop

from gateway import keys
from gateway.auth import Authenticator
from gateway.config import ConfigError, KeyConfig, ServiceConfig
from gateway.errors import Forbidden, Unauthenticated
from gateway.grants import DESCRIBE, INFER, Grant
from gateway.routing import Service
from gateway.types import Call

CODE, HASH = keys.generate()
OTHER_CODE, OTHER_HASH = keys.generate()
SLOW = keys.chosen("summer", bytes(16))
NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
DIGITS = Service("digits", "digits", "any", True, ())


def key(id: str = "k", hash: str = HASH, **fields: Any) -> KeyConfig:
    return KeyConfig(id=id, hash=hash, **fields)


class Door:
    """A service digits with those keys, at a time that can be set."""

    def __init__(self, *stored: KeyConfig, codes: tuple[str, ...] = ()) -> None:
        self.now = NOON.timestamp()
        services = {"digits": ServiceConfig(app_auth=True, keys=stored, app_codes=codes)}
        self.auth = Authenticator(services, Path(), steady=lambda: self.now)

    def opened(self, code: str, protocol: str = "tfserving", operation: str = INFER) -> Grant:
        return self.auth.opened(self.call(code), protocol, operation)

    def call(self, code: str) -> Call:
        return Call("POST", "/", headers=[(b"authorization", f"APPCODE {code}".encode())])


def test_the_code_of_a_hash_opens() -> None:
    """As one of `app_codes` beside it does; the log learns the id."""
    door = Door(key("ci"), codes=("plain",))
    assert door.opened(CODE) == Grant(frozenset({"digits"}), True, key="ci")
    assert door.opened("plain") == Grant(frozenset({"digits"}), True)
    assert not door.opened(OTHER_CODE)
    assert not door.opened(HASH)
    assert not door.opened(HASH.partition(":")[2])


def test_a_revoked_key_opens_nothing() -> None:
    """Though it is still listed."""
    assert not Door(key(revoked=True)).opened(CODE)


def test_an_expired_key_is_none() -> None:
    """To the moment; nobody is told that it was one."""
    door = Door(key(expires_at=NOON))
    door.now -= 1
    assert door.opened(CODE)
    door.now += 1
    assert not door.opened(CODE)
    with pytest.raises(Unauthenticated, match="the key is not valid"):
        door.auth.admit(door.call(CODE), door.opened(CODE), DIGITS)


def test_keys_overlap_while_they_are_rotated() -> None:
    """The old one opens until its time, the new one from now on."""
    door = Door(key("old", expires_at=NOON), key("new", OTHER_HASH))
    door.now -= 60
    assert door.opened(CODE)
    assert door.opened(OTHER_CODE)
    door.now += 60
    assert not door.opened(CODE)
    assert door.opened(OTHER_CODE)


@pytest.mark.parametrize(
    ("scopes", "protocol", "operation", "opens"),
    [
        ((), "openai", DESCRIBE, True),
        (("infer",), "openai", INFER, True),
        (("infer",), "openai", DESCRIBE, False),
        (("describe",), "openai", INFER, False),
        (("openai",), "openai", DESCRIBE, True),
        (("openai",), "tfserving", INFER, False),
        (("openai", "v2", "infer"), "v2", INFER, True),
        (("openai", "v2", "infer"), "v2", DESCRIBE, False),
    ],
)
def test_scopes_narrow_a_key(scopes: Any, protocol: str, operation: str, opens: bool) -> None:
    """To operations, protocols, or both; what it does not open is 403, for the key is valid."""
    door = Door(key(scopes=scopes))
    grant = door.opened(CODE, protocol, operation)
    assert ("digits" in grant, grant.valid) == (opens, True)
    if not opens:
        with pytest.raises(Forbidden, match="but not for this operation or protocol"):
            door.auth.admit_any(door.call(CODE), grant, [DIGITS])


@on_loop
async def test_a_chosen_code_opens_once_it_was_checked() -> None:
    """Then at once, and only for services that have it."""
    door = Door(key("me", SLOW, scopes=("infer",)), key("ci"))
    call = door.call("summer")
    assert not door.opened("summer")
    stranger = Service("other", "other", "any", True, ())
    assert not await door.auth.grant(call, [stranger], "", "openai", INFER)
    assert await door.auth.grant(call, [DIGITS], "", "openai", INFER) == Grant(frozenset({"digits"}), True, key="me")
    assert door.opened("summer").key == "me"
    assert door.opened("summer", operation=DESCRIBE) == Grant(valid=True, narrow=frozenset({"digits"}), key="me")
    assert (await door.auth.grant(door.call(CODE), [DIGITS], "", "openai", INFER)).key == "ci"
    assert not await door.auth.grant(door.call("winter"), [DIGITS], "", "openai", INFER)


def test_ids_are_told_apart() -> None:
    """Two keys of a service have two ids."""
    with pytest.raises(ConfigError, match=r"services.digits.keys\[1\].id: 'k' is taken"):
        Door(key(), key(hash=OTHER_HASH))


def test_slow_codes_of_a_service_are_bounded() -> None:
    """By their salts, each of which makes a wrong guess dearer."""
    hashes = [SLOW.replace("0" * 32, f"{number:032x}") for number in range(9)]
    with pytest.raises(ConfigError, match=r"keys\[8\].hash: codes of one service may have 8 different salts"):
        Door(*(key(f"k{number}", hashed) for number, hashed in enumerate(hashes)))

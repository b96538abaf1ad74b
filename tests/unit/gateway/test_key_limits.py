"""Keys with limits of their own."""

from typing import Any

import pytest
from door import Caller

from gateway.config import Config, convert
from gateway.errors import RateLimited
from gateway.gate import Visit
from gateway.limits import Limits
from gateway.types import Call

HASH = "sha256:" + "0" * 64


class Door:
    """A service with those limits and keys, on a clock that stands still until it is moved."""

    def __init__(self, limits: Any = None, **keys: Any) -> None:
        self.now = 1000.0
        self.limits = Limits(config(limits, keys), lambda: self.now)
        self.gate = self.limits.gate("s")

    def enter(self, id: str) -> Visit:
        return self.gate.enter(Call("POST", "/"), Caller(id, self.now, id))

    def allows(self, id: str, most: int = 50) -> int:
        """How many come in at once until one is refused."""
        for number in range(most):
            try:
                self.enter(id).release()
            except RateLimited:
                return number
        return most

    def change(self, limits: Any = None, **keys: Any) -> None:
        self.limits.adopt(config(limits, keys))


def config(limits: Any, keys: dict[str, Any]) -> Config:
    stored = [{"id": id, "hash": HASH, **({"limits": own} if own else {})} for id, own in keys.items()]
    return convert({"services": {"s": {"limits": limits or {}, "keys": stored}}}, Config, "test")


def test_a_key_may_have_limits_of_its_own() -> None:
    """In the place of the service's for each key; the others keep those, or have none."""
    door = Door({"key": {"requests_per_second": 5}}, ci={"requests_per_second": 2}, web={"concurrency": 9}, ada=None)
    assert (door.allows("ci"), door.allows("ada"), door.allows("web")) == (2, 5, 50)
    lone = Door(None, ci={"requests_per_second": 2}, ada=None)
    assert (lone.allows("ci"), lone.allows("ada")) == (2, 50)


def test_a_keys_requests_at_the_same_time_are_bounded() -> None:
    """By its own number."""
    door = Door(None, ci={"concurrency": 1}, ada=None)
    visit = door.enter("ci")
    with pytest.raises(RateLimited, match="1 requests under way"):
        door.enter("ci")
    door.enter("ada")
    visit.release()
    door.enter("ci")


def test_a_keys_limits_hold_from_the_change_on() -> None:
    """For who used it before, and for who never did."""
    door = Door(None, ci=None, web=None)
    assert door.allows("ci") == 50
    door.change(None, ci={"requests_per_second": 3}, web={"requests_per_second": 4})
    assert (door.allows("ci"), door.allows("web")) == (3, 4)
    door.change(None, ci=None, web=None)
    assert door.allows("ci") == 50

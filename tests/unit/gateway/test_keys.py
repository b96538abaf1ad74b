"""Codes, their hashes, and the checks that take long."""

import asyncio
import re
import threading
from collections.abc import Iterable

import msgspec
import pytest
from scene import on_loop

from gateway import codechecks, keys
from gateway.codechecks import PEER_BURST, PEER_RATE, SLOTS, CodeChecks
from gateway.config import KeyConfig
from gateway.errors import RateLimited

SALT = bytes(16)
HASHES = tuple(f"scrypt:16384:8:5:{number:032x}:{'0' * 64}" for number in range(8))


def test_generated_codes_have_chance_enough() -> None:
    """192 bits, told by a prefix that scanners for leaked secrets can look for, and never twice the same."""
    codes = {keys.generate()[0] for _ in range(100)}
    assert len(codes) == 100
    assert all(re.fullmatch(r"tg_[A-Za-z0-9_-]{32}", code) for code in codes)


def test_hashes_are_what_the_configuration_takes() -> None:
    """Both forms pass the pattern of `keys`, and hold no code."""
    code, generated = keys.generate()
    for hashed in (generated, keys.chosen("summer", SALT)):
        assert msgspec.convert({"id": "k", "hash": hashed}, KeyConfig).hash == hashed
        assert code not in hashed
        assert "summer" not in hashed


def test_a_chosen_code_is_found_by_its_hash() -> None:
    """Among others, whose salt may be the same; a wrong one is not."""
    ours, other = keys.chosen("summer", SALT), keys.chosen("winter", SALT)
    assert keys.find(b"summer", [other, ours]) == ours
    assert keys.find(b"autumn", [other, ours]) == ""


def test_chosen_codes_have_salts_of_their_own() -> None:
    """Unless they are to share one."""
    assert keys.chosen("summer") != keys.chosen("summer")


@pytest.mark.parametrize("code", ["", "  ", " a", "a ", "a\nb", "a\0", "x" * 1025, "tg_mine"])
def test_what_no_header_carries_is_no_code(code: str) -> None:
    """It could never be used."""
    with pytest.raises(ValueError, match="1 to 1024 printable characters"):
        keys.chosen(code)


class Desk:
    """Checks whose clock and hashing are played."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.tried: list[bytes] = []
        self.checks = CodeChecks(lambda: self.now)
        monkeypatch.setattr(keys, "find", self._find)

    def _find(self, code: bytes, hashes: Iterable[str]) -> str:
        self.tried.append(code)
        return next((hashed for hashed in hashes if code == b"right"), "")

    async def check(self, code: bytes, peer: str = "198.51.100.1", salts: int = 1) -> str:
        return await self.checks.check(code, HASHES[:salts], peer)


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch) -> Desk:
    return Desk(monkeypatch)


@on_loop
async def test_a_code_that_was_right_once_is_known(desk: Desk) -> None:
    """Without any further check, until its key goes."""
    assert desk.checks.known(b"right") == ""
    assert await desk.check(b"right") == HASHES[0]
    assert desk.checks.known(b"right") == HASHES[0]
    desk.checks.keep({HASHES[0]})
    assert desk.checks.known(b"right") == HASHES[0]
    desk.checks.keep(set())
    assert desk.checks.known(b"right") == ""


@on_loop
async def test_who_comes_at_the_same_time_waits_for_one_check(desk: Desk) -> None:
    """A hundred callers with the same code after a start are one check."""
    found = await asyncio.gather(*(desk.check(b"right") for _ in range(100)))
    assert set(found) == {HASHES[0]}
    assert desk.tried == [b"right"]


@on_loop
async def test_guesses_are_rationed_by_address(desk: Desk) -> None:
    """So many at once, then one now and then; others are not held up, and the right code costs nothing."""
    for number in range(int(PEER_BURST)):
        assert await desk.check(b"wrong %d" % number) == ""
    with pytest.raises(RateLimited) as refused:
        await desk.check(b"wrong")
    assert refused.value.retry_after == pytest.approx(1 / PEER_RATE)
    assert await desk.check(b"right", peer="203.0.113.9") == HASHES[0]
    desk.now += 1 / PEER_RATE
    assert await desk.check(b"wrong") == ""


@on_loop
async def test_each_salt_counts(desk: Desk) -> None:
    """A call that could mean many services costs its address what the checks cost."""
    await desk.check(b"wrong", salts=8)
    await desk.check(b"wrong again", salts=8)
    desk.now += (16 - PEER_BURST) / PEER_RATE
    with pytest.raises(RateLimited):
        await desk.check(b"wrong once more")


@on_loop
async def test_all_addresses_together_are_rationed(desk: Desk) -> None:
    """Guessing from thousands of addresses gets no more of the processor."""
    refused = 0
    for number in range(1000):
        try:
            await desk.check(b"wrong", peer=f"10.0.{number // 250}.{number % 250}")
        except RateLimited:
            refused += 1
    assert len(desk.tried) == codechecks.ALL_BURST
    assert refused == 1000 - codechecks.ALL_BURST


@on_loop
async def test_nothing_is_kept_of_wrong_codes(desk: Desk) -> None:
    """Neither of the code nor of an address beyond a fixed number of budgets."""
    for number in range(3000):
        desk.now += 60.0
        await desk.check(b"wrong %d" % number, peer=f"10.{number // 250}.{number % 250}.1")
    await asyncio.sleep(0)
    checks = desk.checks
    assert (len(checks._known), len(checks._running), len(checks._peers)) == (0, 0, SLOTS)


@on_loop
async def test_a_caller_who_leaves_ends_nobody_elses_check(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check goes on for those who wait for it, too; it never runs on the event loop."""
    loop = asyncio.get_running_loop()
    started, release = asyncio.Event(), threading.Event()

    def slowly(code: bytes, hashes: Iterable[str]) -> str:
        loop.call_soon_threadsafe(started.set)
        release.wait(10)
        return HASHES[0]

    monkeypatch.setattr(keys, "find", slowly)
    first = loop.create_task(desk.check(b"right"))
    await started.wait()
    second = loop.create_task(desk.check(b"right"))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.sleep(0)
    release.set()
    assert await second == HASHES[0]

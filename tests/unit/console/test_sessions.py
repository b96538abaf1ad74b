"""Nobody gets into the console without a token, nobody else's page acts in it, and guessing is slow."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from console_visitor import Visitor, visitor
from control_plane import plane, run

from gateway.console.sessions import FREE_TRIES, IDLE_SECONDS, LONGEST_LOCK_SECONDS, LONGEST_SECONDS, Lockout, Sessions
from gateway.console.site import ROWS
from gateway.control.errors import NotSignedIn, TooOften
from gateway.control.signin import SignIn

SERVICES: dict[str, Any] = {"flowers": {"model": "iris", "owner": "ada"}}


class Clock:
    """Goes when it is told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def path_of(path: str) -> str:
    for field, value in {
        "{name}": "flowers",
        "{act}": "stop",
        "{key}": "ci",
        "{number}": "1",
        "{user}": "ada",
        "{token}": "0",
    }.items():
        path = path.replace(field, value)
    return path


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.method} {row.path}")
def test_every_page_asks_who_is_there(tmp_path: Path, row: Any) -> None:
    """Without a session every page leads to the sign-in, and nothing happens."""

    async def story() -> None:
        with plane(tmp_path, SERVICES) as made:
            stranger = Visitor(made)
            reply = await stranger.client.request(row.method, f"/console{path_of(row.path)}")
            if row.path.endswith(".json"):
                assert reply.status_code == 401
            else:
                assert reply.status_code == 303
                assert reply.headers["location"].startswith("/console/sign-in")
            assert SERVICES.keys() == made.control.services.keys()

    run(story)


@pytest.mark.parametrize("row", [row for row in ROWS if row.method == "POST"], ids=lambda row: row.path)
def test_every_form_comes_from_our_page(tmp_path: Path, row: Any) -> None:
    """A form without the session's own word is refused, and changes nothing."""

    async def story() -> None:
        with plane(tmp_path, SERVICES) as made:
            ours = await visitor(made)
            before = made.control.head.number
            for csrf in ("", "x" * 32):
                reply = await ours.post(path_of(row.path), csrf)
                assert reply.status_code == 403
                assert "out of date" in reply.text
            assert before == made.control.head.number

    run(story)


def test_sign_in_and_out(tmp_path: Path) -> None:
    """The cookie is for this site's own pages and for no script; after signing out it opens nothing, wherever it is."""

    async def story() -> None:
        with plane(tmp_path, SERVICES) as made:
            ours = Visitor(made)
            reply = await ours.sign_in(made.admin, "/console/events")
            assert (reply.status_code, reply.headers["location"]) == (303, "/console/events")
            cookie = reply.headers["set-cookie"].lower()
            assert all(word in cookie for word in ("httponly", "samesite=strict", "path=/"))
            assert made.admin not in cookie
            stolen = dict(ours.client.cookies)
            assert (await ours.get("/services")).status_code == 200
            await ours.post("/sign-out")
            other = Visitor(made)
            other.client.cookies.update(stolen)
            assert (await other.get("/services")).status_code == 303

    run(story)


@pytest.mark.parametrize("to", ["https://evil.example/", "//evil.example", "/\\evil.example", "/metrics", ""])
def test_sign_in_leads_nowhere_else(tmp_path: Path, to: str) -> None:
    """Whatever a link says, one stays in the console."""

    async def story() -> None:
        with plane(tmp_path) as made:
            assert (await Visitor(made).sign_in(made.admin, to)).headers["location"] == "/console/services"

    run(story)


def test_a_session_is_over_when_its_token_is(tmp_path: Path) -> None:
    """A token that is revoked, and a user who is disabled, are out with the next page."""

    async def story() -> None:
        with plane(tmp_path, SERVICES) as made:
            token = made.user("ada")
            ours = await visitor(made, token)
            assert (await ours.get("/services/flowers")).status_code == 200
            made.control.accounts.change("ada", disabled=True)
            assert (await ours.get("/services/flowers")).status_code == 303

    run(story)


def test_guessing_is_slow() -> None:
    """After a few wrong tokens an address waits, longer each time, up to a bound; others do not."""
    clock = Clock()
    lockout = Lockout(clock)
    waits = []
    for _ in range(FREE_TRIES + 12):
        lockout.check("eve")
        lockout.wrong("eve")
        try:
            lockout.check("eve")
            waits.append(0)
        except TooOften as error:
            waits.append(error.seconds)
            clock.now += error.seconds
        lockout.check("ada")
    assert waits[: FREE_TRIES + 8] == [0] * (FREE_TRIES - 1) + [1, 2, 4, 8, 16, 32, 64, 128, 256]
    assert waits[-1] == LONGEST_LOCK_SECONDS
    lockout.right("eve")
    lockout.wrong("eve")
    lockout.check("eve")


def test_wrong_tokens_are_told_so(tmp_path: Path) -> None:
    """401 for a wrong one, and 429 with a wait once there were too many, even for the right one then."""

    async def story() -> None:
        with plane(tmp_path) as made:
            eve = Visitor(made)
            for _ in range(FREE_TRIES):
                assert (await eve.sign_in("tgc_wrong")).status_code == 401
            reply = await eve.sign_in(made.admin)
            assert (reply.status_code, reply.headers["retry-after"]) == (429, "1")
            assert "try again in 1 s" in reply.text

    run(story)


def test_sessions_end(tmp_path: Path) -> None:
    """Unused for an hour, or used for half a day, a session is over."""

    async def story() -> None:
        with plane(tmp_path) as made:
            clock = Clock()
            sessions = Sessions(SignIn(made.control), clock)
            with pytest.raises(NotSignedIn):
                await sessions.begin("nothing", "here")
            cookie = await sessions.begin(made.admin, "here")
            connection: Any = type("Connection", (), {"cookies": {"tensorgate_session": cookie}})
            steps = int(LONGEST_SECONDS // (IDLE_SECONDS - 1))
            for _ in range(steps):
                clock.now += IDLE_SECONDS - 1
                assert await sessions.find(connection) is not None
            clock.now += LONGEST_SECONDS - steps * (IDLE_SECONDS - 1)
            assert await sessions.find(connection) is None
            idle = await sessions.begin(made.admin, "here")
            connection.cookies = {"tensorgate_session": idle}
            clock.now += IDLE_SECONDS
            assert await sessions.find(connection) is None

    run(story)


def test_the_api_knows_the_console(tmp_path: Path) -> None:
    """A page's script reads by its cookie alone; it changes something only with the page's own word."""

    async def story() -> None:
        with plane(tmp_path, SERVICES) as made:
            ours = await visitor(made)
            api = "http://control/control/v1"
            assert (await ours.client.get(f"{api}/me")).json()["user"]["name"] == "admin"
            path = f"{api}/services/flowers/stop"
            assert (await ours.client.post(path, json={})).status_code == 403
            assert (await ours.client.post(path, json={}, headers={"x-csrf-token": "x"})).status_code == 403
            assert (await ours.client.post(path, json={}, headers={"x-csrf-token": ours.csrf})).status_code == 200
            bearer = {"authorization": "Bearer tgc_wrong"}
            assert (await ours.client.get(f"{api}/me", headers=bearer)).status_code == 401

    run(story)


def test_headers_of_pages_and_files(tmp_path: Path) -> None:
    """Pages are kept by nobody, framed by nobody and run nothing that is not ours; files may be kept."""

    async def story() -> None:
        with plane(tmp_path) as made:
            ours = await visitor(made)
            for path in ("/services", "/sign-in", "/nowhere", "/metrics.json"):
                headers = (await ours.get(path)).headers
                assert "default-src 'self'" in headers["content-security-policy"]
                assert "frame-ancestors 'none'" in headers["content-security-policy"]
                assert "unsafe" not in headers["content-security-policy"]
                assert (headers["cache-control"], headers["x-content-type-options"]) == ("no-store", "nosniff")
            file = await ours.get("/static/style.css?v=1")
            assert "immutable" in file.headers["cache-control"]
            assert (await ours.get("/static/style.css")).headers["cache-control"] == "no-cache"
            for path in ("/static/../site.py", "/static/%2e%2e/site.py", "/static/templates"):
                assert (await ours.get(path)).status_code == 404

    run(story)


async def _large(ours: Visitor) -> int:
    return (await ours.post("/services/new", environment="x" * (2 << 20))).status_code


def test_forms_are_bounded(tmp_path: Path) -> None:
    """A form larger than any page's is refused before it is read."""

    async def story() -> None:
        with plane(tmp_path) as made:
            assert await asyncio.wait_for(_large(await visitor(made)), 10) == 400

    run(story)

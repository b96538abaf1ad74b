"""Every endpoint of the control API refuses whoever may not use it, and names what is wrong with what it is sent."""

import asyncio
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from control_plane import Plane, plane, run
from openapi_spec_validator import OpenAPIV31SpecValidator, validate

from gateway.control.api import BODY_BYTES
from gateway.control.calls import ENDPOINTS
from gateway.control.document import document
from gateway.control.endpoint import PREFIX, Endpoint
from gateway.control.permissions import MATRIX

SHARES = ("rw", "ro", "none")
BODIES: dict[str, Any] = {
    "post_services": {"name": "new", "model": "iris"},
    "post_services_delete": {"names": []},
    "post_services_stop": {"names": []},
    "put_services_name_duration": {"duration": "1h"},
    "put_services_name_canary": {"model": "mnist"},
    "put_services_name_canary_weight": {"weight": 30},
    "post_services_name_keys": {"id": "other"},
    "put_services_name_scaling": {},
    "put_services_name_nodes": {"nodes": 2},
    "post_scaling_simulate": {"scaling": {}, "series": []},
    "post_plan": {"services": {}},
    "post_apply": {"services": {}},
    "post_rollback": {"revision": 1},
    "post_users": {"name": "new"},
}
"""What endpoints take that do not take an empty object."""


def services() -> dict[str, Any]:
    """One for each way to share, of the member ada in the project vision."""
    return {
        name: {"model": "iris", "owner": "ada", "project": "vision", "sharing": name, "canary": {"weight": 10}}
        for name in SHARES
    }


def path_of(endpoint: Endpoint, service: str) -> str:
    values = {"name": service, "key": "ci", "number": "1", "user": "ada", "token": "0000"}
    return re.sub(r"\{(\w+)\}", lambda found: values[found[1]], endpoint.path)


def body_of(endpoint: Endpoint) -> Any:
    return None if endpoint.takes is None else BODIES.get(endpoint.name, {})


async def status(made: Plane, endpoint: Endpoint, service: str, token: str) -> int:
    reply = await made.call(endpoint.method, path_of(endpoint, service), body_of(endpoint), token=token)
    return reply.status_code


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda one: one.name)
def test_strangers_are_refused(endpoint: Endpoint, tmp_path: Path) -> None:
    """No token, a wrong one, a service's key, an expired one, a disabled user's: 401, and nothing happens."""

    async def story() -> None:
        with plane(tmp_path, services()) as made:
            made.user("gone", disabled=True)
            _, disabled = made.control.accounts.new_token("gone", "", None)
            _, expired = made.control.accounts.new_token("admin", "", datetime(2020, 1, 1, tzinfo=UTC))
            key = (await made.call("POST", "/services/rw/keys", {"id": "k"})).json()["code"]
            before = made.control.head.number
            for token in ("", "tgc_wrong", key, expired, disabled, "x" * 10_000):
                assert await status(made, endpoint, "rw", token) == 401, token[:16]
            assert before == made.control.head.number

    run(story)


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda one: one.name)
def test_members_may_what_is_shared(endpoint: Endpoint, tmp_path: Path) -> None:
    """A member of the project by the matrix; one of another project nothing of it; administrators' calls neither."""

    async def story() -> None:
        with plane(tmp_path, services()) as made:
            bob, eve = made.user("bob", project="vision"), made.user("eve", project="other")
            made.user("ada", project="vision")
            if endpoint.who == "admin":
                assert [await status(made, endpoint, "rw", token) for token in (bob, eve)] == [403, 403]
                return
            if endpoint.action is None:
                return
            for share in SHARES:
                given = await status(made, endpoint, share, bob)
                if share in MATRIX[endpoint.action]:
                    assert given not in (401, 403), share
                else:
                    assert given == (404 if share == "none" else 403), share
                assert await status(made, endpoint, share, eve) == 404

    run(story)


def test_every_endpoint_of_a_service_says_what_it_needs() -> None:
    """A path that names a service has an action of the matrix, so that the tests above cannot miss it."""
    assert [one.name for one in ENDPOINTS if "{name}" in one.path and one.action is None] == []
    assert len({(one.method, one.path) for one in ENDPOINTS}) == len(ENDPOINTS)


def test_nobody_shares_where_sharing_is_off(tmp_path: Path) -> None:
    """The administrator's switch counts for what was shared before, too."""

    async def story() -> None:
        with plane(tmp_path, services(), sharing=False) as made:
            bob = made.user("bob", project="vision")
            assert (await made.call("GET", "/services", token=bob)).json()["total"] == 0
            assert (await made.call("GET", "/services/rw", token=bob)).status_code == 404

    run(story)


def test_members_own_what_they_make(tmp_path: Path) -> None:
    """Whatever they say, the owner is themselves, and the project theirs."""

    async def story() -> None:
        with plane(tmp_path) as made:
            bob = made.user("bob", project="vision")
            body = {"name": "mine", "model": "iris", "owner": "admin", "project": "other"}
            made_one = (await made.call("POST", "/services", body, token=bob)).json()
            assert (made_one["owner"], made_one["config"]["project"]) == ("bob", "vision")

    run(story)


@pytest.mark.parametrize(
    ("method", "path", "body", "code", "field", "text"),
    [
        ("POST", "/services", {"model": "iris"}, 400, "name", "expected letters, digits"),
        ("POST", "/services", {"name": "../x", "model": "iris"}, 400, "name", "expected letters"),
        ("POST", "/services", {"name": "rw", "model": "iris"}, 409, "name", "there is a service 'rw' already"),
        ("POST", "/services", {"name": "x", "model": "nope"}, 400, "model", "there is no model package 'nope'"),
        ("POST", "/services", {"name": "x", "model": "server", "type": "seldon"}, 400, "model", "is none for seldon"),
        ("POST", "/services", {"name": "x", "model": "iris", "type": "custom"}, 400, "model", "is none for custom"),
        ("POST", "/services", {"name": "x", "model": "iris", "colour": 1}, 400, "", "unknown field `colour`"),
        ("POST", "/services", {"name": "x", "model": "iris", "keys": []}, 400, "keys", "a call of its own"),
        ("POST", "/services", {"name": "x", "model": "iris", "app_codes": ["a"]}, 400, "app_codes", "make keys"),
        ("POST", "/services", [1], 400, "", "Expected `object`"),
        ("PATCH", "/services/rw", {"limits": {"queue": "x"}}, 400, "limits.queue", "Expected `int | null`"),
        ("PATCH", "/services/nobody", {}, 404, "", "there is no service 'nobody'"),
        ("PUT", "/services/rw/canary", {"weight": 200}, 400, "weight", "Expected `int` <= 100"),
        ("PUT", "/services/rw/canary", {"model": "nope"}, 400, "canary.model", "there is no model package"),
        ("POST", "/services/rw/keys", {"id": "a b"}, 400, "id", "letters, digits"),
        ("POST", "/services/rw/keys", {"id": "a", "code": " "}, 400, "code", "a code must have"),
        ("POST", "/services/rw/keys", {"id": "a", "expires_at": "2027-01-01T00:00:00"}, 400, "expires_at", "offset"),
        ("POST", "/services/rw/keys/none/rotate", {}, 404, "", "the service has no key 'none'"),
        ("PUT", "/services/rw/nodes", {"nodes": -1}, 400, "nodes", "expected a whole number from 0 to 1024"),
        ("PUT", "/services/rw/scaling", {"min": 3, "max": 2}, 400, "", "min is 3, which is more than max, 2"),
        ("POST", "/scaling/simulate", {"scaling": {}, "series": [[1, {}], [0, {}]]}, 400, "series", "must not go back"),
        ("POST", "/plan", {"services": {"x": {"type": "tf"}}}, 400, "services.x.type", "Invalid enum value 'tf'"),
        ("POST", "/apply", {"services": {}, "revision": 99}, 412, "", "plan again"),
        ("POST", "/rollback", {"revision": 99}, 404, "", "there is no revision 99"),
        ("GET", "/services?colour=red", None, 400, "colour", "unknown; there are: name"),
        ("GET", "/events?limit=many", None, 400, "limit", "expected a whole number from 1 to 1000"),
        ("GET", f"/events?limit=10{'9' * 5000}", None, 400, "limit", "expected a whole number from 1 to 1000"),
        ("GET", "/events?limit=0000000010009", None, 400, "limit", "expected a whole number from 1 to 1000"),
        ("GET", "/events?limit=\u0663", None, 400, "limit", "expected a whole number from 1 to 1000"),
        ("DELETE", "/users/admin", None, 409, "", "the last administrator"),
        ("GET", "/nothing", None, 404, "", "openapi.json has all of them"),
        ("PUT", "/services", {}, 405, "", "openapi.json has all of them"),
    ],
)
def test_mistakes_name_the_field(
    method: str, path: str, body: Any, code: int, field: str, text: str, tmp_path: Path
) -> None:
    """What is wrong, what it is about, and what was expected; nothing has changed."""

    async def story() -> None:
        with plane(tmp_path, services()) as made:
            before = made.control.head.number
            reply = await made.call(method, path, body)
            error = reply.json()["error"]
            assert (code, field, code) == (reply.status_code, error["field"], error["status"]), error
            assert text in error["message"]
            assert before == made.control.head.number

    run(story)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"{", "the body is not JSON"),
        (b"\xff", "the body is not JSON"),
        (b'{"a":' * 100_000, "the body is not JSON"),
        (b'"' + b"x" * BODY_BYTES, "the body is larger than"),
    ],
)
def test_bodies_that_are_none(content: bytes, text: str, tmp_path: Path) -> None:
    """Not JSON, nested without end, or too large: 400."""

    async def story() -> None:
        with plane(tmp_path) as made:
            reply = await made.call("POST", "/services", content=content)
            assert reply.status_code == 400
            assert text in reply.json()["error"]["message"]

    run(story)


def test_a_change_of_what_was_not_seen_is_refused(tmp_path: Path) -> None:
    """With the ETag of an older state a change is 412; with the present one it is made."""

    async def story() -> None:
        with plane(tmp_path, services()) as made:
            old = (await made.call("GET", "/services/rw")).headers["etag"]
            await made.call("PATCH", "/services/rw", {"duration": "1h"})
            stale = await made.call("PATCH", "/services/rw", {"duration": "2h"}, headers={"If-Match": old})
            assert stale.status_code == 412
            now = (await made.call("GET", "/services/rw")).headers["etag"]
            good = await made.call("PATCH", "/services/rw", {"duration": "2h"}, headers={"If-Match": now})
            assert good.status_code == 200

    run(story)


def test_what_the_fleet_refuses_changes_nothing(tmp_path: Path) -> None:
    """A change that the processes cannot make is not remembered."""

    async def story() -> None:
        with plane(tmp_path, services()) as made:
            before = made.control.head
            made.fleet.refuses = "services.rw.hosts: no such thing"
            reply = await made.call("PATCH", "/services/rw", {"duration": "1h"})
            assert (reply.status_code, reply.json()["error"]["field"]) == (400, "rw.hosts")
            assert made.control.head is before

    run(story)


def test_what_cannot_be_remembered_is_not_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the store fails after the processes have changed, they change back."""

    async def story() -> None:
        with plane(tmp_path, services()) as made:
            before = made.control.head.services

            def fail(*_: Any) -> None:
                raise OSError("the disk is full")

            monkeypatch.setattr(made.control.store, "commit", fail)
            reply = await made.call("PATCH", "/services/rw", {"duration": "1h"})
            assert reply.status_code == 500
            assert made.fleet.served[-1] == before
            assert made.control.head.services == before

    run(story)


def test_changes_follow_one_another(tmp_path: Path) -> None:
    """Fifty at once are fifty revisions, and none undoes another."""

    async def story() -> None:
        with plane(tmp_path) as made:
            bodies = [{"name": f"s{number}", "model": "iris"} for number in range(50)]
            replies = await asyncio.gather(*(made.call("POST", "/services", body) for body in bodies))
            assert {201} == {reply.status_code for reply in replies}
            assert len(made.control.services) == 50
            assert len(made.fleet.served[-1]) == 50

    run(story)


def test_roll_backs_bring_back_no_key(tmp_path: Path) -> None:
    """A key that was taken away opens nothing any more, whatever revision is gone back to."""

    async def story() -> None:
        with plane(tmp_path, services()) as made:
            await made.call("POST", "/services/rw/keys", {"id": "ci"})
            number = made.control.head.number
            await made.call("DELETE", "/services/rw/keys/ci")
            await made.call("DELETE", "/services/ro")
            await made.call("POST", "/rollback", {"revision": number})
            assert "ro" in made.control.services
            assert made.control.services["rw"].keys == ()

    run(story)


def test_a_code_is_shown_once(tmp_path: Path) -> None:
    """When it is made; never in a list, a service, an event or the document."""

    async def story() -> None:
        with plane(tmp_path, services()) as made:
            code = (await made.call("POST", "/services/rw/keys", {"id": "ci"})).json()["code"]
            for path in ("/services/rw/keys", "/services/rw", "/services", "/events", "/revisions"):
                assert code not in (await made.call("GET", path)).text

    run(story)


def test_pages_beside_the_api(tmp_path: Path) -> None:
    """Open on this machine's own address; elsewhere they need a token."""

    async def story() -> None:
        with plane(tmp_path) as made:
            here = {"Host": "127.0.0.1:8081"}
            for page in ("/../../metrics", "/../../statusz", "/../../healthz"):
                assert (await made.call("GET", page, token="", headers=here)).status_code == 200
            made.prepared.app._open_pages = False
            assert (await made.call("GET", "/../../metrics", token="", headers=here)).status_code == 401
            assert (await made.call("GET", "/../../metrics")).status_code == 200
            assert (await made.call("GET", "/../../healthz", token="")).status_code == 200

    run(story)


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1", 200), ("[::1]:8081", 200), ("LocalHost:8081", 200), ("gateway.localhost.", 200),
        ("evil.example:8081", 401), ("127.0.0.1.evil.example", 401), ("localhost.evil.example", 401), ("[", 401),
    ],
)  # fmt: skip
def test_pages_of_this_machine_are_not_shown_under_any_name(tmp_path: Path, host: str, status: int) -> None:
    """A stranger's page whose name leads here (DNS rebinding) reads nothing without a token."""

    async def story() -> None:
        with plane(tmp_path) as made:
            reply = await made.call("GET", "/../../metrics", token="", headers={"Host": host})
            assert reply.status_code == status
            assert (await made.call("GET", "/../../metrics", headers={"Host": host})).status_code == 200

    run(story)


def test_the_document_has_every_endpoint() -> None:
    """OpenAPI 3.1: each path and method under a name of its own, and every reference leads somewhere."""
    told = document(ENDPOINTS)
    assert {(PREFIX + one.path, one.method.lower()) for one in ENDPOINTS} == {
        (path, method) for path, methods in told["paths"].items() for method in methods
    }
    names = [operation["operationId"] for methods in told["paths"].values() for operation in methods.values()]
    assert len(names) == len(set(names))
    references = set(re.findall(r"#/components/schemas/([^\"']+)", str(told)))
    assert references <= told["components"]["schemas"].keys()


def test_the_document_is_openapi(tmp_path: Path) -> None:
    """Programs can be made from it: the validator of the specification finds nothing wrong."""
    with plane(tmp_path) as made:
        reply = run(lambda: made.call("GET", "/openapi.json"))
    validate(reply.json(), cls=OpenAPIV31SpecValidator)


def test_requests_are_seen_by_whom_they_concern(tmp_path: Path) -> None:
    """Members see those of services that they may look at, administrators all; the latest come first."""

    async def story() -> None:
        with plane(tmp_path, {"flowers": {"model": "iris", "owner": "ada"}}) as made:

            async def ids(query: str = "", token: str | None = None) -> list[str]:
                return [one["id"] for one in (await made.call("GET", f"/requests{query}", token=token)).json()]

            assert await ids() == ["id-2", "id-1"]
            assert [await ids(query) for query in ("?limit=1", "?status=4")] == [["id-2"], ["id-1"]]
            assert await ids("?service=flowers&id=id-2") == ["id-2"]
            assert await ids("?service=nothing") == []
            assert await ids(token=made.user("ada")) == ["id-2"]
            assert await ids(token=made.user("bob")) == []

    run(story)

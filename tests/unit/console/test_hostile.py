"""What strangers, other programs' cookies and broken forms send to the console is their mistake, and breaks nothing."""

from pathlib import Path
from typing import Any

import pytest
from console_visitor import Visitor, visitor
from control_plane import plane, run

SERVICES: dict[str, Any] = {
    "flowers": {"model": "iris", "owner": "ada"},
    "asleep": {"model": "iris", "state": "stopped"},
}
BROKEN = [
    ("application/x-www-form-urlencoded", b"a=" + b"x" * (1 << 20)),
    ("application/x-www-form-urlencoded", b"a=1&" * 100_000),
    ("multipart/form-data", b"a=b"),
    (
        "multipart/form-data; boundary=x",
        b'--x\r\nContent-Disposition: form-data; name="a"; filename="f"\r\n\r\nv\r\n--x--',
    ),
    (
        "multipart/form-data; boundary=x; charset=undefined",
        b'--x\r\nContent-Disposition: form-data; name="a"\r\n\r\n1\r\n--x--',
    ),
]


@pytest.mark.parametrize("path", ["/sign-in", "/sign-out", "/settings", "/services/new"])
@pytest.mark.parametrize(("kind", "body"), BROKEN, ids=["large", "fields", "no boundary", "file", "charset"])
def test_a_form_that_cannot_be_read_is_a_mistake(tmp_path: Path, path: str, kind: str, body: bytes) -> None:
    """Whichever page it was sent to, with a session or without."""

    async def story() -> None:
        with plane(tmp_path, SERVICES) as made:
            ours = await visitor(made)
            reply = await ours.client.post(f"/console{path}", content=body, headers={"content-type": kind})
            assert reply.status_code == 400
            assert "the form cannot be read" in reply.text or "Content-Length" in reply.text

    run(story)


@pytest.mark.parametrize("other", ['x={"a": 1}', "a b=c", 'x="un', "[]=1", "path=/; domain"])
def test_cookies_of_other_programs_hide_no_session(tmp_path: Path, other: str) -> None:
    """A browser sends the cookies of every port of a host, and not all of them are as the standard says."""

    async def story() -> None:
        with plane(tmp_path, SERVICES) as made:
            ours = await visitor(made)
            cookie = f"{other}; tensorgate_session={ours.client.cookies['tensorgate_session']}"
            stranger = Visitor(made, cookie=cookie)
            assert (await stranger.get("/services")).status_code == 200

    run(story)


PUBLISHED = {"model": "iris", "version": "1.0.1", "weight": "5", "analysis": "1"}


@pytest.mark.parametrize("number", ["inf", "-inf", "nan", "1e400"])
@pytest.mark.parametrize(
    ("path", "field", "fields"),
    [
        ("/services/flowers/traffic/publish", "analysis.latency_ms", PUBLISHED),
        ("/services/flowers/traffic/publish", "analysis.latency_ratio", PUBLISHED),
        ("/services/flowers/keys", "requests_per_second", {"id": "ci"}),
        ("/services/flowers/scaling/simulate", "scaling.value", {"scaling.metric": "concurrency"}),
    ],
)
def test_only_numbers_that_json_has_are_numbers(
    tmp_path: Path, path: str, field: str, fields: dict[str, str], number: str
) -> None:
    """Nothing can be stored that could not be read again at the next start."""

    async def story() -> None:
        with plane(tmp_path, SERVICES) as made:
            ours = await visitor(made)
            before = made.control.services
            reply = await ours.post(path, **{**fields, field: number})
            assert reply.status_code == 400
            assert before == made.control.services

    run(story)


@pytest.mark.parametrize(
    ("path", "fields", "status"),
    [
        ("/services/asleep/act/start", {"duration": "<b>soon</b>"}, 400),
        ("/services/flowers/scaling/simulate", {"series": "0 concurrency=1\n,"}, 400),
        ("/services/flowers/scaling/simulate", {"series": ", ,\n"}, 400),
    ],
)
def test_odd_fields_are_mistakes(tmp_path: Path, path: str, fields: dict[str, str], status: int) -> None:
    """They are told, and not the gateway's fault."""

    async def story() -> None:
        with plane(tmp_path, SERVICES) as made:
            ours = await visitor(made)
            assert status == (await ours.post(path, **fields)).status_code
            assert (await ours.get("/services?offset=&sort=name")).status_code == 200

    run(story)

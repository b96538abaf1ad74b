"""Who sees what in the console: people, machines, members of a project, other languages, and words that stay words."""

import re
from pathlib import Path

import pytest
from console_visitor import NEW, SERVICES, Visitor, visitor, words
from control_plane import Plane, plane, run

from gateway.control import governing
from gateway.control.machine import Accelerator, Machine
from gateway.fleet import FleetSummary
from gateway.summary import VersionSummary

EVIL = "<img src=x onerror=alert(1)>"


def test_people(tmp_path: Path) -> None:
    """An administrator adds, changes and removes users and hands out tokens; a member has tokens of one's own only."""

    async def story() -> None:
        with plane(tmp_path, SERVICES) as made:
            ours = await visitor(made)
            await ours.post("/people", name="eve", role="member", project="vision")
            shown_once = await ours.post("/people/tokens", user="eve", label="laptop")
            text = re.search(r'class="secret">([^<]+)', shown_once.text)
            assert text is not None
            assert text[1] not in (await ours.get("/people")).text
            eve = await visitor(made, text[1])
            page = (await eve.get("/people")).text
            assert "laptop" in page
            assert "made at the first start" not in page
            assert (await eve.post("/people", name="bob", role="admin")).status_code == 403
            assert (await eve.post("/people/tokens", user="admin")).status_code == 403
            assert (await ours.post("/people", name="eve", role="member")).status_code == 409
            last = await ours.post("/people/users/admin", act="save", role="member")
            assert (last.status_code, "last administrator" in last.text) == (409, True)
            await ours.post("/people/users/eve", act="save", role="member", project="", disabled="1")
            assert made.control.accounts.user("eve").disabled
            assert (await eve.get("/people")).status_code == 303
            await ours.post("/people/users/eve", act="remove")
            assert [user.name for user in made.control.accounts.users()] == ["admin"]

    run(story)


def test_machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who uses which card as card(virtual card):service, who waits for one, and the machines with a kind of card."""
    card = Accelerator(3, "H200", "570.1", 140_000, 9000)
    here = Machine("here", "idle", "Debian", "6.1", 1000, 100, 2, 0.5, (card,))
    summary = FleetSummary(True, False, (VersionSummary("iris", 1, "AVAILABLE", "CUDA"),))

    async def describe() -> FleetSummary:
        return summary

    async def story() -> None:
        waits = {"model": "mnist", "node": {"device": "cuda"}, "nodes": 2}
        with plane(tmp_path, {"flowers": SERVICES["flowers"], "digits": waits}) as made:
            monkeypatch.setattr(governing, "machine", lambda: here)
            monkeypatch.setattr(made.fleet, "describe", describe)
            ours = await visitor(made)
            page = words((await ours.get("/machines")).text)
            assert (
                "here idle Debian 6.1 100/1000 MiB 0.5/2 3: H200, 9000/140000 MiB, 570.1 3(1):flowers , digits" in page
            )
            assert "2 nodes of services that ask for an accelerator wait for one" in page
            assert "here idle" in words((await ours.get("/machines?accelerator=H200")).text)
            assert "here idle" not in words((await ours.get("/machines?accelerator=A100")).text)

    run(story)


OPEN_PAGES = ("/services", "/machines", "/metrics", "/metrics.json", "/events", "/requests", "/people")
OPEN_TABS = ("", "/traffic", "/scaling", "/events")


@pytest.mark.parametrize("path", [*OPEN_PAGES, *(f"/services/flowers{tab}" for tab in OPEN_TABS)])
def test_members_see_their_own(tmp_path: Path, path: str) -> None:
    """A member of the project looks at what is shared, at nothing else, and finds nothing to press there."""

    async def story() -> None:
        with plane(tmp_path, SERVICES) as made:
            bob = await visitor(made, made.user("bob", project="vision"))
            page = await bob.get(path)
            assert page.status_code == 200
            assert "digits" not in page.text
            if path.startswith("/services/flowers"):
                own = page.text.partition("<main")[2].partition("</main>")[0]
                assert "/act/" not in own
                assert "danger" not in own
            for forbidden, status in (("/services/digits", 404), ("/revisions", 403), ("/services/flowers/keys", 403)):
                assert status == (await bob.get(forbidden)).status_code
            assert (await bob.post("/services/flowers/act/stop")).status_code == 403
            assert (await bob.post("/services/flowers/edit", **NEW, act="plan")).status_code == 403

    run(story)


async def evil(made: Plane) -> Visitor:
    table = {"model": "iris", "owner": EVIL, "aliases": [EVIL], "environment": {"X": EVIL}, "reason": EVIL}
    await made.call("POST", "/apply", {"services": {"flowers": table | {"state": "failed"}}, "note": EVIL})
    return await visitor(made)


EVIL_PAGES = (
    "/services", "/services/flowers", "/services/flowers/edit", "/services/flowers/events", "/events", "/revisions",
    f"/services?name={EVIL}", f"/services/{EVIL}", f"/services?said={EVIL}",
)  # fmt: skip


@pytest.mark.parametrize("path", EVIL_PAGES)
def test_words_stay_words(tmp_path: Path, path: str) -> None:
    """Whatever people wrote is shown as they wrote it, and is never part of the page."""

    async def story() -> None:
        with plane(tmp_path, SERVICES) as made:
            page = await (await evil(made)).get(path)
            assert "<img src=x" not in page.text

    run(story)


def test_languages_and_colours(tmp_path: Path) -> None:
    """The browser's language without a choice; a choice is kept, and so is a theme."""

    async def story() -> None:
        with plane(tmp_path, SERVICES) as made:
            ours = await visitor(made, **{"accept-language": "zh-CN,zh;q=0.9"})
            page = (await ours.get("/services")).text
            assert (re.search(r'lang="\w+"', page)[0], "创建服务" in page) == ('lang="zh"', True)  # type: ignore[index]
            await ours.post("/settings", language="en", to="/console/services")
            await ours.post("/settings", theme="dark", to="/console/services")
            page = (await ours.get("/services")).text
            assert "New service" in page
            assert 'data-theme="dark"' in page
            await ours.post("/settings", language="xx", theme="neon")
            assert 'data-theme="dark"' in (await ours.get("/services")).text

    run(story)


def test_what_nobody_foresaw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """A page that breaks says so without its reason, which is in the log, once."""

    async def story() -> None:
        with plane(tmp_path, SERVICES) as made:
            ours = await visitor(made)
            monkeypatch.setattr(made.fleet, "describe", None)
            reply = await ours.get("/services")
            assert (reply.status_code, "the gateway&#39;s log has its reason" in reply.text) == (500, True)
            assert "NoneType" not in reply.text
            assert [one.message for one in caplog.records if one.levelname == "ERROR"] == [
                "GET /console/services failed"
            ]

    run(story)

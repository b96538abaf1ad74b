"""What the pages show and do: the same as the API, with the same errors, for the same people."""

import html
import re
from pathlib import Path
from typing import Any

import pytest
from console_visitor import Visitor, visitor
from control_plane import Plane, plane, run

SERVICES: dict[str, Any] = {
    "flowers": {"model": "iris", "owner": "ada", "project": "vision", "sharing": "ro"},
    "digits": {"model": "mnist", "owner": "ada", "duration": "8h", "canary": {"model": "iris", "weight": 20}},
}
NEW = {
    "name": "fresh", "type": "any", "model": "iris", "model_version": "0", "version": "1.0.0", "aliases": "a, b",
    "sharing": "none", "duration": "8h", "environment": "LEVEL=3\nNAME=x=y", "parameters": "", "node.threads": "2",
    "node.memory_mib": "0", "node.device": "auto", "node.driver": "", "nodes_allowed": "", "mode": "manual",
    "nodes": "1", "app_auth_shown": "1", "limits.requests_per_second": "", "limits.concurrency": "4",
    "limits.queue": "", "limits.deadline_ms": "",
}  # fmt: skip
EVIL = "<img src=x onerror=alert(1)>"


def words(page: str) -> str:
    """What is to be read on a page."""
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", page)).split())


def tags_of(page: str, name: str) -> str:
    """The field's tag."""
    found = re.search(rf'<(?:input|select|textarea)[^>]*name="{re.escape(name)}"[^>]*>', page)
    assert found is not None
    return found[0]


def test_services_are_looked_for(tmp_path: Path) -> None:
    """By name, model and state, as the API looks for them; what the page was asked for stays in its fields."""

    async def story() -> None:
        with plane(tmp_path, SERVICES) as made:
            ours = await visitor(made)
            everything = (await ours.get("/services")).text
            assert "canary: 20 %" in everything
            assert everything.index("/console/services/digits") < everything.index("/console/services/flowers")
            page = (await ours.get("/services?name=FLOW&sort=owner")).text
            assert 'value="FLOW"' in tags_of(page, "name")
            assert "/console/services/flowers" in page
            assert "/console/services/digits" not in page
            assert "No service fits" in (await ours.get("/services?state=failed")).text
            assert (await ours.get("/services?sort=weight")).status_code == 400
            assert (await ours.get("/services?offset=x")).status_code == 400

    run(story)


def test_a_service_is_made_by_form(tmp_path: Path) -> None:
    """The plan comes before it and changes nothing; then it is there as the API makes it."""

    async def story() -> None:
        with plane(tmp_path, SERVICES) as made:
            ours = await visitor(made)
            planned = await ours.post("/services/new", **NEW, act="plan")
            assert planned.status_code == 200
            assert "New: fresh" in words(planned.text)
            assert "limits.concurrency" in planned.text
            assert "fresh" not in made.control.services
            reply = await ours.post("/services/new", **NEW, act="save", app_auth="on")
            assert reply.headers["location"] == "/console/services/fresh?said=created"
            service = made.control.services["fresh"]
            assert (
                service.owner, service.model, service.aliases, service.app_auth,
            ) == ("admin", "iris", ("a", "b"), True)  # fmt: skip
            assert service.environment == {"LEVEL": "3", "NAME": "x=y"}
            assert (service.node.threads, service.limits.concurrency, service.limits.queue) == (2, 4, None)
            assert service.expires_at is not None

    run(story)


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("name", "no spaces", "expected letters, digits"),
        ("name", "flowers", "there is a service 'flowers' already"),
        ("model", "nothing", "there is no model package 'nothing'"),
        ("version", "1.0", "Expected"),
        ("node.threads", "many", "Expected `int`, got `str`"),
        ("nodes", "5000", "Expected `int` <= 1024"),
        ("duration", "soon", "Expected"),
        ("limits.queue", "-1", "Expected `int`"),
    ],
)
def test_a_mistake_stands_at_its_field(tmp_path: Path, field: str, value: str, said: str) -> None:
    """In the API's words, what was typed still there, and nothing made."""

    async def story() -> None:
        with plane(tmp_path, SERVICES) as made:
            ours = await visitor(made)
            reply = await ours.post("/services/new", **{**NEW, field: value}, act="save")
            assert reply.status_code in (400, 409)
            assert "aria-invalid" in tags_of(reply.text, field)
            assert said in html.unescape(reply.text)
            assert f'value="{value}"' in tags_of(reply.text, field)
            assert SERVICES.keys() == made.control.services.keys()

    run(story)


def test_an_edit_that_somebody_was_faster_than(tmp_path: Path) -> None:
    """Is refused, shows what it would change by now, and holds when it is sent again."""

    async def story() -> None:
        with plane(tmp_path, SERVICES) as made:
            ours = await visitor(made)
            page = (await ours.get("/services/flowers/edit")).text
            etag = html.unescape(tags_of(page, "etag")).split('value="')[1].rsplit('"', 1)[0]
            await made.call("PATCH", "/services/flowers", {"nodes": 3})
            edit = {**NEW, "node.threads": "7", "act": "save", "etag": etag}
            refused = await ours.post("/services/flowers/edit", **edit)
            assert refused.status_code == 412
            assert "changed since" in refused.text
            assert "nodes 3 1" in words(refused.text)
            assert made.control.services["flowers"].node.threads == 0
            again = html.unescape(tags_of(refused.text, "etag")).split('value="')[1].rsplit('"', 1)[0]
            assert (await ours.post("/services/flowers/edit", **(edit | {"etag": again}))).status_code == 303
            assert made.control.services["flowers"].node.threads == 7
            assert made.control.services["flowers"].owner == "ada"

    run(story)


def test_a_life_on_the_page(tmp_path: Path) -> None:
    """Stopped with a reason, started with another duration, made to last, deleted; and several at once."""

    async def story() -> None:
        with plane(tmp_path, SERVICES) as made:
            ours, service = await visitor(made), lambda: made.control.services["digits"]
            await ours.post("/services/digits/act/stop", reason="new wiring")
            assert (service().state, service().reason) == ("stopped", "new wiring")
            assert "new wiring" in (await ours.get("/services/digits")).text
            await ours.post("/services/digits/act/start", duration="1h", nodes="2")
            assert (service().state, service().duration, service().nodes) == ("running", "1h", 2)
            await ours.post("/services/digits/act/duration", duration="")
            assert service().expires_at is None
            assert (await ours.post("/services/digits/act/duration", duration="soon")).status_code == 400
            assert (await ours.post("/services/digits/act/dance")).status_code == 404
            await ours.post("/services/several", act="stop", name=["digits", "flowers"])
            assert {"stopped"} == {one.state for one in made.control.services.values()}
            half = await ours.post("/services/several", act="stop", name=["digits"])
            assert (half.status_code, "it is stopped already" in half.text) == (409, True)
            await ours.post("/services/digits/act/delete")
            await ours.post("/services/several", act="delete", name=["flowers"])
            assert made.control.services == {}

    run(story)


def test_traffic(tmp_path: Path) -> None:
    """A canary is published, weighed, analysed, taken over; the shares are told, and what has happened."""

    async def story() -> None:
        with plane(tmp_path, {"flowers": SERVICES["flowers"]}) as made:
            ours, service = await visitor(made), lambda: made.control.services["flowers"]
            await ours.post(
                "/services/flowers/traffic/publish", model="mnist", weight="10", version="1.1.0", nodes="1",
                **{"shadow.percent": "5", "analysis": "1", "analysis.steps": "10, 50", "analysis.window_seconds": "9"},
            )  # fmt: skip
            canary = service().canary
            assert canary is not None
            assert (canary.model, canary.weight, canary.version, canary.shadow.percent) == ("mnist", 10, "1.1.0", 5)
            assert canary.analysis is not None
            assert (canary.analysis.steps, canary.analysis.window_seconds) == ((10, 50), 9.0)
            await ours.post("/services/flowers/traffic/weight", weight="30")
            page = words((await ours.get("/services/flowers/traffic")).text)
            assert "70 % of the requests go to the stable deployment, 30 % to the canary: mnist, version 1.1.0" in page
            assert "the canary of flowers gets 30 %" in page
            wrong = await ours.post("/services/flowers/traffic/weight", weight="130")
            assert (wrong.status_code, "130" in words(wrong.text)) == (400, True)
            await ours.post("/services/flowers/traffic/takeover")
            assert (service().model, service().canary) == ("mnist", None)

    run(story)


def test_keys_are_shown_once(tmp_path: Path) -> None:
    """The code is on the page that made it and on no other; rotated and taken away like by the API."""

    async def story() -> None:
        with plane(tmp_path, SERVICES) as made:
            ours = await visitor(made)
            made_page = await ours.post("/services/flowers/keys", id="ci", label="robots", scope=["infer", "tfserving"])
            code = re.search(r'class="secret">([^<]+)', made_page.text)
            assert code is not None
            later = (await ours.get("/services/flowers/keys")).text
            assert code[1] not in later
            assert "infer, tfserving" in later
            again = await ours.post("/services/flowers/keys", id="ci")
            assert (again.status_code, "alert" in again.text) == (409, True)
            rotated = await ours.post("/services/flowers/keys/ci/rotate", overlap="0s")
            assert 'class="secret"' in rotated.text
            await ours.post("/services/flowers/keys/authentication", app_auth="1")
            assert made.control.services["flowers"].app_auth
            for key in made.control.services["flowers"].keys:
                assert (await ours.post(f"/services/flowers/keys/{key.id}/revoke")).status_code == 303
            assert made.control.services["flowers"].keys == ()

    run(story)


RULE = {
    "mode": "elastic", "scaling.min": "1", "scaling.max": "8", "scaling.window_seconds": "300",
    "scaling.metric": "concurrency", "scaling.value": "4", "scaling.up.max_nodes": "2",
}  # fmt: skip


def test_the_simulator_is_the_rule(tmp_path: Path) -> None:
    """It shows what the API's simulation decides; the rule is saved as shown, and a wrong line is named."""

    async def story() -> None:
        with plane(tmp_path, SERVICES) as made:
            ours = await visitor(made)
            series = "0 concurrency=4\n10 concurrency=40\n20 concurrency=40"
            page = await ours.post("/services/flowers/scaling/simulate", **RULE, nodes="1", series=series)
            expected = (
                await made.call(
                    "POST", "/scaling/simulate",
                    {
                        "scaling": {
                            "min": 1, "max": 8, "window_seconds": 300, "up": {"max_nodes": 2},
                            "expectations": [{"metric": "concurrency", "value": 4}],
                        },
                        "series": [[0, {"concurrency": 4}], [10, {"concurrency": 40}], [20, {"concurrency": 40}]],
                    },
                )
            ).json()  # fmt: skip
            told = words(page.text)
            assert [one["target"] for one in expected] == [1, 3, 5]
            assert all(one["rule"] in told for one in expected)
            wrong = await ours.post("/services/flowers/scaling/simulate", **RULE, series="0 concurrency=4\n10 many")
            assert (wrong.status_code, "line 2: expected SECONDS" in words(wrong.text)) == (400, True)
            await ours.post("/services/flowers/scaling", **RULE)
            scaling = made.control.services["flowers"].scaling
            assert scaling is not None
            assert (scaling.max, scaling.up.max_nodes) == (8, 2)
            await ours.post("/services/flowers/scaling", mode="manual", nodes="3")
            assert (made.control.services["flowers"].scaling, made.control.services["flowers"].nodes) == (None, 3)

    run(story)


def test_the_way_back(tmp_path: Path) -> None:
    """A revision shows what has changed since, and one form leads back to it."""

    async def story() -> None:
        with plane(tmp_path, SERVICES) as made:
            ours = await visitor(made)
            before = made.control.head.number
            await made.call("PATCH", "/services/flowers", {"nodes": 5})
            assert "nodes 1 5" in words((await ours.get(f"/revisions/{before}")).text)
            await ours.post(f"/revisions/{before}/rollback")
            assert made.control.services["flowers"].nodes == 1
            assert (await ours.get("/revisions/999")).status_code == 404

    run(story)


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
            last = await ours.post("/people/admin", act="save", role="member")
            assert (last.status_code, "last administrator" in last.text) == (409, True)
            await ours.post("/people/eve", act="save", role="member", project="", disabled="1")
            assert made.control.accounts.user("eve").disabled
            assert (await eve.get("/people")).status_code == 303
            await ours.post("/people/eve", act="remove")
            assert [user.name for user in made.control.accounts.users()] == ["admin"]

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

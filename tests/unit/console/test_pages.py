"""What the pages show and do: the same as the API, with the same errors, for the same people."""

import html
import re
from pathlib import Path
from typing import Any

import pytest
from console_visitor import NEW, SERVICES, visitor, words
from control_plane import plane, run


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


STATES: dict[str, Any] = {
    "halted": {"canary": {"halted": "20 % errors, over 1 %", "analysis": {}, "shadow": {"percent": 3}}},
    "failed": {"state": "failed", "reason": "no memory"},
    "expired": {"state": "expired", "duration": "1h"},
    "elastic": {"scaling": {"min": 0, "max": 3}, "nodes_allowed": ["here"], "limits": {"queue": 3}},
    "custom": {"model": "server", "type": "custom", "parameters": {"depth": 2, "name": "x"}},
}
TABS = ("", "/edit", "/traffic", "/scaling", "/keys", "/events", "/test")


@pytest.mark.parametrize("name", STATES)
def test_odd_services_have_all_their_pages(tmp_path: Path, name: str) -> None:
    """Whatever a service is and however it stands, every tab shows it; why a canary was halted is read there."""

    async def story() -> None:
        with plane(tmp_path, {name: {"model": "iris", **STATES[name]}}) as made:
            ours = await visitor(made)
            pages = {tab: await ours.get(f"/services/{name}{tab}") for tab in TABS}
            assert dict.fromkeys(TABS, 200) == {tab: page.status_code for tab, page in pages.items()}
            assert (await ours.get("/services")).status_code == 200
            if name == "halted":
                assert "has taken its requests away: 20 % errors, over 1 %" in words(pages["/traffic"].text)
            if name == "failed":
                assert "no memory" in pages[""].text

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

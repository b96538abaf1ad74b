"""The console in a browser: what is pressed happens at the gateway, and what happens there is seen."""

import re
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from controlled import Platform
from looks import FAINT, UNNAMED
from playwright.sync_api import Page, expect
from visits import Visit, until

SignedIn = Callable[..., Visit]
BODY = {"instances": [[5.1, 3.5, 1.4, 0.2]]}
TRAP = "<img src=x onerror=alert(1)>"
TRANSFER_BYTES = 300 * 1024


def agree(page: Page) -> None:
    """Say yes to what the page asks before it acts."""
    expect(page.locator("#question")).to_be_visible()
    page.click("#question button[value=yes]")


def test_sign_in(platform: Platform, browse: Callable[..., Visit]) -> None:
    """A wrong token is told so, the right one leads to the page that was asked for, and signing out ends it."""
    visit = browse()
    visit.expect("status of 401")
    page = visit.go("/console/events")
    page.fill("#token", "tgc_wrong")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_have_text("the token is not valid")
    page.fill("#token", platform.admin.token)
    page.keyboard.press("Enter")
    page.wait_for_url("**/console/events")
    assert "tgc_" not in page.url
    kept = page.evaluate("document.cookie + JSON.stringify({...localStorage, ...sessionStorage})")
    assert platform.admin.token not in kept
    assert "tensorgate_session" not in kept
    page.get_by_role("button", name="Sign out").click()
    page.wait_for_url("**/console/sign-in")
    visit.go("/console/services")
    assert "/console/sign-in" in page.url


def test_made_called_and_gone(platform: Platform, signed_in: SignedIn) -> None:
    """A mistake stands at its field; then the service answers each protocol; stopped ones say so, gone ones too."""
    visit = signed_in()
    visit.expect("status of 400")
    page = visit.go("/console/services/new")
    page.fill("#f-name", "made-here")
    page.fill("#f-model", "nothing")
    page.click("button[value=save]")
    expect(page.locator("#f-model")).to_have_attribute("aria-invalid", "true")
    expect(page.locator("#wrong-model")).to_contain_text("there is no model package 'nothing'")
    page.fill("#f-model", "iris")
    page.click("button[value=plan]")
    expect(page.locator(".planned")).to_contain_text("New: made-here")
    page.click("button[value=save]")
    page.wait_for_url("**/console/services/made-here?said=created")
    address = f"{platform.live.url}/services/made-here"
    assert httpx.post(f"{address}/v1/models:predict", json=BODY).status_code == 200
    seldon = {"data": {"ndarray": BODY["instances"]}}
    assert httpx.post(f"{address}/api/v1.0/predictions", json=seldon).status_code == 200
    csv = {"content-type": "text/csv"}
    assert httpx.post(f"{address}/invocations", content="5.1,3.5,1.4,0.2", headers=csv).status_code == 200
    page.fill("#reason", "for a look")
    page.get_by_role("button", name="Stop", exact=True).click()
    agree(page)
    expect(page.locator(".state").first).to_have_text("stopped")
    assert httpx.post(f"{address}/v1/models:predict", json=BODY).status_code == 503
    page.get_by_role("button", name="Delete").click()
    expect(page.locator("#question")).to_be_visible()
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Delete").click()
    agree(page)
    page.wait_for_url("**/console/services?said=deleted")
    assert httpx.post(f"{address}/v1/models:predict", json=BODY).status_code == 404


def test_the_list(platform: Platform, signed_in: SignedIn) -> None:
    """Sorted by expiry, the endless and the stopped last; searched while typing; several are stopped when agreed."""
    for name, duration in {"sort-b": "9h", "sort-a": "1h", "sort-c": "", "sort-d": ""}.items():
        platform.have(name, model="iris", duration=duration)
    platform.admin("POST", "/services/sort-d/stop", {})
    page = signed_in().go("/console/services?sort=expires")
    page.fill("[name=name][type=search]", "sort-")
    expect(page.locator("#live tbody tr")).to_have_count(4)
    names = page.locator("#live tbody tr td:nth-child(2)")
    assert names.all_inner_texts() == ["sort-a", "sort-b", "sort-c", "sort-d"]
    expiry = page.locator("#live tbody tr td:last-child").all_inner_texts()
    assert expiry[2:] == ["unlimited", "–"]
    page.check("[aria-label='Choose sort-a']")
    page.check("[aria-label='Choose sort-c']")
    page.click("button[value=stop]")
    expect(page.locator("#question")).to_contain_text("Stop the chosen services?")
    assert platform.admin("GET", "/services/sort-a")["state"] == "running"
    agree(page)
    page.wait_for_url("**said=stop.several")
    assert [platform.admin("GET", f"/services/sort-{one}")["state"] for one in "abc"] == [
        "stopped",
        "running",
        "stopped",
    ]


def test_the_list_is_alive(platform: Platform, signed_in: SignedIn) -> None:
    """It tells how many requests a second each service answers, how fast, and how many of them are errors."""
    platform.have("lively", model="iris")
    page = signed_in().go("/console/services?name=lively")
    call = f"{platform.live.url}/services/lively/v1/models:predict"
    cells = page.locator("#live tbody tr").first.locator(".number")
    expect(cells.first).to_have_text("0.0", timeout=8000)
    deadline = time.monotonic() + 15
    with httpx.Client() as client:
        while cells.nth(2).inner_text() != "50" and time.monotonic() < deadline:
            client.post(call, json=BODY)
            client.post(call, json={})
    assert cells.nth(2).inner_text() == "50"
    assert float(cells.nth(0).inner_text()) > 0
    assert float(cells.nth(1).inner_text()) > 0


def test_two_windows(platform: Platform, signed_in: SignedIn) -> None:
    """What is changed in one window is seen in another at once."""
    platform.have("twofold", model="iris")
    page = signed_in().go("/console/services?name=twofold")
    platform.admin("POST", "/services/twofold/stop", {})
    expect(page.locator("#live .state")).to_have_text("stopped", timeout=6000)


def test_the_slider(platform: Platform, signed_in: SignedIn) -> None:
    """By keyboard to 30: of a thousand requests three hundred go to the canary; a header wins; then it takes over."""
    platform.have("sliding", model="iris", canary={"model": "iris", "weight": 20, "version": "1.0.1"})
    page = signed_in().go("/console/services/sliding/traffic")
    page.focus("#weight")
    for _ in range(10):
        page.keyboard.press("ArrowRight")
    expect(page.locator("#weight-now")).to_have_text("30 %")
    page.get_by_role("button", name="Change the share").click()
    page.wait_for_url("**said=weighed")
    assert platform.admin("GET", "/services/sliding")["config"]["canary"]["weight"] == 30
    with httpx.Client() as client:
        call = f"{platform.live.url}/services/sliding/v1/models:predict"

        def variant(headers: dict[str, str]) -> str:
            return client.post(call, json=BODY, headers=headers).headers["x-tensorgate-variant"]

        with ThreadPoolExecutor(4) as pool:
            told = list(pool.map(variant, [{}] * 1000))
        assert abs(told.count("canary") - 300) <= 1
        assert {"canary"} == {variant({"Canary": "Always"}) for _ in range(5)}
        assert {"stable"} == {variant({"Canary": "Never"}) for _ in range(5)}
    until(page, "document.querySelector('.chart .u-legend')?.textContent.includes('sliding/canary')")
    page.get_by_role("button", name="Let it take over").click()
    agree(page)
    page.wait_for_url("**said=taken_over")
    expect(page.locator("main")).to_contain_text("All requests go to one deployment")


def test_the_simulator(platform: Platform, signed_in: SignedIn) -> None:
    """Shows what the rule decides for the example, as a table and as a chart."""
    platform.have("scaled", model="iris")
    page = signed_in().go("/console/services/scaled/scaling")
    page.check("input[value=elastic]")
    page.fill("[name='scaling.max']", "8")
    page.fill("[name='scaling.up.max_nodes']", "2")
    page.fill("#series", "0 concurrency=4\n10 concurrency=40\n20 concurrency=40\n30 concurrency=40")
    page.get_by_role("button", name="Simulate").click()
    expect(page.locator("input[value=elastic]")).to_be_checked()
    expect(page.locator("[name='scaling.max']")).to_have_value("8")
    expect(page.locator("#live")).to_contain_text("Nothing has been decided yet.")
    targets = page.locator("#simulated tbody td:nth-child(5)")
    assert targets.all_inner_texts() == ["1", "3", "5", "7"]
    expect(page.locator("#simulated .chart canvas")).to_be_visible()


def test_keys(platform: Platform, signed_in: SignedIn) -> None:
    """A key's code is shown once; required from the next request on; taken away, it opens nothing from the next on."""
    platform.have("guarded", model="iris")
    call = f"{platform.live.url}/services/guarded/v1/models:predict"
    page = signed_in().go("/console/services/guarded/keys")
    page.fill("#f-id", "ci")
    page.get_by_role("button", name="Make a key").click()
    code = page.inner_text(".secret")
    expect(page.locator("#f-id")).to_have_value("")
    page.get_by_role("button", name="Require a key").click()
    page.wait_for_url("**said=edited")
    key = {"Authorization": f"APPCODE {code}"}
    assert [httpx.post(call, json=BODY, headers=one).status_code for one in ({}, key)] == [401, 200]
    assert code not in page.content()
    page.get_by_role("button", name="Take away").click()
    agree(page)
    page.wait_for_url("**said=revoked")
    assert httpx.post(call, json=BODY, headers=key).status_code == 401


def test_charts(platform: Platform, signed_in: SignedIn) -> None:
    """They grow while the page is open, and name each service."""
    platform.have("charted", model="iris")
    page = signed_in().go("/console/metrics")
    httpx.post(f"{platform.live.url}/services/charted/v1/models:predict", json=BODY)
    until(page, "document.querySelectorAll('.chart canvas').length === 5")
    until(page, "document.querySelector('[data-chart=requests] .u-legend').textContent.includes('charted')")


def test_requests(platform: Platform, signed_in: SignedIn) -> None:
    """The latest calls are listed as they come, and found by service, status and id."""
    platform.have("tailed", model="iris")
    page = signed_in().go("/console/requests?service=tailed")
    expect(page.locator("#live")).to_contain_text("No request fits")
    call = f"{platform.live.url}/services/tailed/v1/models:predict"
    httpx.post(call, json=BODY)
    request_id = httpx.post(call, json={"instances": "wrong"}).headers["x-request-id"]
    expect(page.locator("#live tbody tr")).to_have_count(2, timeout=6000)
    assert page.inner_text("#live tbody tr:first-child td:nth-child(2)") == "400"
    page.fill("[name=status]", "2")
    expect(page.locator("#live tbody tr")).to_have_count(1)
    page.fill("[name=status]", "")
    page.fill("[name=id]", request_id)
    expect(page.locator("#live tbody tr td:nth-child(2)")).to_have_text("400")


PAGES = (
    "/console/services", "/console/services/new", "/console/services/seen", "/console/services/seen/edit",
    "/console/services/seen/traffic", "/console/services/seen/scaling", "/console/services/seen/keys",
    "/console/services/seen/events", "/console/machines", "/console/metrics", "/console/requests", "/console/events",
    "/console/people", "/console/revisions",
    "/console/revisions/1",
)  # fmt: skip


@pytest.mark.parametrize(
    ("locale", "scheme", "width"),
    [("en-GB", "light", 1280), ("zh-CN", "dark", 390), ("en-GB", "dark", 390), ("zh-CN", "light", 1280)],
)
def test_every_page(platform: Platform, signed_in: SignedIn, locale: str, scheme: str, width: int) -> None:
    """Every control has a name, every text can be told from its ground, nothing is wider than the screen or heavy."""
    fields: dict[str, Any] = {"aliases": [TRAP], "environment": {"X": TRAP}, "duration": "8h"}
    platform.have("seen", model="iris", canary={"model": "iris", "weight": 20}, **fields)
    visit = signed_in(locale=locale, color_scheme=scheme, viewport={"width": width, "height": 800})
    for path in PAGES:
        page = visit.go(path)
        assert page.evaluate(UNNAMED) == [], path
        assert page.evaluate(FAINT) == [], path
        assert page.evaluate("document.documentElement.scrollWidth - window.innerWidth") <= 0, path
        moved = "performance.getEntries().reduce((sum, one) => sum + (one.transferSize ?? 0), 0)"
        assert page.evaluate(moved) < TRANSFER_BYTES, path
        picture = page.screenshot()
        assert picture.startswith(b"\x89PNG")
        assert locale[:2] == page.get_attribute("html", "lang")


def test_by_keyboard(signed_in: SignedIn) -> None:
    """The first stop of the tabulator skips the frame; every page is reached and left without a mouse."""
    page = signed_in().go("/console/services")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    for _ in range(3):
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("/console/(services|machines)$"))


def test_without_scripts(platform: Platform, signed_in: SignedIn) -> None:
    """Lists, details and forms work in a browser that runs no scripts."""
    platform.have("plain", model="iris")
    page = signed_in(java_script_enabled=False).go("/console/services?name=plain")
    page.get_by_role("link", name="plain").click()
    expect(page.locator("h1")).to_have_text("plain")
    page.fill("#duration", "3h")
    page.get_by_role("button", name="Change").click()
    page.wait_for_url("**said=lasting")
    assert platform.admin("GET", "/services/plain")["config"]["duration"] == "3h"

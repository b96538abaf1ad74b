"""The online test with tensors: what is sent by each protocol, what is shown of the answer, and the call as code."""

import json
import re
from collections.abc import Callable

import pytest
from controlled import Platform
from playwright.sync_api import Page, expect
from visits import Visit

TryOut = Callable[..., Visit]
TRAP = "<img src=x onerror=alert(1)>"


def send(page: Page) -> str:
    """Press Send, and return what is shown of the answer."""
    page.locator("#tensor-result").evaluate("place => place.replaceChildren()")
    page.click("#tensor-send")
    expect(page.locator("#tensor-result .verdict")).to_be_visible()
    return page.inner_text("#tensor-result")


def cells(page: Page, row: int) -> list[str]:
    return page.locator("#tensor-result table.results tbody tr").nth(row).locator("td").all_inner_texts()


@pytest.mark.parametrize("protocol", ["tfserving", "seldon", "v2", "sagemaker"])
def test_each_protocol(try_out: TryOut, protocol: str) -> None:
    """The form's numbers reach the model by each protocol, and the table says where the greatest score is."""
    page = try_out("tensors", model="iris").page
    page.fill("#input-features", "[[5.1, 3.5, 1.4, 0.2]]")
    page.select_option("#tensor-protocol", protocol)
    told = send(page)
    assert told.startswith("200")
    assert "version 1" in told
    assert cells(page, 0)[-1] == "setosa"
    name, row, shape, least, most, argmax, _ = cells(page, 1)
    assert [name, row, shape, argmax] == ["scores", "0", "[3]", "0"]
    assert float(most) == pytest.approx(0.98470, rel=1e-4)
    assert float(least) == pytest.approx(6.2038e-8, rel=1e-4)


def test_how_long_it_took(try_out: TryOut) -> None:
    """Each stage in the gateway, their sum, and the whole way, are shown; so are headers and the raw answer."""
    page = try_out("tensors", model="iris").page
    send(page)
    shown = page.locator("#tensor-result table.timing th").all_text_contents()
    assert {"receive", "decode", "run", "encode"} <= set(shown)
    pre = page.locator("#tensor-result pre").all_text_contents()
    assert json.loads(pre[0])["predictions"]
    assert "x-tensorgate-version: 1" in pre[1]


def test_the_servers_reason(try_out: TryOut) -> None:
    """A body that the model does not take is answered with the server's own words; what is no JSON is told at once."""
    visit = try_out("tensors", model="iris")
    visit.expect("status of 400")
    page = visit.page
    page.fill("#tensor-body", '{"instances": [[1, 2]]}')
    assert "shape" in send(page)
    page.fill("#input-features", "[[1,")
    expect(page.locator("#tensor-problem")).to_contain_text("features")


def test_stable_or_canary(try_out: TryOut, platform: Platform) -> None:
    """The choice is sent, and the answer tells who gave it."""
    visit = try_out("split", model="iris", canary={"model": "iris", "weight": 0})
    page = visit.page
    for choice, variant in (("Always", "canary"), ("Never", "stable"), ("", "stable")):
        page.select_option("#variant", choice)
        assert variant in send(page).splitlines()[0]


def test_history(try_out: TryOut) -> None:
    """Calls are still listed after a reload, newest first and 50 at most; one click brings one back."""
    page = try_out("remembered", model="iris").page
    old = [{"mode": "tensor", "label": "old", "outcome": "200", "state": None, "when": 0}] * 49
    page.evaluate("old => localStorage.setItem('tensorgate.test.remembered', JSON.stringify(old))", old)
    for number in range(3):
        page.fill("#tensor-body", json.dumps({"instances": [[number, 0, 0, 0]]}))
        send(page)
    page.reload()
    page.click(".past summary")
    entries = page.locator("#history button")
    expect(entries).to_have_count(50)
    expect(entries.first).to_have_text('{"instances": [[2, 0, 0, 0]]}')
    entries.nth(1).click()
    assert json.loads(page.input_value("#tensor-body")) == {"instances": [[1, 0, 0, 0]]}
    page.click("#history-clear")
    expect(entries).to_have_count(0)


def test_numbers_stay_exact(try_out: TryOut) -> None:
    """Integers that JavaScript's numbers cannot hold go and come back as they are; what is no number is shown so."""
    page = try_out("exact", model="exact").page
    page.fill("#input-x", "[[9007199254740993, -9223372036854775808]]")
    assert json.loads(page.input_value("#tensor-body")) == {"instances": [[9007199254740993, -9223372036854775808]]}
    send(page)
    assert cells(page, 0)[-1] == "[9007199254740993, -9223372036854775808]"
    page = try_out("floats", model="echo").page
    page.fill("#tensor-body", '{"instances": [[NaN, 1.0]]}')
    send(page)
    assert cells(page, 0)[-1] == '["NaN", 1]'


def test_signed_out(try_out: TryOut) -> None:
    """Who has signed out in another tab is told so, not what programs are told."""
    visit = try_out("tensors", model="iris")
    visit.expect("status of 401")
    visit.context.clear_cookies()
    assert "signed out" in send(visit.page)


def test_who_may_only_look(try_out: TryOut, platform: Platform) -> None:
    """A colleague with whom a service is shared for reading may try it; for others there is no such page."""
    platform.have("shared", model="iris", project="lab", sharing="ro")
    for name, project, code in (("col", "lab", 200), ("far", "away", 404)):
        platform.admin("POST", "/users", {"name": name, "role": "member", "project": project}, 201)
        token = platform.admin("POST", f"/users/{name}/tokens", {"label": "t"}, 201)["text"]
        visit = try_out("tensors", model="iris")
        visit.expect("status of 404")
        visit.context.clear_cookies()
        page = visit.go("/console/sign-in")
        page.fill("input[name=token]", token)
        page.press("input[name=token]", "Enter")
        page.wait_for_url("**/console/services")
        reply = page.goto(f"{visit.url}/console/services/shared/test")
        assert reply is not None
        assert reply.status == code
        if code == 200:
            assert send(page).startswith("200")


def test_by_keyboard(try_out: TryOut) -> None:
    """Arrow keys go through the forms, Control and Enter send."""
    page = try_out("tensors", model="iris").page
    page.focus("#tab-tensor")
    page.keyboard.press("ArrowRight")
    expect(page.locator("#mode-image")).to_be_visible()
    expect(page.locator("#tab-image")).to_be_focused()
    page.keyboard.press("ArrowLeft")
    page.focus("#tensor-body")
    page.keyboard.press("Control+Enter")
    expect(page.locator("#tensor-result .verdict")).to_contain_text("200")


def test_texts_stay_texts(try_out: TryOut) -> None:
    """What a model answers is never markup: not in the table, not in the raw answer, not in the history."""
    page = try_out("finder", model="finder").page
    page.select_option("#tensor-protocol", "seldon")
    page.fill("#tensor-body", json.dumps({"strData": "text", "meta": {"puid": TRAP}}))
    assert TRAP in send(page)
    page.click(".past summary")
    assert page.locator("main img, main script").count() == page.locator("#image-preview, #paint-picture").count()


def test_any_path(try_out: TryOut) -> None:
    """A call of any method and path is sent as it is written."""
    page = try_out("tensors", model="iris").page
    page.select_option("#tensor-protocol", "http")
    page.select_option("#tensor-method", "GET")
    page.fill("#tensor-path", "/v2/health/ready")
    assert re.match(r"200", send(page))

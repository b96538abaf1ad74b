"""The online test with text to image: how far it is, the picture, and that leaving ends the work."""

from collections.abc import Callable

from controlled import Platform
from live import becomes
from playwright.sync_api import expect
from visits import Visit, until

TryOut = Callable[..., Visit]
IN_FLIGHT = "tensorgate_requests_in_flight"
WATCH = """() => {
    window.parts = [];
    const part = document.getElementById("paint-part");
    new MutationObserver(() => window.parts.push(parseInt(part.textContent))).observe(part, { childList: true });
}"""


def paint(try_out: TryOut, step: int, **fields: str) -> Visit:
    """Have a picture painted with so many steps."""
    visit = try_out("brush", model="painter")
    page = visit.page
    page.evaluate(WATCH)
    for name, value in {"prompt": "a red seven", "step": str(step), **fields}.items():
        page.fill(f"#paint-{name}", value)
    page.click("#paint-send")
    return visit


def test_a_picture_comes(try_out: TryOut) -> None:
    """Progress goes up to the end, and the picture has the size that was asked for; all messages are listed."""
    page = paint(try_out, 8, width="64", height="48").page
    expect(page.locator("#paint-picture")).to_be_visible(timeout=30_000)
    size = page.locator("#paint-picture").evaluate("image => [image.naturalWidth, image.naturalHeight]")
    assert size == [64, 48]
    parts = page.evaluate("window.parts")
    assert parts == sorted(parts)
    assert len(set(parts)) > 4
    assert parts[-1] == 100
    log = page.locator("#paint-log").text_content() or ""
    assert '← {"type":"status","message":"start"}' in log
    assert '← {"type":"output","message":"iVBORw0KGgo' in log


def test_stop(try_out: TryOut, platform: Platform) -> None:
    """Stop ends the work within a step, and says so."""
    page = paint(try_out, 150, width="256", height="256").page
    until(page, "window.parts.length > 2")
    page.click("#paint-stop")
    expect(page.locator("#paint-result .note")).to_be_visible()
    expect(page.locator("#paint-send")).to_be_enabled()
    assert becomes(lambda: platform.metric(IN_FLIGHT) == 0, 3)


def test_closing_the_tab_cancels(try_out: TryOut, platform: Platform) -> None:
    """Nobody goes on painting for a tab that is gone."""
    page = paint(try_out, 150, width="256", height="256").page
    until(page, "window.parts.length > 2")
    assert platform.metric(IN_FLIGHT) > 0
    page.close()
    assert becomes(lambda: platform.metric(IN_FLIGHT) == 0, 3)


def test_the_servers_reason(try_out: TryOut) -> None:
    """A field that is out of bounds is named; and what no websocket can be opened for says why."""
    visit = paint(try_out, 8, width="9999")
    expect(visit.page.locator("#paint-result .bad")).to_contain_text("width")

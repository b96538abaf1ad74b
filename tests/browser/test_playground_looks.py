"""How the online test looks: in both languages and themes, on a wide screen and on a phone; nothing is unnamed."""

from collections.abc import Callable

import pytest
from playwright.sync_api import expect
from visits import Visit

TryOut = Callable[..., Visit]
MODES = ("tensor", "image", "chat", "paint")

UNNAMED = """() => [...document.querySelectorAll(
        "input, select, textarea, button, [role=tab], [role=log], summary, progress, img")]
    .filter(one => one.checkVisibility())
    .filter(one => !(one.labels?.length || one.getAttribute("aria-label") || one.getAttribute("aria-labelledby")
        || one.textContent.trim() || one.hasAttribute("alt")))
    .map(one => one.outerHTML.slice(0, 200))"""

FAINT = """() => {
    const parts = text => text.match(/[\\d.]+/g).map(Number);
    const light = ([r, g, b]) => [r, g, b].map(one => one / 255)
        .map(one => one <= 0.03928 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4)
        .reduce((sum, one, at) => sum + one * [0.2126, 0.7152, 0.0722][at], 0);
    const behind = node => {
        for (let at = node; at; at = at.parentElement) {
            const [r, g, b, a = 1] = parts(getComputedStyle(at).backgroundColor);
            if (a > 0.5) return [r, g, b];
        }
        return [255, 255, 255];
    };
    return [...document.querySelectorAll("main *")]
        .filter(one => one.checkVisibility() && !one.disabled && !one.closest("svg"))
        .filter(one => [...one.childNodes].some(child => child.nodeType === 3 && child.textContent.trim()))
        .map(one => [one, light(parts(getComputedStyle(one).color)), light(behind(one))])
        .filter(([, a, b]) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05) < 4.5)
        .map(([one]) => one.outerHTML.slice(0, 120));
}"""


@pytest.mark.parametrize(
    ("locale", "scheme", "width"),
    [("en-GB", "light", 1280), ("zh-CN", "dark", 390), ("en-GB", "dark", 390), ("zh-CN", "light", 1280)],
)
def test_every_form(try_out: TryOut, locale: str, scheme: str, width: int) -> None:
    """Every control has a name, every text can be told from its ground, and nothing is wider than the screen."""
    options = {"locale": locale, "color_scheme": scheme, "viewport": {"width": width, "height": 800}}
    visit = try_out("chatty", options, model="tinychat")
    page = visit.page
    for mode in MODES:
        page.click(f"#tab-{mode}")
        assert page.evaluate(UNNAMED) == []
        assert page.evaluate(FAINT) == []
        assert page.evaluate("document.documentElement.scrollWidth - window.innerWidth") <= 0
        assert "test." not in page.inner_text("#test")
    page.click("#tab-chat")
    page.fill("#chat-text", "2 + 3 =")
    page.click("#chat-send")
    expect(page.locator("#chat-log .figures")).to_be_visible()
    page.click("#chat-curl")
    assert page.evaluate(FAINT) == []
    assert page.evaluate("document.documentElement.scrollWidth - window.innerWidth") <= 0
    assert page.locator("html").get_attribute("lang") == locale[:2]

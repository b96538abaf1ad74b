"""How the online test looks: in both languages and themes, on a wide screen and on a phone; nothing is unnamed."""

from collections.abc import Callable

import pytest
from looks import FAINT, UNNAMED
from playwright.sync_api import expect
from visits import Visit

TryOut = Callable[..., Visit]
MODES = ("tensor", "image", "chat", "paint")


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

"""What the browser tests stand on: the browser itself, and that it tells of what goes wrong on a page."""

from collections.abc import Callable

import pytest
from live import becomes
from visits import Visit

FAULTS = {
    "console.error('no')": "error: no",
    "setTimeout(() => { throw new Error('lost') })": "an exception: lost",
    "fetch('http://127.0.0.1:9/far').catch(() => 0)": "a call to http://127.0.0.1:9/far",
    "alert('ha')": "a dialog: ha",
    "new WebSocket('ws://127.0.0.1:9/far')": "a call to ws://127.0.0.1:9/far",
}


def test_a_page_of_the_gateway(browse: Callable[..., Visit]) -> None:
    """The browser shows a page of the admin listener, and its visit has nothing to complain of but the icon."""
    visit = browse()
    visit.expect("favicon.ico")
    assert visit.go("/healthz").inner_text("body").strip() == "ok"


@pytest.mark.parametrize(("script", "complaint"), FAULTS.items())
def test_faults_are_seen(browse: Callable[..., Visit], script: str, complaint: str) -> None:
    """Whatever a page does that it must not, its visit tells of."""
    visit = browse()
    page = visit.go("/healthz")
    visit.expect("")
    page.evaluate(script)

    def told() -> bool:
        page.evaluate("1")  # Playwright hands out events only while it is asked something
        return any(one.startswith(complaint) for one in visit.complaints)

    assert becomes(told, 5), visit.complaints

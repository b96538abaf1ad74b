"""A real browser on a page: what it complains of, and whom it calls, is looked at when the visit is over."""

import contextlib
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from live import becomes
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Playwright, Request, sync_playwright

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
"""The first because tests run as root in containers, where Chromium's own sandbox cannot be had."""
WAIT_MS = 10_000
"""How long anything may take to appear."""


class Chromium:
    """One browser for all tests, started by the first that needs it.

    NOTE: while it runs, Playwright's event loop counts as this thread's running one, in which no other test may say
    `asyncio.run`; so the last browser test of the run stops it.
    """

    def __init__(self) -> None:
        self._playwright: Playwright | None = None
        self._browser: Browser | None = None

    def browser(self) -> Browser:
        """It, running. Skips the test where there is none."""
        if self._browser is None:
            program = next(filter(_runs, PROGRAMS), None)
            if program is None:
                pytest.skip("there is no Chromium; scripts/setup test installs it")
            self._playwright = sync_playwright().start()
            self._browser = self._playwright.chromium.launch(executable_path=shutil.which(program), args=ARGUMENTS)
        return self._browser

    def stop(self) -> None:
        """End it; the next test that needs one starts another."""
        if self._browser is not None:
            self._browser.close()
        if self._playwright is not None:
            self._playwright.stop()
        self._browser = self._playwright = None


def _runs(program: str) -> bool:
    """Whether it is there; Ubuntu has something of that name which only says where to get it."""
    found = shutil.which(program)
    return found is not None and subprocess.run([found, "--version"], capture_output=True, check=False).returncode == 0


class Visit:
    """A browser context of its own: cookies, storage, and a page that is watched."""

    def __init__(self, context: BrowserContext, url: str) -> None:
        self.context = context
        self.url = url
        """The gateway's listener that it visits, without a slash at the end."""
        self.complaints: list[str] = []
        """Of the page: errors on the console, exceptions, dialogs, calls to other hosts."""
        self._expected: list[str] = []
        context.set_default_timeout(WAIT_MS)
        context.on("request", self._look)
        context.on("page", self._watch)
        self.page = context.new_page()

    def go(self, path: str) -> Page:
        """Open that path of the gateway."""
        self.page.goto(f"{self.url}{path}")
        return self.page

    def expect(self, *texts: str) -> None:
        """The page may complain with these words in it: Chromium's console tells of every answer that is an error."""
        self._expected += texts

    def check(self) -> None:
        """Fail if the page has complained of anything else."""
        found = [one for one in self.complaints if not any(text in one for text in self._expected)]
        assert found == []

    def _look(self, request: Request) -> None:
        parts = urlsplit(request.url)
        if parts.scheme in ("http", "https", "ws", "wss") and parts.netloc != urlsplit(self.url).netloc:
            self.complaints.append(f"a call to {request.url}")

    def _watch(self, page: Page) -> None:
        page.on("console", self._hear)
        page.on("pageerror", lambda error: self.complaints.append(f"an exception: {error}"))
        page.on("websocket", lambda socket: self._look(socket))

        def refuse(dialog: Any) -> None:
            self.complaints.append(f"a dialog: {dialog.message}")
            dialog.dismiss()

        page.on("dialog", refuse)

    def _hear(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(f"{message.type}: {message.text} ({message.location['url']})")


@contextlib.contextmanager
def visit(browser: Browser, url: str, **options: Any) -> Iterator[Visit]:
    """Visit a gateway with a browser that knows nothing yet; `options` are Playwright's for a context."""
    context = browser.new_context(**options)
    try:
        one = Visit(context, url)
        yield one
        one.check()
    finally:
        context.close()


def until(page: Page, expression: str, seconds: float = 10.0) -> None:
    """Wait until the JavaScript expression is true. NOTE: Playwright's own way evaluates, which the pages forbid."""
    assert becomes(lambda: bool(page.evaluate(expression)), seconds), expression

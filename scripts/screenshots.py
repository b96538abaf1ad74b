"""Takes the pictures in docs/images of a console that is at work: .venv/bin/python scripts/screenshots.py

Run by a maintainer, in the environment of `scripts/setup test`, when the console looks different.
"""

import io
import shutil
import sys
import tempfile
from pathlib import Path

import httpx
from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from controlled import Platform  # noqa: E402
from live import gateway  # noqa: E402

PICTURES = ROOT / "docs" / "images"
CONFIG = f"""
models_dir = "{ROOT / "configs" / "models"}"
[gateway]
data_dir = "data"
admin_port = 0
port = 0
device = "cpu"
"""
SERVICES = {
    "chat": {"model": "tinychat", "type": "openai"},
    "digits": {"model": "mnist", "duration": "7d", "app_auth": True},
    "faces": {"model": "faces", "type": "tfserving"},
    "flowers": {"model": "iris", "duration": "8h", "canary": {"model": "iris", "weight": 30, "version": "1.1.0"}},
    "painter": {"model": "painter", "scaling": {"min": 1, "max": 4}},
}
ROWS = {"instances": [[5.1, 3.5, 1.4, 0.2]]}


def main() -> None:
    """Take all of them."""
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        config = Path(folder) / "gateway.toml"
        config.write_text(CONFIG)
        with gateway(config) as live:
            platform = Platform(live)
            for name, fields in SERVICES.items():
                platform.have(name, **fields)
            browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
            page = signed_in(browser, platform)
            services(page, platform)
            traffic(page, platform)
            image(page, platform)
            chat(page, platform)
            browser.close()


def signed_in(browser: Browser, platform: Platform) -> Page:
    """A window in which the administrator has signed in."""
    context = browser.new_context(viewport={"width": 1180, "height": 720}, locale="en-GB")
    context.add_cookies(platform.cookies)  # type: ignore[arg-type]
    return context.new_page()


def take(page: Page, name: str) -> None:
    """The window from its top, in few colours: a picture of text needs no more."""
    page.evaluate("scrollTo(0, 0)")
    with Image.open(io.BytesIO(page.screenshot())) as picture:
        picture.convert("RGB").quantize(256).save(PICTURES / f"{name}.png", optimize=True)


def services(page: Page, platform: Platform) -> None:
    page.goto(f"{platform.url}/console/services")
    with httpx.Client() as client:
        for _ in range(9):
            for _ in range(40):
                client.post(f"{platform.live.url}/services/flowers/v1/models:predict", json=ROWS)
            page.wait_for_timeout(500)
    take(page, "services")


def traffic(page: Page, platform: Platform) -> None:
    page.goto(f"{platform.url}/console/services/flowers/traffic")
    with httpx.Client() as client:
        for number in range(900):
            client.post(f"{platform.live.url}/services/flowers/v1/models:predict", json=ROWS)
            if number % 60 == 0:
                page.wait_for_timeout(700 + number % 7 * 60)
    take(page, "traffic")


def image(page: Page, platform: Platform) -> None:
    page.goto(f"{platform.url}/console/services/faces/test")
    page.click("#tab-image")
    page.set_input_files("input[type=file]", ROOT / "configs" / "samples" / "astronaut.png")
    page.click("#image-send")
    page.wait_for_selector("#image-result rect, svg rect")
    take(page, "image")


def chat(page: Page, platform: Platform) -> None:
    page.goto(f"{platform.url}/console/services/chat/test")
    for text in ("Hello!", "What is the capital of France?", "What is 12 + 7?"):
        page.fill("#chat-text", text)
        page.click("#chat-send")
        page.wait_for_timeout(1500)
    take(page, "chat")


if __name__ == "__main__":
    main()

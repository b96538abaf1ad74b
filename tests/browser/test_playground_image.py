"""The online test with pictures: boxes are where the answer says, and bad files are told of in time."""

import base64
import json
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect
from visits import Visit

TryOut = Callable[..., Visit]
DIGIT = Path(__file__).resolve().parents[2] / "configs" / "samples" / "digit.png"
BOXES = [[10, 20, 30, 40], [60, 5, 20.5, 20], [100, 90, 40, 50]]
TRAP = "<img src=x onerror=alert(1)>"
SVG = '<svg xmlns="http://www.w3.org/2000/svg" width="140" height="140"><script>alert(1)</script><circle r="9"/></svg>'


def blank(width: int, height: int) -> bytes:
    """A black PNG of that size, which is small as a file."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    head = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    pixels = zlib.compress((b"\0" * (1 + (width + 7) // 8)) * height)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def choose(page: Page, name: str = "digit.png", content: bytes | None = None, kind: str = "image/png") -> None:
    """Take that file into the form."""
    content = DIGIT.read_bytes() if content is None else content
    page.click("#tab-image")
    page.set_input_files("#image-file", [{"name": name, "mimeType": kind, "buffer": content}])


def send(page: Page) -> None:
    expect(page.locator("#image-send")).to_be_enabled()
    page.click("#image-send")
    expect(page.locator("#image-result .verdict")).to_be_visible()


def drawn(page: Page) -> list[list[float]]:
    """The boxes on the screen."""
    return page.locator("#image-boxes rect").evaluate_all(
        "all => all.map(one => ['x', 'y', 'width', 'height'].map(name => Number(one.getAttribute(name))))"
    )


@pytest.mark.parametrize("form", ["seldon", "tfserving"])
def test_boxes_are_drawn(try_out: TryOut, form: str) -> None:
    """Every box lies over the picture where the answer has it, named and with its confidence; the names are texts."""
    page = try_out("finder", model="finder").page
    choose(page)
    page.select_option("#image-form", form)
    send(page)
    assert drawn(page) == BOXES
    labels = page.locator("#image-boxes text").all_text_contents()
    assert labels == ["cat 90%", f"{TRAP} 50%", "dog 20%"]
    told = json.dumps(json.loads(page.locator("#image-result pre").first.text_content() or ""))
    assert "dobjects" in told
    picture, first = (
        page.locator("#image-preview").bounding_box(),
        page.locator("#image-boxes rect").first.bounding_box(),
    )
    assert picture is not None
    assert first is not None
    scale = picture["width"] / 140
    assert first["x"] - picture["x"] == pytest.approx(10 * scale, abs=2 * scale)
    assert first["height"] == pytest.approx(40 * scale, abs=2 * scale)


def test_a_detector(try_out: TryOut) -> None:
    """A detection model's page begins with pictures; the face is boxed where the answer says, and a digit has none."""
    page = try_out("faces", model="faces").page
    expect(page.locator("#mode-image")).to_be_visible()
    choose(page, "astronaut.png", DIGIT.with_name("astronaut.png").read_bytes())
    send(page)
    (found,) = json.loads(page.locator("#image-result pre").first.text_content() or "")["predictions"]
    assert len(found["dobjects"]) > 0
    assert drawn(page) == found["dobjects"]
    choose(page)
    send(page)
    expect(page.locator("#image-result")).to_contain_text("Nothing was found")
    assert drawn(page) == []


def test_the_threshold_hides(try_out: TryOut) -> None:
    """Boxes below the least confidence go, and come back; by keyboard too."""
    page = try_out("finder", model="finder").page
    choose(page)
    send(page)
    page.fill("#image-threshold", "21")
    assert drawn(page) == BOXES[:2]
    expect(page.locator("#image-classes li")).to_have_count(2)
    page.focus("#image-threshold")
    page.keyboard.press("ArrowLeft")
    assert drawn(page) == BOXES


def test_classes_are_named(try_out: TryOut) -> None:
    """Where a classifier names its classes, so does the place of the greatest score."""
    page = try_out("photos", model="imagenet").page
    choose(page, "coffee.png", DIGIT.with_name("coffee.png").read_bytes())
    send(page)
    expect(page.locator("#image-result tbody tr").nth(1)).to_contain_text("0 (espresso)")


def test_scores_are_listed(try_out: TryOut) -> None:
    """A classifier's scores are shown with the place of the greatest: the digit is a two."""
    page = try_out("digits", model="mnist").page
    choose(page)
    send(page)
    assert page.locator("#image-result td").nth(5).inner_text() == "2"
    assert drawn(page) == []


@pytest.mark.parametrize(
    ("name", "kind", "content"),
    [
        ("broken.png", "image/png", DIGIT.read_bytes()[:60]),
        ("broken.jpg", "image/jpeg", b"\xff\xd8\xff\xe0 no"),
        ("empty.svg", "image/svg+xml", b"<svg"),
    ],
)
def test_a_corrupt_file(try_out: TryOut, name: str, kind: str, content: bytes) -> None:
    """A file that is no picture may be sent, and the server's reason is shown."""
    visit = try_out("digits", model="mnist")
    visit.expect("status of 400")
    choose(visit.page, name, content, kind)
    send(visit.page)
    expect(visit.page.locator("#image-result .verdict")).to_contain_text("400")
    expect(visit.page.locator("#image-result .reason")).to_contain_text("image")


def test_too_many_pixels(try_out: TryOut) -> None:
    """A picture of 20 megapixels is refused before anything is sent."""
    page = try_out("digits", model="mnist").page
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    choose(page, "large.png", blank(5000, 4000))
    expect(page.locator("#image-result .verdict")).to_contain_text("20.0")
    expect(page.locator("#image-send")).to_be_disabled()
    assert [url for url in asked if "/control/" in url] == []


def test_a_script_in_a_picture(try_out: TryOut) -> None:
    """An SVG is shown, and what it would run does not run; a dropped file is taken like a chosen one."""
    page = try_out("finder", model="finder").page
    choose(page, "trap.svg", SVG.encode(), "image/svg+xml")
    expect(page.locator("#image-about")).to_contain_text("140 × 140")
    page.evaluate(
        """content => {
            const data = new DataTransfer();
            const bytes = Uint8Array.from(atob(content), one => one.charCodeAt(0));
            data.items.add(new File([bytes], "dropped.png", { type: "image/png" }));
            document.getElementById("image-drop").dispatchEvent(new DragEvent("drop", { dataTransfer: data }));
        }""",
        base64.b64encode(DIGIT.read_bytes()).decode(),
    )
    expect(page.locator("#image-about")).to_contain_text("dropped.png, 140 × 140")
    send(page)
    assert drawn(page) == BOXES

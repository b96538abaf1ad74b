"""The online test's calls as commands and programs: what is copied runs as it is, but for the key."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from controlled import Platform
from playwright.sync_api import Page, expect
from visits import Visit

TryOut = Callable[..., Visit]
DIGIT = Path(__file__).resolve().parents[2] / "configs" / "samples" / "digit.png"
ODD = 'it\'s "q" ✓ 😀 \\ $HOME `ls` \n'
ROWS = {"instances": [[5.1, 3.5, 1.4, 0.2]], "note": ODD}


def tensor(page: Page) -> None:
    page.fill("#tensor-body", json.dumps(ROWS, ensure_ascii=False))


def image(page: Page) -> None:
    page.set_input_files("#image-file", DIGIT)
    expect(page.locator("#image-send")).to_be_enabled()


def chat(page: Page) -> None:
    expect(page.locator("#chat-model")).to_have_value("coded-chat")
    page.fill("#chat-system", ODD)
    page.fill("#chat-text", "2 + 3 =")


def paint(page: Page) -> None:
    page.fill("#paint-prompt", f"a red seven {ODD}")
    page.fill("#paint-step", "2")


FORMS = {"tensor": (tensor, "iris"), "image": (image, "mnist"), "chat": (chat, "tinychat"), "paint": (paint, "painter")}
SAYS = {
    ("tensor", "curl"): "setosa",
    ("tensor", "python"): "setosa",
    ("image", "curl"): "5981.777",
    ("image", "python"): "5981.777",
    ("chat", "curl"): "data: [DONE]",
    ("chat", "python"): "data: [DONE]",
    ("paint", "curl"): "b64_json",
    ("paint", "python"): "progress 1.0",
}


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
@pytest.mark.parametrize(("mode", "kind"), SAYS)
def test_the_call_as_code(try_out: TryOut, platform: Platform, tmp_path: Path, mode: str, kind: str) -> None:
    """The copied text, run with a key where the files are, gets an answer, whatever characters are in the call."""
    fill, model = FORMS[mode]
    page = try_out(f"coded-{mode}", model=model, app_auth=True).page
    fill(page)
    page.click(f"#{mode}-{kind}")
    expect(page.locator(f"#{mode}-code")).to_be_visible()
    code = platform.admin("POST", f"/services/coded-{mode}/keys", {"id": kind}, 201)["code"]
    text = (page.locator(f"#{mode}-code").text_content() or "").replace("YOUR_APP_CODE", code)
    shutil.copy(DIGIT, tmp_path)
    command = ["bash", "-euc", text] if kind == "curl" else [sys.executable, "-c", text]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, SAYS[mode, kind] in done.stdout) == (0, True), done.stdout + done.stderr

"""The online test with a language model: answers grow as they are written, and a stopped one leaves nothing behind."""

from collections.abc import Callable

from controlled import Platform
from live import becomes
from playwright.sync_api import Page, expect
from visits import Visit, until

TryOut = Callable[..., Visit]
IN_FLIGHT = "tensorgate_requests_in_flight"
TRAP = "<img src=x onerror=alert(1)>"
FREE_SECONDS = 3.0
"""Three times the second that it may take."""

COUNT_CHANGES = """() => {
    window.changes = 0;
    new MutationObserver(all => {
        window.changes += all.filter(one => one.target.className === "text").length;
    }).observe(document.getElementById("chat-log"), { childList: true, subtree: true });
}"""


def model(try_out: TryOut) -> Page:
    """On a language model, which has been listed."""
    page = try_out("chatty", model="tinychat").page
    expect(page.locator("#chat-model")).to_have_value("chatty")
    return page


def talker(try_out: TryOut) -> Page:
    """On somebody's own service, which talks until it is stopped."""
    page = try_out("talker", type="custom").page
    page.click("#tab-chat")
    expect(page.locator("#chat-model")).to_have_value("talker")
    return page


def say(page: Page, text: str, more: str = "") -> None:
    page.fill("#chat-more", more)
    page.fill("#chat-text", text)
    page.press("#chat-text", "Enter")


def idle(platform: Platform) -> bool:
    """Whether nobody is answered any more."""
    return becomes(lambda: platform.metric(IN_FLIGHT) == 0, FREE_SECONDS)


def test_it_grows(try_out: TryOut) -> None:
    """An answer changes the page word by word while it is still being written, and its words are never markup."""
    page = talker(try_out)
    page.evaluate(COUNT_CHANGES)
    say(page, "hello")
    until(page, "window.changes >= 3")
    expect(page.locator("#chat-stop")).to_be_enabled()
    expect(page.locator("#chat-log .assistant .text")).to_contain_text(f"0 {TRAP} 2")
    page.click("#chat-stop")


def test_a_language_model(try_out: TryOut) -> None:
    """All tokens of an answer are shown, counted as the model counts them, with how fast they came."""
    page = model(try_out)
    say(page, "2 + 3 =", '{"ignore_eos": true, "max_tokens": 300}')
    expect(page.locator("#chat-log .figures")).to_contain_text("300 tokens")
    expect(page.locator("#chat-log .figures")).to_contain_text("first token")
    expect(page.locator("#chat-log .assistant .text")).not_to_be_empty()


def test_several_turns(try_out: TryOut) -> None:
    """What was said before is sent again, the system prompt first; without streaming, too."""
    page = model(try_out)
    page.fill("#chat-system", "Answer with numbers.")
    page.uncheck("#chat-stream")
    for turn in (1, 2):
        with page.expect_request("**/chat/completions") as asked:
            say(page, f"{turn} + 1 =")
        expect(page.locator("#chat-log .figures")).to_have_count(turn)
    body = asked.value.post_data_json
    assert [one["role"] for one in body["messages"]] == ["system", "user", "assistant", "user"]
    assert "stream" not in body
    page.click("#chat-new")
    expect(page.locator("#chat-log li")).to_have_count(0)


def test_the_manuals_form(try_out: TryOut) -> None:
    """A whole answer as the platform's manual has it, without OpenAI's `message` around it, is shown as well."""
    page = talker(try_out)
    page.uncheck("#chat-stream")
    say(page, "hello")
    expect(page.locator("#chat-log .assistant .text")).to_have_text(TRAP)


def test_stop_frees_the_slot(try_out: TryOut, platform: Platform) -> None:
    """Stop ends the answer where it is, and the service's work with it; the next message is answered."""
    page = talker(try_out)
    say(page, "hello")
    expect(page.locator("#chat-log .assistant .text")).to_contain_text("0 ")
    assert platform.metric(IN_FLIGHT) > 0
    page.click("#chat-stop")
    expect(page.locator("#chat-log .note")).to_be_visible()
    assert idle(platform)
    say(page, "again")
    expect(page.locator("#chat-log .assistant .text").last).to_contain_text("0 ")


def test_a_reload_frees_the_slot(try_out: TryOut, platform: Platform) -> None:
    """Reloading the page in the middle of an answer ends it in the gateway."""
    page = talker(try_out)
    say(page, "hello")
    expect(page.locator("#chat-log .assistant .text")).to_contain_text("0 ")
    page.reload()
    assert idle(platform)


def test_an_error_in_mid_stream(try_out: TryOut) -> None:
    """What goes wrong after the first words is told below them."""
    page = talker(try_out)
    say(page, "break")
    expect(page.locator("#chat-log .bad")).to_have_text("the model has broken")
    expect(page.locator("#chat-log .assistant .text")).to_contain_text("2")


def test_errors_are_told(try_out: TryOut) -> None:
    """A field that the model refuses is told in the server's words, in the conversation."""
    visit = try_out("chatty", model="tinychat")
    visit.expect("status of 400")
    expect(visit.page.locator("#chat-model")).to_have_value("chatty")
    say(visit.page, "2 + 3 =", '{"temperature": "hot"}')
    expect(visit.page.locator("#chat-log .bad")).to_contain_text("temperature")
    say(visit.page, "2 + 3 =", "{")
    expect(visit.page.locator("#chat-log .bad").last).to_contain_text("not JSON")

"""Application keys."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from gateway.auth import Authenticator
from gateway.config import ConfigError, Secret, ServiceConfig
from gateway.errors import Forbidden, Unauthenticated
from gateway.grants import NOTHING, Grant
from gateway.routing import Service
from gateway.types import Call

SERVICES = {
    "open": ServiceConfig(),
    "digits": ServiceConfig(app_auth=True, app_codes=("digits-code", "both-code")),
    "iris": ServiceConfig(app_auth=True, app_codes=("iris-code", "both-code")),
    "off": ServiceConfig(app_auth=False, app_codes=("off-code",)),
}


def again(sent: Call) -> Call:
    """The same call on a connection whose head is known."""
    return replace(sent, learned={})


def service(name: str) -> Service:
    """The service as it is routed to."""
    return Service(name, name, "any", SERVICES[name].app_auth, ())


def call(**headers: str) -> Call:
    """A call with those headers, underscores as hyphens."""
    pairs = [(name.replace("_", "-").encode(), value.encode("utf-8")) for name, value in headers.items()]
    return Call("POST", "/", headers=pairs)


@pytest.fixture
def authenticator() -> Authenticator:
    return Authenticator(SERVICES, Path())


@pytest.mark.parametrize(
    "headers",
    [
        {"authorization": "APPCODE digits-code"},
        {"authorization": "appcode digits-code"},
        {"authorization": "Bearer digits-code"},
        {"authorization": "Bearer   digits-code  "},
        {"x_tensorgate_key": "digits-code"},
        {"authorization": "AWS4-HMAC-SHA256 Credential=x", "x_tensorgate_key": "digits-code"},
    ],
)
def test_a_key_opens_its_service(authenticator: Authenticator, headers: dict[str, str]) -> None:
    """A key is taken from either header, with either scheme in any case."""
    sent = call(**headers)
    opened = authenticator.opened(sent)
    assert frozenset({"digits"}) == opened.services
    authenticator.admit(sent, opened, service("digits"))


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": "APPCODE wrong"},
        {"authorization": "Basic digits-code"},
        {"authorization": "digits-code"},
        {"authorization": "APPCODE"},
        {"authorization": "APPCODE digits-code\x00"},
        {"authorization": "APPCODE off-code"},
        {"authorization": "APPCODE " + "x" * 1_000_000},
        {"x_tensorgate_key": ""},
        {"x_tensorgate_key": "ключ"},
    ],
)
def test_without_a_valid_key_a_protected_service_is_shut(authenticator: Authenticator, headers: dict[str, str]) -> None:
    """Missing, wrong, malformed and oversized keys are all unauthenticated."""
    sent = call(**headers)
    with pytest.raises(Unauthenticated):
        authenticator.admit(sent, authenticator.opened(sent), service("digits"))


def test_a_key_of_another_service_is_forbidden(authenticator: Authenticator) -> None:
    """A valid key that does not open the service is 403, not 401."""
    sent = call(authorization="APPCODE iris-code")
    with pytest.raises(Forbidden):
        authenticator.admit(sent, authenticator.opened(sent), service("digits"))


def test_one_key_may_open_several_services(authenticator: Authenticator) -> None:
    """A code listed for two services opens both."""
    assert frozenset({"digits", "iris"}) == authenticator.opened(call(authorization="APPCODE both-code")).services


def test_an_open_service_needs_no_key(authenticator: Authenticator) -> None:
    """Without app_auth any credential, or none, is let through."""
    authenticator.admit(call(), NOTHING, service("open"))
    authenticator.admit(call(), NOTHING, service("off"))


def test_before_the_target_is_known_only_a_hopeless_call_is_refused(authenticator: Authenticator) -> None:
    """A call without a key is refused early only if every service it can reach needs one."""
    with pytest.raises(Unauthenticated):
        authenticator.admit_any(call(), NOTHING, [service("digits"), service("iris")])
    with pytest.raises(Forbidden):
        authenticator.admit_any(call(), Grant(frozenset({"iris"}), True), [service("digits")])
    authenticator.admit_any(call(), NOTHING, [service("digits"), service("open")])
    authenticator.admit_any(call(), Grant(frozenset({"iris"}), True), [service("digits"), service("iris")])


def test_a_key_outside_ascii_works_as_clients_send_it() -> None:
    """UTF-8 bytes in the header match the code as it is written in the configuration."""
    authenticator = Authenticator({"s": ServiceConfig(app_auth=True, app_codes=("ключ-é",))}, Path())
    assert frozenset({"s"}) == authenticator.opened(call(authorization="APPCODE ключ-é")).services


def test_codes_come_from_the_environment_or_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """{ env } and { file } are read once, the file relative to the configuration."""
    monkeypatch.setenv("CODE", "from-env")
    (tmp_path / "code").write_text("from-file\n")
    services = {
        "a": ServiceConfig(app_auth=True, app_codes=Secret(env="CODE")),
        "b": ServiceConfig(app_auth=True, app_codes=Secret(file="code")),
    }
    authenticator = Authenticator(services, tmp_path)
    assert frozenset({"a"}) == authenticator.opened(call(authorization="APPCODE from-env")).services
    assert frozenset({"b"}) == authenticator.opened(call(authorization="APPCODE from-file")).services


@pytest.mark.parametrize(
    ("codes", "text"),
    [
        (("",), "1 to 1024 characters"),
        (("x" * 2000,), "1 to 1024 characters"),
        (Secret(), "exactly one of env and file"),
        (Secret(env="A", file="B"), "exactly one of env and file"),
        (Secret(env="TENSORGATE_TEST_UNSET"), "TENSORGATE_TEST_UNSET is not set"),
        (Secret(file="absent"), "absent cannot be read: No such file"),
    ],
)
def test_codes_that_could_let_nobody_in_are_refused(codes: tuple[str, ...] | Secret, text: str, tmp_path: Path) -> None:
    """A protected service without a usable code does not start, and says why."""
    with pytest.raises(ConfigError, match=text):
        Authenticator({"s": ServiceConfig(app_auth=True, app_codes=codes)}, tmp_path)


def test_no_code_is_kept_in_the_clear(authenticator: Authenticator) -> None:
    """Only digests stay in memory's structures."""
    assert "digits-code" not in repr(vars(authenticator))


def test_a_head_that_comes_again_opens_what_it_did(authenticator: Authenticator) -> None:
    """Without another look at its key, for whoever has looked at it: a key that is gone opens nothing any more."""
    sent = again(call(authorization="APPCODE digits-code"))
    assert authenticator.opened(sent).services == frozenset({"digits"})
    unread = replace(sent, headers=[])
    assert authenticator.opened(unread).services == frozenset({"digits"})
    later = Authenticator({"digits": ServiceConfig(app_auth=True, app_codes=("another",))}, Path())
    assert later.opened(sent) == NOTHING
    assert later.opened(unread) == NOTHING


def test_a_head_without_a_key_teaches_nothing(authenticator: Authenticator) -> None:
    """Nor does one with a wrong key, which is counted each time."""
    for sent in (again(call()), again(call(authorization="APPCODE wrong"))):
        assert authenticator.opened(sent) == NOTHING
        assert sent.learned == {}

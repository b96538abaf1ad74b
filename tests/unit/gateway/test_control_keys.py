"""Who may load and unload models by call."""

from pathlib import Path

import pytest

from gateway.auth import Authenticator
from gateway.config import ConfigError, ModelsControlConfig, Secret, ServiceConfig
from gateway.errors import Forbidden, Unauthenticated
from gateway.types import Call

CALL = Call("POST", "/models")
ENABLED = ModelsControlConfig(enabled=True)
KEYED = ModelsControlConfig(enabled=True, app_codes=("control-code",))
PROTECTED = {"s": ServiceConfig(app_auth=True, app_codes=("s-code",))}


def with_key(code: str) -> Call:
    """A call that carries the key."""
    return Call("POST", "/models", headers=[(b"authorization", f"Bearer {code}".encode())])


def test_it_is_off_by_default() -> None:
    """Nobody's key opens what is off."""
    for call in (CALL, with_key("s-code")):
        with pytest.raises(Forbidden, match=r"\[models_control\]"):
            Authenticator(PROTECTED, Path()).admit_control(call)


def test_without_keys_anybody_may_where_no_service_needs_one() -> None:
    """As in SageMaker's own containers."""
    Authenticator({"open": ServiceConfig()}, Path(), ENABLED).admit_control(CALL)


def test_where_services_need_keys_so_does_control() -> None:
    """It does not start without one."""
    with pytest.raises(ConfigError, match=r"models_control\.app_codes: services here need keys"):
        Authenticator(PROTECTED, Path(), ENABLED)


def test_its_own_keys_open_it_and_no_other() -> None:
    """A service's key is not enough, and the control key opens no service."""
    authenticator = Authenticator(PROTECTED, Path(), KEYED)
    authenticator.admit_control(with_key("control-code"))
    assert not authenticator.opened(with_key("control-code"))
    with pytest.raises(Forbidden, match="does not open model control"):
        authenticator.admit_control(with_key("s-code"))
    for call in (CALL, with_key("wrong"), with_key("x" * 5000)):
        with pytest.raises(Unauthenticated):
            authenticator.admit_control(call)


def test_its_keys_may_come_from_a_file(tmp_path: Path) -> None:
    """Like a service's."""
    (tmp_path / "code").write_text("from-file\n")
    control = ModelsControlConfig(enabled=True, app_codes=Secret(file="code"))
    Authenticator({}, tmp_path, control).admit_control(with_key("from-file"))

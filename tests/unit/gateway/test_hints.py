"""What a configuration's errors say of what was meant."""

import pytest

from gateway import config
from gateway.config import Config, ConfigError, ModelConfig, convert


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        (
            {"payload_log": {"dirr": "x"}},
            "demo.toml: payload_log: Object contains unknown field `dirr`; did you mean 'dir'? There are: dir, sample, "
            "services, max_bytes, redact, file_bytes, total_bytes",
        ),
        ({"servces": {}}, "demo.toml: (top level): Object contains unknown field `servces`; did you mean 'services'?"),
        (
            {"services": {"iris": {"type": "tfservin"}}},
            "demo.toml: services.iris.type: Invalid enum value 'tfservin'; did you mean 'tfserving'? There are: ",
        ),
        ({"gateway": {"device": "gpu"}}, "demo.toml: gateway.device: Invalid enum value 'gpu'"),
        (
            {"services": {"iris": {"canary": {"wieght": 1}}}},
            "demo.toml: services.iris.canary: Object contains unknown field `wieght`; did you mean 'weight'?",
        ),
        ({"services": {"iris": {"app_codes": [{"evn": "x"}]}}}, "demo.toml: services.iris.app_codes"),
        (
            {"gateway": {"model_memory": "4 gigs"}},
            'demo.toml: gateway.model_memory: Expected a number of bytes, or a text such as "4GiB" or "500 MB"',
        ),
        ({"gateway": {"qqqq": 1}}, "Object contains unknown field `qqqq`; there are: host, port, "),
    ],
)
def test_hints(table: dict[str, object], expected: str) -> None:
    """An unknown key or choice is told with those that there are, the likely one first."""
    with pytest.raises(ConfigError) as caught:
        convert(table, Config, "demo.toml")
    assert expected in str(caught.value)


def test_every_literal_of_the_file_can_be_listed() -> None:
    """A wrong device lists the right ones."""
    with pytest.raises(ConfigError, match="cuda"):
        config.convert({"device": "gpu"}, config.GatewayConfig, "demo.toml: gateway")


def test_a_size_in_a_model() -> None:
    """model.toml's sizes are told of in the same way."""
    with pytest.raises(ConfigError, match=r"m/model\.toml: memory: Expected a number of bytes"):
        convert({"memory": "much"}, ModelConfig, "m/model.toml")

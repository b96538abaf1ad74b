"""What SageMaker tells its container, as tables of the configuration."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from adapters.sagemaker import Config
from adapters.sagemaker.environment import tables
from gateway.config import Config as GatewayConfig

CONTAINER = {"host": "0.0.0.0", "port": 8080, "drain_seconds": 25.0}


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, {}),
        ({"SAGEMAKER_REGION": "eu-west-1", "SAGEMAKER_BATCH": "true", "SAGEMAKER_MULTI_MODEL": "false"}, {}),
        ({"SAGEMAKER_BIND_TO_PORT": "15000"}, {"gateway": {**CONTAINER, "port": 15000}}),
        ({"SAGEMAKER_BIND_TO_PORT": " "}, {}),
        (
            {"SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT": "text/csv", "SAGEMAKER_MAX_CONCURRENT_TRANSFORMS": "4"},
            {"protocols": {"sagemaker": {"default_accept": "text/csv", "max_concurrent_transforms": 4}}},
        ),
        ({"SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT": "", "SAGEMAKER_MAX_CONCURRENT_TRANSFORMS": "0"}, {}),
        (
            {"SAGEMAKER_MAX_PAYLOAD_IN_MB": "20"},
            {"protocols": {"sagemaker": {"max_payload_mb": 20}}, "limits": {"body_bytes": 20 << 20}},
        ),
        ({"SAGEMAKER_MAX_PAYLOAD_IN_MB": "0"}, {"protocols": {"sagemaker": {"max_payload_mb": 0}}}),
        *(
            ({"SAGEMAKER_BATCH_STRATEGY": text}, {"protocols": {"sagemaker": {"batch_strategy": strategy}}})
            for text, strategy in [
                ("MultiRecord", "MULTI_RECORD"),
                ("SINGLE_RECORD", "SINGLE_RECORD"),
                ("SingleRecord", "SINGLE_RECORD"),
            ]
        ),
    ],
)
def test_variables(tmp_path: Path, environment: dict[str, str], expected: dict[str, Any]) -> None:
    """Each sets what it is for; those that nobody set leave everything as it is."""
    found = tables(environment, tmp_path)
    assert expected == found
    msgspec.convert(found, GatewayConfig)
    msgspec.convert(found.get("protocols", {}).get("sagemaker", {}), Config)


@pytest.mark.parametrize(
    ("environment", "text"),
    [
        (
            {"SAGEMAKER_BIND_TO_PORT": "http"},
            "SAGEMAKER_BIND_TO_PORT: expected a whole number of at least 1, got 'http'",
        ),
        ({"SAGEMAKER_BIND_TO_PORT": "0"}, "at least 1"),
        ({"SAGEMAKER_BIND_TO_PORT": "9" * 5000}, "expected a whole number"),
        ({"SAGEMAKER_MAX_PAYLOAD_IN_MB": "-1"}, "SAGEMAKER_MAX_PAYLOAD_IN_MB: expected a whole number"),
        ({"SAGEMAKER_MAX_CONCURRENT_TRANSFORMS": "1.5"}, "SAGEMAKER_MAX_CONCURRENT_TRANSFORMS: "),
        (
            {"SAGEMAKER_BATCH_STRATEGY": "All"},
            "SAGEMAKER_BATCH_STRATEGY: expected MultiRecord or SingleRecord, got 'All'",
        ),
    ],
)
def test_values_without_sense(tmp_path: Path, environment: dict[str, str], text: str) -> None:
    """The container does not start, and its log says which variable is wrong."""
    with pytest.raises(ValueError, match=text):
        tables(environment, tmp_path)


@pytest.mark.parametrize(
    ("files", "models"),
    [
        (["model.onnx"], {"model": "{folder}/model"}),
        (["model.toml"], {"model": "{folder}/model"}),
        (["1/model.onnx", "code/requirements.txt"], {"model": "{folder}/model"}),
        (["iris/1/model.onnx", "wine/model.onnx"], None),
        ([], None),
    ],
)
def test_model_folder(tmp_path: Path, files: list[str], models: dict[str, str] | None) -> None:
    """The unpacked archive is one model, or a folder of models; either way the process is SageMaker's."""
    (tmp_path / "model").mkdir()
    for name in files:
        (tmp_path / "model" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "model" / name).touch()
    place = str(tmp_path / "model")
    source = {"models": {"model": place}} if models else {"models_dir": place}
    assert {"gateway": CONTAINER, **source} == tables({}, tmp_path)


def test_multi_model(tmp_path: Path) -> None:
    """Models come by call from the folder that SageMaker puts them in; nothing is served at the start."""
    (tmp_path / "model").mkdir()
    control = {"enabled": True, "roots": str(tmp_path / "models")}
    assert {"gateway": CONTAINER, "models_control": control} == tables({"SAGEMAKER_MULTI_MODEL": "TRUE"}, tmp_path)

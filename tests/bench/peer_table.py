"""The servers that the gateway is compared with: what each is installed from, how it is started, and what it is asked.

All of them get the same ONNX model, on one thread, in one worker, and listen on loopback.
"""

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlp
import numpy as np
import orjson
from contenders import HERE
from msgspec import Struct

SERVERS = HERE / "peer_servers"


class Launch(Struct, frozen=True):
    """Where a peer is started."""

    binaries: Path
    """Of its environment."""
    folder: Path
    """Its own, empty."""
    ports: tuple[int, ...]
    """The first for HTTP; the others for whatever else it opens."""

    @property
    def python(self) -> str:
        return str(self.binaries / "python")


class Speech(Struct, frozen=True):
    """One way of asking."""

    path: str
    body: Callable[[int], bytes]
    answer: Callable[[Any], Any]
    """From the document of a reply to its numbers."""


class Peer(Struct, frozen=True):
    """A server under comparison."""

    name: str
    packages: tuple[str, ...]
    """The first is the server's own."""
    command: Callable[[Launch], list[str]]
    ready: str
    speech: Speech
    ours: Speech
    """The gateway is asked in the same protocol where it speaks it, else in TF Serving's."""
    environment: Callable[[Launch], dict[str, str]] = lambda launch: {}
    least: float = 4.0
    """The aim: requests/s against it at one row and 8 connections."""
    system_python: bool = False
    """It embeds a Python and takes only the one that Debian's packages have."""


def _predictions(document: Any) -> Any:
    return document["predictions"]


def _v2(document: Any) -> Any:
    return np.reshape(document["outputs"][0]["data"], document["outputs"][0]["shape"])


def _ndarray(document: Any) -> Any:
    return document["data"]["ndarray"]


def _bentos(rows: int) -> bytes:
    return orjson.dumps({"x": orjson.loads(mlp.predict_body(rows))["instances"]})


TFSERVING = Speech(f"/v1/models/{mlp.NAME}:predict", mlp.predict_body, _predictions)
V2 = Speech(f"/v2/models/{mlp.NAME}/infer", mlp.v2_body, _v2)
SELDON = Speech(f"/services/{mlp.NAME}/api/v1.0/predictions", mlp.seldon_body, _ndarray)


def _script(name: str) -> str:
    return str(SERVERS / f"{name}.py")


def _mlserver(launch: Launch) -> list[str]:
    settings = {"name": mlp.NAME, "implementation": "mlserver_mlp.Mlp"}
    (launch.folder / "model-settings.json").write_text(json.dumps(settings))
    return [launch.python, "-m", "mlserver.cli.main", "start", str(launch.folder)]


def _mlserver_environment(launch: Launch) -> dict[str, str]:
    http, grpc, metrics, *_ = map(str, launch.ports)
    return {
        "MLSERVER_HOST": "127.0.0.1", "MLSERVER_HTTP_PORT": http, "MLSERVER_GRPC_PORT": grpc,
        "MLSERVER_METRICS_PORT": metrics, "MLSERVER_DEBUG": "false", "PYTHONPATH": str(HERE),
    }  # fmt: skip


def _kserve(launch: Launch) -> list[str]:
    options = [f"--http_port={launch.ports[0]}", f"--grpc_port={launch.ports[1]}", "--enable_grpc=false"]
    return [launch.python, _script("kserve_mlp"), *options, "--workers=1", "--enable_latency_logging=false"]


def _litserve(launch: Launch) -> list[str]:
    return [launch.python, _script("litserve_mlp"), str(launch.ports[0])]


def _bentoml(launch: Launch) -> list[str]:
    where = ["--host", "127.0.0.1", "--port", str(launch.ports[0]), "--working-dir", str(SERVERS)]
    return [str(launch.binaries / "bentoml"), "serve", "bentoml_mlp:Mlp", *where]


def _bentoml_environment(launch: Launch) -> dict[str, str]:
    return {"BENTOML_DO_NOT_TRACK": "true", "BENTOML_HOME": str(launch.folder), "PYTHONPATH": str(SERVERS)}


def _seldon(launch: Launch) -> list[str]:
    ports = [f"--http-port={launch.ports[0]}", f"--metrics-port={launch.ports[1]}", "--grpc-workers=0"]
    settings = ["--service-type=MODEL", "--log-level=WARNING", "--workers=1", "--threads=10"]
    return [launch.python, str(HERE / "seldon_server.py"), "seldon_onnx", *ports, *settings]


def _pytriton(launch: Launch) -> list[str]:
    return [launch.python, _script("pytriton_mlp"), *map(str, launch.ports[:3])]


def _torchserve(launch: Launch) -> list[str]:
    store = launch.folder / "store"
    store.mkdir()
    manifest = {"modelName": mlp.NAME, "serializedFile": "", "handler": "handler.py", "modelVersion": "1.0"}
    with zipfile.ZipFile(store / f"{mlp.NAME}.mar", "w") as archive:
        archive.writestr("MAR-INF/MANIFEST.json", json.dumps({"runtime": "python", "model": manifest}))
        for name in ("handler.py", "session.py"):
            archive.write(SERVERS / name, name)
    _write_stub(launch.folder / "stub")
    config = _properties(launch, metrics_address=launch.ports[2])
    with config.open("a") as file:
        file.write(f"grpc_inference_port={launch.ports[3]}\ngrpc_management_port={launch.ports[4]}\n")
    models = ["--model-store", str(store), "--models", f"{mlp.NAME}={mlp.NAME}.mar"]
    options = ["--foreground", "--ts-config", str(config), "--disable-token-auth", "--ncs"]
    return [str(launch.binaries / "torchserve"), "--start", *models, *options]


def _write_stub(folder: Path) -> None:
    """Its worker imports torch for a look at types only; the handler has no use for it."""
    (folder / "torch").mkdir(parents=True)
    (folder / "torch" / "__init__.py").write_text(
        "__version__ = '0'\nclass Tensor: pass\nclass cuda:\n"
        "    is_available = staticmethod(lambda: False)\n    device_count = staticmethod(lambda: 0)\n"
    )


def _torchserve_environment(launch: Launch) -> dict[str, str]:
    path = f"{launch.binaries}:/usr/bin:/bin"
    return {"TEMP": str(launch.folder), "PYTHONPATH": str(launch.folder / "stub"), "PATH": path}


def _mms(launch: Launch) -> list[str]:
    model = launch.folder / "store" / mlp.NAME
    (model / "MAR-INF").mkdir(parents=True)
    told = {"modelName": mlp.NAME, "handler": "handler:handle", "modelVersion": "1.0"}
    manifest = {"runtime": "python", "model": told, "modelServerVersion": "1.1"}
    (model / "MAR-INF" / "MANIFEST.json").write_text(json.dumps(manifest))
    for name in ("handler.py", "session.py"):
        (model / name).write_bytes((SERVERS / name).read_bytes())
    models = ["--model-store", str(model.parent), "--models", f"{mlp.NAME}={mlp.NAME}"]
    config = _properties(launch)
    server = str(launch.binaries / "multi-model-server")
    return [server, "--start", "--foreground", *models, "--mms-config", str(config)]


def _mms_environment(launch: Launch) -> dict[str, str]:
    return {"TEMP": str(launch.folder), "PATH": f"{launch.binaries}:/usr/bin:/bin"}


def _properties(launch: Launch, **addresses: int) -> Path:
    named = {"inference_address": launch.ports[0], "management_address": launch.ports[1], **addresses}
    lines = [f"{name}=http://127.0.0.1:{port}" for name, port in named.items()]
    config = launch.folder / "config.properties"
    config.write_text("\n".join([*lines, "default_workers_per_model=1", "job_queue_size=1000", ""]))
    return config


ONNX = "onnxruntime>=1.26,<1.33"

PEERS = (
    Peer("MLServer", ("mlserver==1.7.1", ONNX, "uvloop<0.22"), _mlserver, "/v2/health/ready", V2, V2,
         _mlserver_environment),
    Peer("KServe", ("kserve==0.21.0", ONNX), _kserve, "/v2/health/ready", TFSERVING, TFSERVING, least=3.5),
    Peer("LitServe", ("litserve==0.2.19", ONNX), _litserve, "/health",
         Speech("/predict", mlp.predict_body, _predictions), TFSERVING),
    Peer("BentoML", ("bentoml==1.4.40", ONNX), _bentoml, "/readyz", Speech("/predict", _bentos, lambda rows: rows),
         TFSERVING, _bentoml_environment),
    Peer("seldon-core-microservice", ("seldon-core==1.17.1", ONNX, "setuptools<80"), _seldon, "/health/ping",
         Speech("/api/v1.0/predictions", mlp.seldon_body, _ndarray), SELDON,
         lambda launch: {"PYTHONPATH": str(SERVERS)}),
    Peer("PyTriton", ("nvidia-pytriton==0.7.0", ONNX), _pytriton, "/v2/models/mlp/ready", V2, V2, least=3.5,
         system_python=True),
    Peer("TorchServe", ("torchserve==0.12.0", ONNX, "numpy", "psutil", "packaging", "pyyaml", "enum-compat"),
         _torchserve, "/ping", Speech("/predictions/mlp", mlp.predict_body, _predictions), TFSERVING,
         _torchserve_environment),
    Peer("multi-model-server", ("multi-model-server==1.1.11", "sagemaker-inference", ONNX), _mms, "/ping",
         Speech("/invocations", mlp.predict_body, _predictions), TFSERVING, _mms_environment),
)  # fmt: skip

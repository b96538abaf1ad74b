"""TOML files to frozen Structs; every error names the file and the key."""

import os
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct

from gateway.batching.config import BatchingConfig
from gateway.hints import hinted
from gateway.interfaces import Device, SignatureConfig
from gateway.limitsconfig import KeyLimitsConfig as KeyLimitsConfig
from gateway.limitsconfig import LimitsConfig as LimitsConfig
from gateway.limitsconfig import MemoryConfig as MemoryConfig
from gateway.limitsconfig import MiB, Positive, Seconds
from gateway.limitsconfig import ServiceLimitsConfig as ServiceLimitsConfig
from gateway.observeconfig import PayloadLogConfig as PayloadLogConfig
from gateway.observeconfig import TelemetryConfig as TelemetryConfig
from gateway.serviceconfig import NAME_PATTERN as NAME_PATTERN
from gateway.serviceconfig import AnalysisConfig as AnalysisConfig
from gateway.serviceconfig import AwsCredential as AwsCredential
from gateway.serviceconfig import CanaryConfig as CanaryConfig
from gateway.serviceconfig import ExpectationConfig as ExpectationConfig
from gateway.serviceconfig import KeyConfig as KeyConfig
from gateway.serviceconfig import Metric as Metric
from gateway.serviceconfig import Name
from gateway.serviceconfig import NodeConfig as NodeConfig
from gateway.serviceconfig import ScalingConfig as ScalingConfig
from gateway.serviceconfig import Secret as Secret
from gateway.serviceconfig import ServiceConfig as ServiceConfig
from gateway.serviceconfig import ServiceState as ServiceState
from gateway.serviceconfig import ServiceType as ServiceType
from gateway.serviceconfig import ShadowConfig as ShadowConfig
from gateway.serviceconfig import StepConfig as StepConfig
from gateway.types import ResponseForm

T = TypeVar("T")

Port = Annotated[int, Meta(ge=0, le=65535)]
Bytes = Annotated[int, Meta(ge=0)] | Annotated[str, Meta(pattern=r"^[0-9]+([.][0-9]+)? ?([KMGT]i?)?B$")]
"""A number of bytes, or a text such as "4GiB" or "500 MB"."""


class ConfigError(Exception):
    """A configuration that cannot be used; the text names the file, the key and what was expected."""


class GatewayConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The `[gateway]` table."""

    host: str = "127.0.0.1"
    port: Port = 8080
    grpc_port: Port = 0
    """The port for gRPC, on the same host; 0 turns it off."""
    hosts: str = ""
    """Host header pattern that names a service, e.g. "{service}.example.com"."""
    protocols: tuple[str, ...] | Literal["all"] = "all"
    device: Device = "auto"
    access_log: Literal["json", "off"] = "json"
    poll_seconds: Seconds = 1.0
    """How often the models folders are looked at for changes."""
    drain_seconds: Seconds = 30.0
    """How long requests in flight may take to finish after SIGTERM."""
    data_dir: str = ""
    """Where the control plane keeps what it knows, relative to the file; empty means that there is none."""
    store: str | Secret = ""
    """The control plane's database as SQLAlchemy's URL; empty means a SQLite file in `data_dir`."""
    admin_host: str = "127.0.0.1"
    admin_port: Port = 8081
    """Where the control plane answers; 0 takes a free one."""
    admin_token: Secret | None = None
    """A token of an administrator beside those in the store; needed if `admin_host` is not this machine's own."""
    operator_pages: Literal["auto", "always", "never"] = "auto"
    """Whether `/metrics` and `/statusz` are on the services' port; `auto` for only where there is no control plane."""
    sharing: bool = True
    """Whether members of a project may share services at all."""
    prune: bool = False
    """Whether services that the file no longer names are taken out when a changed file is applied."""
    workers: Annotated[int, Meta(ge=1, le=256)] = 1
    """Processes that answer requests, beside one that leads them; 1 does everything in one."""
    hang_seconds: Annotated[float, Meta(gt=0)] = 10.0
    """How long the event loop of one of many processes may stand still before the process is replaced."""
    model_memory: Bytes = 0
    """What the loaded models may take together, for each process; 0 sets no bound."""
    model_idle_seconds: Annotated[float, Meta(ge=0)] = 0.0
    """After so long without a request a model is unloaded until the next one; 0 for never."""
    model_wait_seconds: Seconds = 60.0
    """How long a request waits for a model that is being loaded again."""
    model_waiting: Positive = 256
    """Requests that may wait for one such model."""


class ResultsConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The `[results]` table: where the answers of deferred inferences go, and what may wait for its turn."""

    dir: str = ""
    """A folder for nothing else, relative to the file; empty means that inferences cannot be deferred."""
    uri: str = ""
    """The folder as clients are told of it, e.g. "s3://bucket/results"; empty means its file: URI."""
    inputs: dict[str, str] = {}
    """URI prefix to the folder that holds the objects under it."""
    at_once: Positive = 2
    """Deferred inferences that run at the same time."""
    most_pending: Positive = 1000
    pending_bytes: Positive = 256 * MiB
    """All the bodies that wait."""
    run_seconds: Seconds = 900.0
    """From its turn to the answer, reading its input included."""
    keep_seconds: Annotated[float, Meta(gt=0)] = 7 * 86400.0


class ModelsControlConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The `[models_control]` table: whether clients may load and unload models by call."""

    enabled: bool = False
    roots: str | tuple[str, ...] = ()
    """The folders that a loaded model may lie in; empty means `models_dir`."""
    app_codes: tuple[str, ...] | Secret = ()
    """The keys that may do so; needed where any service has `app_auth`."""
    most_models: Annotated[int, Meta(ge=0)] = 0
    """Models loaded by call at the same time, after which there is "no memory"; 0 sets no bound."""


class Config(Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file."""

    gateway: GatewayConfig = GatewayConfig()
    limits: LimitsConfig = LimitsConfig()
    models_dir: str | tuple[str, ...] = ()
    models: dict[Name, str] = {}
    """Name to the folder of that one model."""
    models_control: ModelsControlConfig = ModelsControlConfig()
    results: ResultsConfig = ResultsConfig()
    payload_log: PayloadLogConfig = PayloadLogConfig()
    telemetry: TelemetryConfig = TelemetryConfig()
    default_service: str = ""
    output_dir: str = ""
    """Where models may write: each gets the folder VERSION/MODEL in it, VERSION being its service's."""
    protocols: dict[str, dict[str, Any]] = {}
    """A protocol's own table, converted with the adapter's Config."""
    services: dict[Name, ServiceConfig] = {}


class ModelConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The tables of model.toml that the core reads; `plugins` holds the others, each for the plugin of its name."""

    backend: str = "ort"
    versions: Literal["latest", "all"] | Annotated[tuple[Positive, ...], Meta(min_length=1)] = "latest"
    labels: dict[Name, Positive] = {}
    placement: Literal["auto", "inline", "pool"] = "auto"
    """Whether it runs in the gateway's own process, or in workers; auto: workers for a user's class only."""
    memory: Bytes = 0
    """What it takes once loaded, where that is known better than measured; 0 to measure."""
    pinned: bool = False
    """Whether it stays loaded, whoever else needs room."""
    signatures: dict[str, SignatureConfig] = {}
    response: ResponseForm = ResponseForm()
    batching: BatchingConfig = BatchingConfig()
    plugins: dict[str, dict[str, Any]] = {}


def read_toml(path: Path, name: str) -> dict[str, Any]:
    """The file's tables; raises ConfigError, which calls it by the name, if it cannot be read or is not TOML."""
    try:
        return tomllib.loads(path.read_text("utf-8-sig"))
    except OSError as error:
        raise ConfigError(f"{name}: cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{name}: not TOML: {error}") from None


def convert(value: Any, kind: type[T], where: str) -> T:
    """`value` as `kind`; raises ConfigError saying where, as `demo.toml: services.iris.type: Invalid ...`."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        reason, path = _parts(error)
        while HIDDEN in path:
            path = path.replace(HIDDEN, f".{_culprit(value, kind, path)}", 1)
        raise ConfigError(f"{where}: {path.lstrip('.') or '(top level)'}: {hinted(reason, kind, path)}") from None


HIDDEN = "[...]"
"""What msgspec writes for a key of a dict."""


def _parts(error: msgspec.ValidationError) -> tuple[str, str]:
    """The reason, and the path as `.services[...].aliases[0]`."""
    reason, _, path = str(error).partition(" - at `")
    return reason, path.removeprefix("key` in `").removeprefix("$").rstrip("`")


def _culprit(value: Any, kind: type[Any], path: str) -> str:
    """The key that `path` hides first: the one that still fails when it is alone in its dict."""
    names = [name for name in path[: path.index(HIDDEN)].split(".") if name]
    table = value
    for name in names:
        table = table.get(name, {})
    for key, item in table.items():
        alone: Any = {key: item}
        for name in reversed(names):
            alone = {name: alone}
        try:
            msgspec.convert(alone, kind)
        except msgspec.ValidationError:
            return str(key)
    return "*"


def load(path: Path) -> Config:
    """The gateway's configuration file."""
    return convert(read_toml(path, path.name), Config, path.name)


def load_model(path: Path) -> ModelConfig:
    """A model.toml; a missing file means every default."""
    if not path.exists():
        return ModelConfig()
    name = f"{path.parent.name}/{path.name}"
    tables = read_toml(path, name)
    own = {key: tables.pop(key) for key in list(tables) if key in ModelConfig.__struct_fields__[:-1]}
    config = convert(own, ModelConfig, name)
    for key, table in tables.items():
        if not isinstance(table, dict):
            known = ", ".join(ModelConfig.__struct_fields__[:-1])
            raise ConfigError(f"{name}: {key}: unknown key; expected one of {known} or a table")
    return msgspec.structs.replace(config, plugins=tables)


def bytes_of(size: int | str) -> int:
    """A size as configured, in bytes."""
    if isinstance(size, int):
        return size
    number, unit = size.rstrip("B").rstrip(), 1
    for power, prefix in enumerate("KMGT", 1):
        for suffix, base in ((f"{prefix}i", 1024), (prefix, 1000)):
            if number.endswith(suffix):
                number, unit = number.removesuffix(suffix), base**power
    return int(float(number) * unit)


def folders(names: str | tuple[str, ...], base: Path) -> tuple[Path, ...]:
    """The folders that a key names, relative ones taken from `base`."""
    return tuple(base / name for name in ((names,) if isinstance(names, str) else names) if name)


def models_dirs(config: Config, file: Path | None) -> tuple[Path, ...]:
    """The models folders, relative ones taken from the file's own folder."""
    return folders(config.models_dir, file.parent if file else Path())


def secret_text(where: str, secret: Secret, base: Path) -> str:
    """What the secret says. Raises ConfigError where it cannot be had."""
    if bool(secret.env) == bool(secret.file):
        raise ConfigError(f"{where}: give exactly one of env and file")
    if secret.env:
        if secret.env not in os.environ:
            raise ConfigError(f"{where}: the environment variable {secret.env} is not set")
        return os.environ[secret.env]
    try:
        return (base / secret.file).read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{where}: {secret.file} cannot be read: {getattr(error, 'strerror', error)}") from None

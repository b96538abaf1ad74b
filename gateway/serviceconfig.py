"""A service as the file, the store and the API describe it; `gateway.config` offers the same names."""

import math
from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from gateway.limitsconfig import KeyLimitsConfig, Positive, ServiceLimitsConfig

NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}\Z"
"""Services, models, labels: nothing that a file system or a URL could read as more than a name."""

Name = Annotated[str, Meta(pattern=NAME_PATTERN)]
ServiceType = Literal["tfserving", "seldon", "sagemaker", "openai", "v2", "custom", "any"]
VERSION_PATTERN = r"^\d+\.\d+\.\d+\Z"
ServiceVersion = Annotated[str, Meta(pattern=VERSION_PATTERN)]
ServiceState = Literal["running", "starting", "stopping", "stopped", "expired", "failed"]
Percent = Annotated[int, Meta(ge=0, le=100)]
Step = Annotated[int, Meta(ge=1, le=100)]
Moment = Annotated[datetime, Meta(tz=True)]
"""With its offset from UTC, so that no machine's time zone matters."""

HASH_PATTERN = r"^(sha256:[0-9a-f]{64}|scrypt:16384:8:5:[0-9a-f]{32,128}:[0-9a-f]{64})\Z"
DURATION_PATTERN = r"^(\d{1,9}[sm]|\d{1,7}h|\d{1,6}d)?\Z"
"""NOTE: from any start that there will be, the end is a date that there is: before the year 10000."""
KeyScope = Literal["infer", "describe", "tfserving", "seldon", "sagemaker", "openai", "v2"]
"""`infer` asks the model, `describe` reads what it is and how it stands; a protocol's name is both by it."""


class Secret(Struct, frozen=True, forbid_unknown_fields=True):
    """A value that lives elsewhere: exactly one of `env` (a variable's name) and `file` (a path)."""

    env: str = ""
    file: str = ""


class AwsCredential(Struct, frozen=True, forbid_unknown_fields=True):
    """One of a service's `aws_credentials`: whoever signs with it need send no key."""

    access_key_id: Annotated[str, Meta(pattern=r"^\w{0,128}\Z")] = ""
    secret: Secret = Secret()


Metric = Literal["concurrency", "requests_per_second", "cpu_percent", "memory_percent", "queue_ms", "latency_ms"]
"""What nodes are scaled by: of a node on average, but for latency, which is the service's."""


class ExpectationConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """One of a service's `scaling.expectations`: the value that a metric should have."""

    metric: Metric
    value: Annotated[float, Meta(gt=0, le=1e12)]


class StepConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """`scaling.up` and `scaling.down`: how fast nodes may come or go; where both bounds are set, the smaller holds."""

    interval_seconds: Annotated[float, Meta(ge=0, le=86400)] = 0.0
    """Between two steps in the same direction."""
    max_nodes: Annotated[int, Meta(ge=0)] = 0
    """At a time; 0 sets no bound."""
    max_percent: Annotated[float, Meta(ge=0, le=10000)] = 0.0
    """Of the nodes there are, at a time, but at least one node; 0 sets no bound."""


class ScalingConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """A service's `scaling` table: its nodes follow its load."""

    min: Annotated[int, Meta(ge=0, le=1024)] = 1
    max: Annotated[int, Meta(ge=1, le=1024)] = 1
    expectations: Annotated[tuple[ExpectationConfig, ...], Meta(min_length=1, max_length=6)] = (
        ExpectationConfig("concurrency", 4.0),
    )
    up: StepConfig = StepConfig()
    down: StepConfig = StepConfig()
    window_seconds: Annotated[float, Meta(ge=0, le=86400)] = 300.0
    """Nodes go only if every value of so long a time lay below its expectation."""

    def __post_init__(self) -> None:
        if self.min > self.max:
            raise ValueError(f"min is {self.min}, which is more than max, {self.max}")


class KeyConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """One of a service's `keys`: a code of which only the hash is known here."""

    id: Name
    """What lists, logs and limits call it; never secret."""
    hash: Annotated[str, Meta(pattern=HASH_PATTERN)]
    """`sha256:HEX` of a code that was generated, `scrypt:16384:8:5:SALT:HEX` of one that a person chose."""
    name: str = ""
    """For people."""
    scopes: tuple[KeyScope, ...] = ()
    """The operations and protocols that it opens; empty means all."""
    limits: KeyLimitsConfig | None = None
    """What it may use of the service, in the place of the service's `limits.key`."""
    expires_at: Moment | None = None
    """In a rotation: the end of the overlap."""
    revoked: bool = False


class ShadowConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """A canary's `shadow` table: requests that it also gets, and whose answers nobody is sent."""

    percent: Percent = 0
    """Of the requests that the stable deployment answers."""
    at_once: Annotated[int, Meta(ge=1, le=256)] = 4
    """Copies that run at the same time; beyond, none is made."""
    tolerance: Annotated[float, Meta(ge=0, le=1e12)] = 1e-4
    """How far numbers may lie apart, absolutely and in relation, and still count as the same."""


class AnalysisConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """A canary's `analysis` table: its weight follows how it does."""

    steps: Annotated[tuple[Step, ...], Meta(min_length=1, max_length=32)] = (10, 25, 50, 100)
    """The weights, one after each good window."""
    window_seconds: Annotated[float, Meta(ge=0.1, le=86400)] = 60.0
    samples: Positive = 100
    """Answers of the canary that a window must have; one with fewer goes on."""
    error_percent: Annotated[float, Meta(ge=0, le=100)] = 1.0
    """Of the canary's answers, at most, beyond what the stable deployment has."""
    percentile: Annotated[float, Meta(gt=0, lt=100)] = 95.0
    """Of the seconds that an answer takes."""
    latency_ms: Annotated[float, Meta(ge=0, le=1e12)] = 0.0
    """The canary's percentile, at most; 0 sets no bound."""
    latency_ratio: Annotated[float, Meta(ge=0, le=1e12)] = 0.0
    """The canary's percentile as a multiple of the stable deployment's, at most; 0 sets no bound."""
    bad_windows: Positive = 1
    """In a row, after which the canary gets no requests any more."""
    take_over: bool = False
    """Whether the canary becomes the stable deployment after a good window at the last step."""

    def __post_init__(self) -> None:
        if list(self.steps) != sorted(set(self.steps)):
            raise ValueError("steps must rise")


class CanaryConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """A service's `canary` table: a second deployment, which answers some of the requests."""

    model: str = ""
    """The model's folder name; empty means the service's own model."""
    model_version: Annotated[int, Meta(ge=0)] = 0
    """0 means the latest."""
    version: ServiceVersion = "1.0.0"
    """The service's version that it would make."""
    weight: Percent = 0
    """Percent of the requests that name neither a version nor a variant."""
    nodes: Annotated[int, Meta(ge=1, le=1024)] = 1
    """How many nodes its model has of its own, unless `scaling` decides."""
    scaling: ScalingConfig | None = None
    """Its nodes follow its load, not the service's."""
    shadow: ShadowConfig = ShadowConfig()
    analysis: AnalysisConfig | None = None
    halted: str = ""
    """Why the analysis took its requests away; with it, nothing is analysed."""


class NodeConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """A service's `node` table: what one of its nodes may use."""

    threads: Annotated[int, Meta(ge=0, le=1024)] = 0
    """0 for what the model's own table says."""
    memory_mib: Annotated[int, Meta(ge=0)] = 0
    """A node that holds more is ended and started anew; 0 sets no bound."""
    device: Literal["auto", "cuda", "cpu"] = "auto"
    driver: Annotated[str, Meta(max_length=64)] = ""
    """The accelerator driver's version that its machine must have; not together with `nodes_allowed`."""


class ServiceConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """A `[services.NAME]` table."""

    model: str = ""
    """The model's folder name; empty means the service's own name."""
    model_version: Annotated[int, Meta(ge=0)] = 0
    """For calls that name none; 0 means the latest."""
    version: ServiceVersion = "1.0.0"
    """The service's own version, not the model's."""
    type: ServiceType = "any"
    aliases: tuple[Annotated[str, Meta(min_length=1, max_length=256)], ...] = ()
    owner: str = ""
    state: ServiceState = "running"
    reason: str = ""
    """Why it is in this state, for callers to read; only `failed` needs one."""
    duration: Annotated[str, Meta(pattern=DURATION_PATTERN)] = ""
    """From its start to its expiry, as `90s`, `15m`, `8h` or `7d`; empty for ever."""
    expires_at: Moment | None = None
    """Counts before `duration`: when a service that was started at another time stops."""
    canary: CanaryConfig | None = None
    app_auth: bool = False
    app_codes: tuple[str, ...] | Secret = ()
    keys: tuple[KeyConfig, ...] = ()
    """Beside `app_codes`: codes that are stored as hashes."""
    aws_credentials: tuple[AwsCredential, ...] = ()
    protocols: dict[str, dict[str, Any]] = {}
    """Tables that lie over the protocols' own for calls of this service."""
    limits: ServiceLimitsConfig = ServiceLimitsConfig()
    """What its callers may use, over `[limits.service]`."""
    project: str = ""
    """Whose members share it, as `sharing` says."""
    sharing: Literal["rw", "ro", "none"] = "none"
    """What other members of the project may do with it: all, look and use, or nothing."""
    environment: dict[str, str] = {}
    """Variables over those of the model package."""
    parameters: dict[str, str | int | float | bool] = {}
    """Parameters over those of the model package; for type `custom` only."""
    node: NodeConfig = NodeConfig()
    nodes: Annotated[int, Meta(ge=0, le=1024)] = 1
    """How many it has, unless `scaling` decides."""
    nodes_allowed: tuple[Name, ...] = ()
    """The machines that its nodes may run on; empty means all."""
    scaling: ScalingConfig | None = None

    def __post_init__(self) -> None:
        if self.parameters and self.type != "custom":
            raise ValueError(f"parameters are for services of type custom only, not {self.type}")
        if any(isinstance(value, float) and not math.isfinite(value) for value in self.parameters.values()):
            raise ValueError("parameters: expected numbers that JSON has, too")
        if self.node.driver and self.nodes_allowed:
            raise ValueError("give either node.driver or nodes_allowed: a machine that is named has the driver it has")

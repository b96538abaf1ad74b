"""What adapters, backends and wrappers must offer, and the operations an adapter is made of.

An adapter module exports `Config` (a frozen msgspec Struct) and `create(config, limits) -> Adapter`; it may export
`serve_defaults() -> dict`: what its platform says of a container, as tables under those of the configuration file.
A backend module exports `Config` and `async load(source, config) -> Backend`.
A wrapper module (an optional table of model.toml) exports `Config` and `wrap(backend, config, source) -> Backend`.
"""

import re
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from pathlib import Path
from typing import Literal, Protocol, runtime_checkable
from urllib.parse import unquote

from msgspec import Struct

from gateway.errors import GatewayError, ModelNotFound
from gateway.types import (
    INT64_MAX,
    Allowance,
    Call,
    InferenceRequest,
    InferenceResponse,
    Method,
    ModelMetadata,
    ModelStatus,
    Reply,
    RequestSeries,
    Target,
)

Device = Literal["auto", "cuda", "cpu"]

GRPC = "GRPC"
"""The method of calls that are gRPC's; their path is the method's full name."""
GRPC_STATUS = "grpc-status"
"""The header of their replies."""
WEBSOCKET = "WEBSOCKET"
"""The method of a call that is one text of a websocket; its answer's body, or each chunk of it, is one, too."""


def from_path(call: Call) -> Target:
    """The target that the path's `{model}`, `{version}` and `{label}` name; ModelNotFound for what is no version."""
    params = call.params
    model, label, version = params.get("model"), params.get("label"), params.get("version")
    return Target(
        model=unquote(model) if model else None,
        version=version_number(version) if version else None,
        label=unquote(label) if label else None,
    )


def version_number(text: str) -> int:
    """The version that the text writes. Raises ModelNotFound for what is none, or beyond 64 bits."""
    digits = text.lstrip("0") or "0"
    if digits.isascii() and digits.isdigit() and len(digits) <= len(str(INT64_MAX)) and int(digits) <= INT64_MAX:
        return int(digits)
    raise ModelNotFound(f"{text[:32]!r} is no version: expected a whole number up to {INT64_MAX}")


class Operation(Struct, frozen=True, kw_only=True):
    """A path that an adapter answers."""

    method: str
    path: str
    """For people, and the pattern where `pattern` is None: `{name}` stands for `[^/:]+`.

    Of operations that all match, the one with the most characters outside of captures answers, then the first.
    """
    pattern: re.Pattern[str] | None = None
    """Matched whole against the percent-encoded path; its named groups become `Call.params`."""
    target: Callable[[Call], Target] = from_path
    fits: Callable[[ModelMetadata], bool] | None = None
    """Which models it is for, where it is for a few only: a call that names none means one of them."""


class Infer(Operation, frozen=True, kw_only=True):
    """Body to tensors, one run, tensors to body."""

    decode: Callable[[Call, Target, ModelMetadata], InferenceRequest | Reply]
    """A reply is an answer that this model needs no run for."""
    decode_quickly: Callable[[Call, Target, ModelMetadata], InferenceRequest | None] | None = None
    """The common case of `decode` at full speed; None for a body that takes long, which is then read on a thread."""
    encode: Callable[[InferenceResponse, InferenceRequest, Call], Reply]
    stream: Callable[[AsyncIterator[InferenceResponse], InferenceRequest, Call], Reply] | None = None
    """Encodes the parts when `request.stream` is set; failures after the first part are the reply's own business."""
    allowance: Callable[[Allowance], tuple[tuple[str, str], ...]] | None = None
    """Headers that tell what is left of the requests a second, for callers that have a limit."""
    check_body: Callable[[Call], None] | None = None
    """Called when the model is unknown: raises what the protocol reports before that."""


class Results(Struct, frozen=True):
    """Where a deferred answer will lie, as the client is told."""

    id: str
    output: str
    """URI of the answer's body."""
    failure: str
    """URI of the error's body, should it fail."""


class Defer(Infer, frozen=True, kw_only=True):
    """An inference that is answered at once and run later; its reply is written to the results folder."""

    accepted: Callable[[Results, Call], Reply]
    input_uri: Callable[[Call], str | None]
    """Where the body lies if it is not in the call: a URI that the configuration maps to a folder."""
    id: Callable[[Call], str | None]
    """The caller's own name for the inference."""


class LoadModel(Struct, frozen=True):
    """Serve what lies at `url` under that name."""

    name: str
    url: str
    """Empty for the folder of that name inside a root."""
    again: bool = False
    """Whether a model of that name that answers already is as good as loaded, and not ModelExists."""


class UnloadModel(Struct, frozen=True):
    """Stop serving a model that was loaded by LoadModel."""

    name: str


class ListModels(Struct, frozen=True):
    """The models loaded by LoadModel; one, if named."""

    name: str = ""


class ManagedModel(Struct, frozen=True):
    """A model that a client had loaded."""

    name: str
    url: str


class Manage(Operation, frozen=True, kw_only=True):
    """Models come and go by call; refused with Forbidden unless the configuration allows it.

    Raises ModelNotFound, ModelExists, OutOfMemory, LoadFailed; Forbidden for a URL outside the allowed roots.
    """

    command: Callable[[Call], LoadModel | UnloadModel | ListModels]
    encode: Callable[[list[ManagedModel], Call], Reply]
    """Gets the models that the command was about, in the order of their names."""


class Describe(Operation, frozen=True, kw_only=True):
    """A version's metadata."""

    encode: Callable[[ModelMetadata, Call, Target], Reply]


class Status(Operation, frozen=True, kw_only=True):
    """The states of a model's versions; `encode` gets None for a model that does not exist."""

    encode: Callable[[ModelStatus | None, Call, Target], Reply]


class Index(Operation, frozen=True, kw_only=True):
    """The states of all models that the caller may use, under their services' names."""

    encode: Callable[[list[ModelStatus], Call], Reply]


class Ready(Operation, frozen=True, kw_only=True):
    """Whether the gateway, or the service that the path names, takes requests."""

    encode: Callable[[bool, Call], Reply]


class Answer(Operation, frozen=True, kw_only=True):
    """A reply that needs no model."""

    reply: Callable[[Call], Reply]


class Metrics(Operation, frozen=True, kw_only=True):
    """The request counters under the protocol's own names."""

    render: Callable[[Sequence[RequestSeries]], Reply]


class DecodeLimits(Struct, frozen=True):
    """What a decoder may build from one body before it refuses."""

    elements: int = 16 << 20
    """Values in all the tensors of a request; more is BodyTooLarge."""
    depth: int = 254
    """Nesting of arrays and objects in tensors."""


class Adapter(Protocol):
    """One wire protocol: a table of operations and pure functions."""

    ignores_unknown_codings: bool
    """True: a body under a Content-Encoding other than gzip is read as it is; False: it is refused."""

    def routes(self) -> Iterable[Operation]:
        """The operations."""

    def claims(self, call: Call) -> int:
        """How surely a call that no operation matches speaks this protocol: 0 not at all; the highest answers."""

    def encode_error(self, error: GatewayError, call: Call) -> Reply:
        """The error in the caller's dialect."""


class SignatureConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """A `[signatures.NAME]` table of model.toml."""

    method: Method = "predict"
    inputs: dict[str, str] = {}
    """Name on the wire to name in the graph; empty means all of the graph's, under their own names."""
    outputs: dict[str, str] = {}


class ModelSource(Struct, frozen=True):
    """One version of a model on disk, and how it is to be run."""

    name: str
    version: int
    directory: Path
    root: Path
    """The model's own folder: no file outside it may be opened."""
    signatures: dict[str, SignatureConfig] = {}
    device: Device = "auto"
    output: Path | None = None
    """The folder that it may write to; perhaps not there yet."""


class Upstream(Struct, frozen=True):
    """The server behind a custom service, as its backend's metadata tells under "upstream"."""

    url: str
    """Without a slash at its end."""
    connect_seconds: float
    idle_seconds: float
    """How long it may say nothing while a call waits for it."""


class BackendStatus(Struct, frozen=True):
    """Where a loaded model runs."""

    provider: str
    """"CPU", "CUDA", or the backend's own word."""
    note: str = ""
    """Why it is not where it was wanted, e.g. the reason of a fallback; safe to show."""
    fallbacks: int = 0
    """Times that CUDA failed and CPU took over, at load or at run time."""
    ready: bool = True
    """False while it is loaded, and yet cannot answer."""


@runtime_checkable
class Prompt(Protocol):
    """A backend some of whose runs are too short for a thread."""

    def infer_now(self, request: InferenceRequest) -> InferenceResponse | None:
        """The answer, on the event loop; None where that would keep it too long, or `infer` knows better what to do.

        Raises InvalidTensor or SignatureNotFound.
        """


@runtime_checkable
class Taskless(Protocol):
    """A backend whose `infer` sees to it by itself if it needs a task to run in; others are given one."""

    needs_no_task: bool


@runtime_checkable
class Parallel(Protocol):
    """A backend that gains from several runs at the same time."""

    @property
    def runs_at_once(self) -> int:
        """How many."""


class Measured(Protocol):
    """Nodes: replicas of a model in processes of their own."""

    @property
    def nodes(self) -> tuple[int, int]:
        """How many are ready, and how many there should be."""

    @property
    def process_bytes(self) -> int:
        """What they hold of the machine's memory."""

    @property
    def cpu_seconds(self) -> float:
        """What they have computed so far."""


@runtime_checkable
class Scalable(Measured, Protocol):
    """A backend that answers from nodes."""

    def scale(self, nodes: int) -> None:
        """Have so many from now on; returns at once, and no call is lost."""


class Backend(Protocol):
    """A loaded version of a model. A wrapper satisfies the same protocol."""

    @property
    def metadata(self) -> ModelMetadata:
        """Fixed from load to close."""

    @property
    def status(self) -> BackendStatus:
        """May change while the model serves."""

    async def infer(self, request: InferenceRequest) -> InferenceResponse:
        """Run once. Raises InvalidTensor, SignatureNotFound or BackendError."""

    def stream(self, request: InferenceRequest) -> AsyncIterator[InferenceResponse]:
        """Answer in parts; closing the iterator stops the work."""

    async def close(self) -> None:
        """Free everything; nothing is in flight any more."""

"""The vocabulary every room speaks: tensors and signatures on the model side, Call and Reply on the HTTP side."""

from collections.abc import AsyncIterator, Mapping
from contextvars import ContextVar
from typing import Any, Literal

import numpy as np
from msgspec import Struct

Tensor = np.ndarray
"""C-contiguous, native-endian. Strings are object arrays of `str`, or of `bytes` where the client sent binary.

Dtypes numpy lacks (bfloat16, the float8 family) travel as float32, exactly; their `TensorSpec.dtype` keeps the name.
"""

Method = Literal["predict", "classify", "regress"]
Batchable = Literal["likely", "never", "unknown"]
"""Whether rows of several requests may be run together: likely where all inputs and outputs share one named first
dimension; never where an answer depends on chance or on past requests, or its rows differ in length."""
State = Literal["START", "LOADING", "AVAILABLE", "UNLOADING", "END"]

DEFAULT_SIGNATURE = "serving_default"

trace_headers: ContextVar[tuple[tuple[str, str], ...]] = ContextVar("trace_headers", default=())
"""Of a request that is traced, W3C's traceparent and tracestate: for servers that are asked on its behalf."""


class Lap(Struct, frozen=True):
    """What a backend did for a request, from one moment to another."""

    name: str
    start: float
    """As `time.perf_counter` has it, which is one clock for all processes of a machine."""
    end: float
    attributes: Mapping[str, str | int] = {}


laps: ContextVar[list[Lap] | None] = ContextVar("laps", default=None)
"""Of a request that is traced: what its backend tells of itself."""

INT64_MAX = (1 << 63) - 1
"""The greatest version that a model can have."""

LENGTHS = "lengths"
"""Parameter of an answer whose rows differ in length: for each, how many values of the second dimension are its own.
The rest of the row is filled up; protocols whose rows may differ leave it out."""

FLOAT32_CARRIED = frozenset({"bfloat16", "float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz"})
"""Declared dtypes whose tensors are float32 arrays."""


class TensorSpec(Struct, frozen=True):
    """What a signature declares of one tensor."""

    name: str
    dtype: str
    """A numpy dtype name, or "string", or one of FLOAT32_CARRIED, or "any": whatever the values themselves are."""
    shape: tuple[int | None, ...] | None
    """None for a free dimension; a shape of None means that even the rank is unknown."""
    media: str = ""
    """"image": the input also takes encoded images, an object array of `bytes`, one item a row."""

    @property
    def numpy_dtype(self) -> np.dtype:
        """The dtype of the arrays that carry this tensor."""
        if self.dtype in ("string", "any"):
            return np.dtype(object)
        return np.dtype(np.float32 if self.dtype in FLOAT32_CARRIED else self.dtype)


class Signature(Struct, frozen=True):
    """One way to call a model."""

    name: str
    method: Method
    inputs: dict[str, TensorSpec]
    outputs: dict[str, TensorSpec]
    batchable: Batchable = "unknown"


class ResponseForm(Struct, frozen=True, forbid_unknown_fields=True):
    """The `[response]` table of model.toml: how protocols that know several forms write this model's answers."""

    form: str = "predictions"
    names: dict[str, str] = {}
    """Output name to the name that it gets in the answer."""
    accept: str = ""
    """The media type for callers that name none."""


class ModelMetadata(Struct, frozen=True):
    """What one loaded version says of itself."""

    name: str
    version: int
    platform: str
    signatures: dict[str, Signature]
    response: ResponseForm = ResponseForm()
    extras: Mapping[str, Any] = {}
    """What only some backends tell. A language model: "task", "generate" or "embed". A user's class: "has", its
    methods, "init_metadata", what it says of itself, and "environment", what its environment tells of it. What another
    server answers: "tasks", where it has several; "forwards", the names of the client's headers that it wants in
    `InferenceRequest.headers`."""
    versions: tuple[int, ...] = ()
    """All versions of the model that answer, oldest first; set for `Describe` only."""


class InferenceRequest(Struct, frozen=True):
    """One question to one model, whatever protocol asked it."""

    inputs: dict[str, Tensor]
    signature: str = DEFAULT_SIGNATURE
    outputs: tuple[str, ...] = ()
    """The outputs wanted; empty means all of the signature's."""
    parameters: Mapping[str, Any] = {}
    deadline: float | None = None
    """On the monotonic clock, seconds."""
    id: str = ""
    stream: bool = False
    """The caller wants the answer in parts."""
    headers: tuple[tuple[str, str], ...] = ()
    """Those of the call that the backend's metadata names under "forwards", and the request's id."""
    wire: Any = None
    """Private to the adapter that decoded the request: what its encoder must remember."""


class InferenceResponse(Struct, frozen=True):
    """A model's answer, or one part of a streamed one. `outputs` keeps the signature's order."""

    outputs: dict[str, Tensor]
    parameters: Mapping[str, Any] = {}


class VersionStatus(Struct, frozen=True):
    """Where one version of a model stands."""

    version: int
    state: State
    error: str = ""
    """Why it could not be loaded, or why its replacement could not; safe to show."""


class ModelStatus(Struct, frozen=True):
    """All tracked versions of a model, newest first."""

    name: str
    versions: tuple[VersionStatus, ...]
    labels: dict[str, int] = {}
    metadata: ModelMetadata | None = None
    """What the newest version that answers says of itself; set for `Index` and `Status`."""
    aliases: tuple[str, ...] = ()
    """Other names of the service; set as `metadata` is."""
    unready: tuple[int, ...] = ()
    """Versions that are loaded, and yet cannot answer just now; set as `metadata` is."""


class Target(Struct, frozen=True):
    """Which model a call means. None for `model` means that the path names none."""

    model: str | None = None
    version: int | None = None
    label: str | None = None
    parsed: Any = None
    """Private to the adapter that set it: what `target` learned from the body."""
    named: bool = False
    """A call without a name in path, prefix, host, header or body is wrong: no default answers it."""


class Call(Struct, frozen=True):
    """One HTTP request, as adapters see it."""

    method: str
    raw_path: str
    """Still percent-encoded, without the query and without a service prefix."""
    params: Mapping[str, str] = {}
    """What the operation's path pattern captured, still percent-encoded."""
    query: str = ""
    headers: list[tuple[bytes, bytes]] = []
    """Names in lower case."""
    body: bytes = b""
    """Whole, with any content coding already undone."""
    id: str = ""
    """The request's id in the log and in X-Request-Id."""
    deadline: float | None = None
    """When the caller stops waiting, as far as its protocol tells; on the monotonic clock, seconds."""
    fields: Mapping[bytes, bytes] | None = None
    """The first header of each name, where whoever read them made note of it."""
    learned: dict[str, Any] | None = None
    """Of a head that comes again and again: what was found out about it, by whom it was."""

    def header(self, name: bytes) -> str | None:
        """The first header of that lower-case name."""
        # PERF: half a dozen of them are asked for in each request.
        if self.fields is not None:
            value = self.fields.get(name)
            return None if value is None else value.decode("latin-1")
        for key, value in self.headers:
            if key == name:
                return value.decode("latin-1")
        return None


class Reply(Struct, frozen=True):
    """One HTTP response."""

    body: bytes | AsyncIterator[bytes]
    """An iterator is sent chunk by chunk as it yields; who sends it closes it."""
    status: int = 200
    media_type: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()


class Allowance(Struct, frozen=True):
    """What a caller may send still, for protocols that tell."""

    limit: int
    """Requests a second."""
    remaining: int
    reset_seconds: float
    """Until one more may be sent."""


class RequestSeries(Struct, frozen=True):
    """Requests of one kind, counted since the start: what a metrics page is rendered from."""

    protocol: str
    service: str
    """Empty where none was found."""
    operation: str
    status: int
    count: int
    seconds: float
    bucket_counts: tuple[int, ...]
    """One per bound of `bucket_bounds`, then those above the last; not cumulative."""
    bucket_bounds: tuple[float, ...]
    """Seconds."""

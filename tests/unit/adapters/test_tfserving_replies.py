"""What TF Serving's dialect says around the tensors: paths, errors, status, metadata, metrics and CORS."""

import json

import pytest
from prometheus_client.parser import text_string_to_metric_families

from adapters.tfserving import Config, create
from gateway import errors
from gateway.errors import GatewayError
from gateway.interfaces import DecodeLimits, Describe, Metrics, Status
from gateway.paths import PathTable
from gateway.types import (
    Call,
    ModelMetadata,
    ModelStatus,
    Reply,
    RequestSeries,
    Signature,
    Target,
    TensorSpec,
    VersionStatus,
)

ADAPTER = create(Config(), DecodeLimits())
TABLE = PathTable({"tfserving": ADAPTER})
CALL = Call("POST", "/v1/models/m:predict")
CHALLENGE = 'APPCODE realm="tensorgate", Bearer realm="tensorgate"'


# Paths...


@pytest.mark.parametrize(
    ("method", "path", "operation", "target"),
    [
        ("POST", "/v1/models/m:predict", "predict", Target("m")),
        ("POST", "/v1/models/m/versions/3:classify", "classify", Target("m", 3)),
        ("POST", "/v1/models/m/labels/a%20b:regress", "regress", Target("m", None, "a b")),
        ("POST", "/V1/MODELS/a%2Fb%3Ac/VERSIONS/007:predict", "predict", Target("a/b:c", 7)),
        ("POST", "/v1/models:predict", "predict", Target()),
        ("POST", "/v1/models/versions/3:predict", "predict", Target(None, 3)),
        ("POST", "/v1/models/labels/stable:predict", "predict", Target(None, None, "stable")),
        ("POST", "/v1/models/versions:predict", "predict", Target("versions")),
        ("GET", "/v1/models/m", "status", Target("m")),
        ("GET", "/v1/models/metadata", "status", Target("metadata")),
        ("GET", "/v1/models/m/METADATA", "status", Target("m")),
        ("GET", "/v1/models/m/metadata", "describe", Target("m")),
        ("GET", "/v1/models/m/versions/9223372036854775807/metadata", "describe", Target("m", 2**63 - 1)),
        ("GET", "/v1/models/labels/metadata", "describe", Target("labels")),
    ],
)
def test_paths_are_understood(method: str, path: str, operation: str, target: Target) -> None:
    """A path gives an operation and the model, version or label that it means."""
    call = Call(method, path)
    route = TABLE.find(call)
    assert route.name == operation
    assert route.operation.target(Call(method, path, route.params)) == target


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/models/m:PREDICT"),
        ("POST", "/v1/models/m/:predict"),
        ("POST", "/v1/models//m:predict"),
        ("POST", "/v1/models/m/version/1:predict"),
        ("POST", "/v1/models/m/versions/-1:predict"),
        ("POST", "/v1/models/m/versions/٣:predict"),
        ("POST", "/v1/models/m/versions/1/labels/a:predict"),
        ("POST", "/v1/models/m:predict/"),
        ("GET", "/v1/models/m/"),
        ("GET", "/v1/models/m:predict"),
        ("DELETE", "/v1/models/m"),
    ],
)
def test_other_paths_are_malformed(method: str, path: str) -> None:
    """Everything else below /v1/ is a 400 that shows what is valid."""
    call = Call(method, path)
    with pytest.raises(GatewayError) as caught:
        TABLE.find(call)
    reply = ADAPTER.encode_error(caught.value, call)
    text = json.loads(reply.body)["error"]
    assert reply.status == 400
    assert text.startswith(f"Malformed request: {method} {path}; valid are POST /v1/models/NAME")


@pytest.mark.parametrize("path", ["/v1/models", "/v1/models/versions/1", "/v1/models/labels/a/metadata"])
def test_a_name_is_missed(path: str) -> None:
    """There is no list of models."""
    route = TABLE.find(Call("GET", path))
    reply = route.operation.reply(Call("GET", path))
    assert (reply.status, reply.body) == (400, b'{"error":"Missing model name in request."}')


@pytest.mark.parametrize("version", ["9223372036854775808", "9" * 5000])
def test_version_beyond_int64_is_told(version: str) -> None:
    """Where TF Serving's answer is empty, ours has its text."""
    call = Call("GET", f"/v1/models/m/versions/{version}")
    route = TABLE.find(call)
    with pytest.raises(GatewayError) as caught:
        route.operation.target(Call("GET", call.raw_path, route.params))
    reply = ADAPTER.encode_error(caught.value, call)
    assert reply.status == 400
    assert json.loads(reply.body) == {"error": f"Failed to convert version: {version[:64]} to numeric."}


@pytest.mark.parametrize(("path", "claim"), [("/v1/x", 2), ("/V1/", 2), ("/v1", 0), ("/v2/models", 0), ("/v10/a", 0)])
def test_what_is_claimed(path: str, claim: int) -> None:
    """Everything below /v1/, and nothing else."""
    assert ADAPTER.claims(Call("GET", path)) == claim


# Errors...


def test_an_unknown_model_comes_with_a_hint() -> None:
    """TF Serving's text stays as clients match it; what helps stands beside it."""
    error = errors.ModelNotFound("there is no service 'm'; there are: n", "m")
    assert json.loads(ADAPTER.encode_error(error, CALL).body) == {
        "error": "Servable not found for request: Latest(m)",
        "hint": "there is no service 'm'; there are: n",
    }


@pytest.mark.parametrize(
    ("error", "status", "text"),
    [
        (errors.ModelNotFound("text", "m"), 404, "Servable not found for request: Latest(m)"),
        (errors.ModelNotFound("text", "m", 0), 404, "Servable not found for request: Specific(m, 0)"),
        (errors.ModelNotFound("no model, there are: a, b"), 404, "no model, there are: a, b"),
        (
            errors.SignatureNotFound("there is no signature 's'; there are: t", "s"),
            400,
            "Serving signature name: \"s\" not found in signature def; there is no signature 's'; there are: t",
        ),
        (
            errors.LabelNotFound("its labels: none", "m", "l"),
            400,
            "Unrecognized servable version label: l; its labels: none",
        ),
        (errors.MalformedBody("The document is empty: x"), 400, "JSON Parse error: The document is empty: x"),
        (errors.MalformedBody("JSON Value: 1 Is not object"), 400, "JSON Value: 1 Is not object"),
        (errors.InvalidTensor("lone \ud800"), 400, "lone ?"),
        (errors.InferenceFailed("text"), 500, "text"),
    ],
)
def test_errors_in_tf_servings_words(error: GatewayError, status: int, text: str) -> None:
    """The texts that clients of TF Serving look for."""
    reply = ADAPTER.encode_error(error, CALL)
    assert (reply.status, json.loads(reply.body)["error"]) == (status, text)
    assert reply.media_type == "application/json"


@pytest.mark.parametrize(
    ("error", "headers"),
    [
        (errors.MethodNotAllowed("text", ["GET", "HEAD"]), (("Allow", "GET, HEAD"),)),
        (errors.Unauthenticated("text"), (("WWW-Authenticate", CHALLENGE),)),
        (errors.RateLimited("text", 1.2), (("Retry-After", "2"),)),
        (errors.Overloaded("text", 0.01), (("Retry-After", "1"),)),
        (errors.NotReady("text"), ()),
    ],
)
def test_errors_carry_headers(error: GatewayError, headers: tuple[tuple[str, str], ...]) -> None:
    """What HTTP asks for beside the status."""
    assert ADAPTER.encode_error(error, CALL).headers == headers


# Status and metadata...

STATUS = next(route for route in ADAPTER.routes() if isinstance(route, Status))
DESCRIBE = next(route for route in ADAPTER.routes() if isinstance(route, Describe))
MODEL = ModelStatus(
    "m",
    (
        VersionStatus(3, "AVAILABLE", "the files of version 3 changed and could not be loaded"),
        VersionStatus(1, "END", "boom"),
    ),
    {"stable": 3, "gone": 2},
)


def test_status_tells_failures() -> None:
    """A version that failed has a code; one that serves is OK, whatever became of its replacement."""
    versions = json.loads(STATUS.encode(MODEL, CALL, Target("m")).body)["model_version_status"]
    assert [version["status"]["error_code"] for version in versions] == ["OK", "INTERNAL"]
    assert versions[0]["status"]["error_message"].startswith("the files")


def test_status_of_a_label_is_its_versions() -> None:
    """Only the version that the label stands for is told."""
    versions = json.loads(STATUS.encode(MODEL, CALL, Target("m", None, "stable")).body)["model_version_status"]
    assert [version["version"] for version in versions] == ["3"]


@pytest.mark.parametrize(
    ("model", "target", "text"),
    [
        (MODEL, Target("m", None, "beta"), "Unrecognized servable version label: beta; its labels: gone, stable"),
        (None, Target("g", None, "beta"), "Unrecognized servable version label: beta; its labels: none"),
        (MODEL, Target("m", None, "gone"), "Could not find version 2 of model m"),
        (MODEL, Target("m", 2), "Could not find version 2 of model m"),
        (None, Target("g"), "Could not find any versions of model g"),
        (ModelStatus("m", ()), Target(), "Could not find any versions of model m"),
    ],
)
def test_status_of_what_is_not_there(model: ModelStatus | None, target: Target, text: str) -> None:
    """Labels are looked up, and versions that nobody tracks are not found."""
    with pytest.raises(GatewayError) as caught:
        STATUS.encode(model, CALL, target)
    assert json.loads(ADAPTER.encode_error(caught.value, CALL).body) == {"error": text}


@pytest.mark.parametrize(
    ("dtype", "name"),
    [
        ("float16", "DT_HALF"),
        ("bfloat16", "DT_BFLOAT16"),
        ("uint64", "DT_UINT64"),
        ("bool", "DT_BOOL"),
        ("string", "DT_STRING"),
        ("float8e4m3fn", "DT_FLOAT8_E4M3FN"),
    ],
)
def test_metadata_names_dtypes(dtype: str, name: str) -> None:
    """Every dtype has TensorFlow's name."""
    spec = TensorSpec("x", dtype, (None, 3))
    metadata = ModelMetadata("m", 7, "none", {"s": Signature("s", "regress", {"a": spec}, {})})
    told = json.loads(DESCRIBE.encode(metadata, CALL, Target("m")).body)
    assert told["model_spec"] == {"name": "m", "signature_name": "", "version": "7"}
    signature = told["metadata"]["signature_def"]["signature_def"]["s"]
    assert signature["method_name"] == "tensorflow/serving/regress"
    assert signature["inputs"]["a"]["dtype"] == name
    assert [dim["size"] for dim in signature["inputs"]["a"]["tensor_shape"]["dim"]] == ["-1", "3"]


@pytest.mark.parametrize(("shape", "unknown"), [(None, True), ((), False)])
def test_metadata_tells_scalars_from_unknown_rank(shape: tuple[int, ...] | None, unknown: bool) -> None:
    """Both have no dimensions to show."""
    metadata = ModelMetadata("m", 1, "", {"s": Signature("s", "predict", {"a": TensorSpec("a", "bool", shape)}, {})})
    told = json.loads(DESCRIBE.encode(metadata, CALL, Target("m")).body)
    tensor_shape = told["metadata"]["signature_def"]["signature_def"]["s"]["inputs"]["a"]["tensor_shape"]
    assert tensor_shape == {"dim": [], "unknown_rank": unknown}


# Metrics...


def _series(
    status: int, operation: str = "predict", service: str = 'a"\\b', protocol: str = "tfserving"
) -> RequestSeries:
    return RequestSeries(protocol, service, operation, status, 6, 0.5, (1, 2, 3), (1e-5, 1.8e-5))


def _page(*series: RequestSeries) -> str:
    metrics = next(route for route in ADAPTER.routes() if isinstance(route, Metrics))
    reply = metrics.render(series)
    assert reply.media_type.startswith("text/plain")
    return reply.body.decode()


def test_metrics_have_tf_servings_names() -> None:
    """Counts by canonical code and latencies in microseconds, summed over what TF Serving does not tell apart."""
    page = _page(_series(200), _series(400), _series(413), _series(418), _series(599))
    labels = 'model_name="a\\"\\\\b"'
    assert f':tensorflow:serving:request_count{{{labels},status="OK"}} 6\n' in page
    assert f':tensorflow:serving:request_count{{{labels},status="INVALID_ARGUMENT"}} 12\n' in page
    assert f':tensorflow:serving:request_count{{{labels},status="RESOURCE_EXHAUSTED"}} 6\n' in page
    assert f':tensorflow:serving:request_count{{{labels},status="UNKNOWN"}} 6\n' in page
    latency = f'{labels},API="Predict",entrypoint="REST"'
    assert f':tensorflow:serving:request_latency_bucket{{{latency},le="10"}} 5\n' in page
    assert f':tensorflow:serving:request_latency_bucket{{{latency},le="18"}} 15\n' in page
    assert f':tensorflow:serving:request_latency_bucket{{{latency},le="+Inf"}} 30\n' in page
    assert f":tensorflow:serving:request_latency_sum{{{latency}}} 2500000\n" in page
    assert f":tensorflow:serving:request_latency_count{{{latency}}} 30\n" in page


def test_metrics_page_is_prometheus_text() -> None:
    """The page parses, with nothing in it but this protocol's inferences."""
    page = _page(_series(200), _series(200, "status"), _series(200, protocol="openai", service="other"))
    samples = [sample for family in text_string_to_metric_families(page) for sample in family.samples]
    assert {sample.labels["model_name"] for sample in samples} == {'a"\\b'}
    assert len(list(text_string_to_metric_families(_page()))) == 2


def test_metrics_can_be_off() -> None:
    """Without its page the adapter has no such path."""
    silent = create(Config(metrics=False), DecodeLimits())
    assert not [route for route in silent.routes() if isinstance(route, Metrics)]


# CORS...


def _preflight(config: Config, origin: str | None) -> Reply:
    adapter = create(config, DecodeLimits())
    headers = [(b"origin", origin.encode())] if origin else []
    call = Call("OPTIONS", "/v1/anything", headers=headers)
    reply = PathTable({"tfserving": adapter}).find(call).operation.reply(call)
    assert reply.body == b""
    return reply


@pytest.mark.parametrize(
    ("config", "origin", "status", "headers"),
    [
        (Config(), "https://a.example", 200, {}),
        (Config(), None, 400, {}),
        (Config(cors_origins=("*",)), "https://a.example", 200, {"Access-Control-Allow-Origin": "*"}),
        (Config(cors_origins=("*",), cors_max_age=60), "http://a", 200, {"Access-Control-Max-Age": "60"}),
        (
            Config(cors_origins=("https://a",)),
            "https://a",
            200,
            {"Access-Control-Allow-Origin": "https://a", "Vary": "Origin"},
        ),
        (Config(cors_origins=("https://a",)), "https://b", 200, {"Vary": "Origin"}),
        (Config(cors_origins=("*",), cors_headers="X-A"), "http://a", 200, {"Access-Control-Allow-Headers": "X-A"}),
    ],
)
def test_cors_is_configurable(config: Config, origin: str | None, status: int, headers: dict[str, str]) -> None:
    """Origins, methods, headers and how long a browser may remember them."""
    reply = _preflight(config, origin)
    assert reply.status == status
    assert headers.items() <= dict(reply.headers).items()
    if origin == "https://b":
        assert "Access-Control-Allow-Origin" not in dict(reply.headers)


def test_cors_is_on_every_answer() -> None:
    """Errors carry the headers too, or a page could not read them."""
    adapter = create(Config(cors_origins=("*",)), DecodeLimits())
    for error in (errors.RouteNotFound("text"), errors.RateLimited("text", 3)):
        assert dict(adapter.encode_error(error, CALL).headers)["Access-Control-Allow-Origin"] == "*"

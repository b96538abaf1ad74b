"""The face that boto3 speaks to: endpoints, their variants, answers in parts, and answers later.

Source: the sagemaker-runtime model of botocore (InvokeEndpoint, InvokeEndpointWithResponseStream, InvokeEndpointAsync).
"""

import re
from collections.abc import AsyncGenerator
from contextlib import aclosing
from urllib.parse import unquote

import orjson

from adapters._eventstream import MEDIA_TYPE, encode_exception, encode_part
from adapters._excerpt import excerpt
from adapters.sagemaker.entry import PREFIX
from adapters.sagemaker.errors import InvalidParameter, plain
from gateway.errors import DeadlineExceeded, GatewayError
from gateway.interfaces import Results
from gateway.types import Call, InferenceResponse, Reply, Target

_ENDPOINT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_ARN = re.compile(r"arn:[^/]*:endpoint/(?P<name>[^/]+)")
_MODEL_FILE = re.compile(r"\.tar\.gz$|\.tgz$")
_LONGEST_ATTRIBUTES = 1024
_INLINE_BYTES = 128_000
"""SPEC: the most that an asynchronous call may carry itself."""

ALL_TRAFFIC = "AllTraffic"
_ATTRIBUTES = PREFIX + b"custom-attributes"
_VARIANT = PREFIX + b"target-variant"
_LOCATION = PREFIX + b"inputlocation"

SESSION_HEADERS = {
    "custom_attributes": "X-Amzn-SageMaker-Custom-Attributes",
    "new_session_id": "X-Amzn-SageMaker-New-Session-Id",
    "closed_session_id": "X-Amzn-SageMaker-Closed-Session-Id",
}
"""What a backend may set among an answer's parameters -> the header that carries it."""


def target(call: Call, multi_model: tuple[str, ...]) -> Target:
    """The service that the path names, or on a multi-model endpoint the header; a variant is a version's label.

    Raises InvalidParameter.
    """
    name = unquote(call.params["model"])
    arn = _ARN.fullmatch(name)
    name = arn["name"] if arn else name
    if not _ENDPOINT.fullmatch(name):
        raise InvalidParameter(f"{excerpt(name)} is no name of an endpoint")
    _check_attributes(call)
    model = _header(call, PREFIX + b"inference-component") or _target_model(call)
    if model and name not in multi_model:
        raise InvalidParameter(
            f"Endpoint {name} is not a multi-model endpoint and does not support a target model header"
        )
    if name in multi_model and not model:
        raise InvalidParameter(f"Endpoint {name} is a multi-model endpoint: name the model by TargetModel")
    variant = _header(call, _VARIANT)
    return Target(model or name, label=variant if variant not in ("", ALL_TRAFFIC) else None)


def _header(call: Call, name: bytes) -> str:
    return (call.header(name) or "").strip()


def _target_model(call: Call) -> str:
    """SPEC: an object's key below a prefix: folders and the archive's suffix are no part of the model's name."""
    return _MODEL_FILE.sub("", _header(call, PREFIX + b"target-model").rpartition("/")[2])


def _check_attributes(call: Call) -> None:
    attributes = call.header(_ATTRIBUTES) or ""
    if len(attributes) > _LONGEST_ATTRIBUTES or not attributes.isascii():
        raise InvalidParameter(f"CustomAttributes must be ASCII, at most {_LONGEST_ATTRIBUTES} characters")


def headers(call: Call, response: InferenceResponse | None = None) -> tuple[tuple[str, str], ...]:
    """What every successful answer carries."""
    shown = [
        ("x-Amzn-Invoked-Production-Variant", _header(call, _VARIANT) or ALL_TRAFFIC),
        ("x-amzn-RequestId", call.id),
    ]
    return (*shown, *model_headers(response))


def model_headers(response: InferenceResponse | None) -> tuple[tuple[str, str], ...]:
    """The headers that the model itself set."""
    if response is None or not response.parameters:
        return ()
    given = ((header, response.parameters.get(name)) for name, header in SESSION_HEADERS.items())
    return tuple((header, plain(value)) for header, value in given if isinstance(value, str))


# Answers in parts...


def event_stream(chunks: AsyncGenerator[bytes], media: str, call: Call) -> Reply:
    """The chunks as events; a failure on the way is the last of them, since a client notices no other."""
    shown = (("X-Amzn-SageMaker-Content-Type", media), *headers(call))
    return Reply(_events(chunks), media_type=MEDIA_TYPE, headers=shown)


async def _events(chunks: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
    async with aclosing(chunks):
        try:
            async for chunk in chunks:
                yield encode_part(chunk)
        except DeadlineExceeded as error:
            yield encode_exception(plain(str(error)), "ModelInvocationTimeExceeded")
        except GatewayError as error:
            yield encode_exception(plain(str(error)), "StreamBroken")
        except Exception:
            yield encode_exception("internal error", "StreamBroken", "InternalStreamFailure")
            raise


# Answers later...


def input_uri(call: Call) -> str | None:
    """Where the body lies; None if it came with the call. Raises InvalidParameter unless it is just one of them."""
    location = _header(call, _LOCATION) or None
    if location and call.body:
        raise InvalidParameter("InputLocation and Body must not both be given")
    if not location and not call.body:
        raise InvalidParameter("One of InputLocation and Body must be given")
    if len(call.body) > _INLINE_BYTES:
        raise InvalidParameter(f"Body must have at most {_INLINE_BYTES} bytes here; store it and give InputLocation")
    return location


def inference_id(call: Call) -> str | None:
    """The caller's own name for the inference."""
    return _header(call, PREFIX + b"inference-id") or None


def accepted(results: Results, call: Call) -> Reply:
    """202: where the answer will lie."""
    shown = (
        ("X-Amzn-SageMaker-OutputLocation", results.output),
        ("X-Amzn-SageMaker-FailureLocation", results.failure),
        ("x-amzn-RequestId", call.id),
    )
    return Reply(orjson.dumps({"InferenceId": results.id}), 202, headers=shown)

"""A call and what becomes of it, as frames and as errors of the house."""

from typing import Any

from backends._failure_frames import recalled
from backends._frames import REQUEST, Buffer, Frame, Tensors, pack
from gateway.errors import (
    GatewayError,
    InferenceFailed,
    InvalidTensor,
    LoadFailed,
    NotReady,
    OutOfMemory,
    UserError,
    UserFailed,
)
from gateway.types import InferenceRequest, InferenceResponse, laps

RETRY_AFTER_SECONDS = 1.0
BACKOFF_SECONDS, MOST_BACKOFF_SECONDS = 0.1, 1.0


def header_of(request: InferenceRequest) -> dict[str, Any]:
    """What a backend of ours in another process must know beside the tensors."""
    return {
        "signature": request.signature,
        "outputs": request.outputs,
        "parameters": dict(request.parameters),
        "deadline": request.deadline,  # the monotonic clock is the machine's
        "name": request.id,
        "laps": laps.get() is not None,
    }


def request_frame(number: int, streamed: bool, header: dict[str, Any], tensors: Tensors) -> list[Buffer]:
    """Raises InvalidTensor for what cannot be sent."""
    try:
        return pack(REQUEST, {"id": number, "stream": streamed, **header}, tensors)
    except (TypeError, ValueError) as error:
        raise InvalidTensor(f"the request cannot be handed to the model: {error}") from None


def loss_of(ending: str) -> GatewayError:
    """What the caller is told whose call was running when the worker ended."""
    text = f"the model's worker {ending} while it answered; it is being restarted, the request may be repeated"
    return OutOfMemory(text, RETRY_AFTER_SECONDS) if "memory" in ending else NotReady(text, RETRY_AFTER_SECONDS)


def refusal_of(header: dict[str, Any]) -> GatewayError:
    """Why a worker did not get ready, as it tells."""
    return recalled(header) if header["kind"] == "own" else LoadFailed(header["message"])


def failure_of(header: dict[str, Any]) -> GatewayError:
    """What a worker tells of, as an error of the house."""
    message = header["message"]
    if header["kind"] == "own":
        return recalled(header)
    if header["kind"] == "user":
        kind = UserError if header["status"] < 500 else UserFailed
        return kind(message, header["status"], header["reason"], header["body"])
    if header["kind"] == "memory":
        return OutOfMemory("the model's worker ran out of memory", RETRY_AFTER_SECONDS)
    return InferenceFailed(message)


def response_of(frame: Frame) -> InferenceResponse:
    """What an END or a PART says. Raises KeyError or TypeError for what is no answer."""
    parameters = frame.header["parameters"]
    if not isinstance(parameters, dict):
        raise TypeError("an answer's parameters are no object")
    return InferenceResponse(frame.tensors, parameters)


def backoff(failures: int) -> float:
    """Seconds before a worker is started again after so many failures."""
    return float(min(MOST_BACKOFF_SECONDS, BACKOFF_SECONDS * 2 ** (failures - 1)))

"""Models that draw: how they are told from others, and what they are asked."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from gateway.types import DEFAULT_SIGNATURE, InferenceRequest, ModelMetadata

PROMPT, IMAGE = "prompt", "image"


def draws(metadata: ModelMetadata) -> bool:
    """Whether the model makes pictures of prompts."""
    signature = metadata.signatures.get(DEFAULT_SIGNATURE)
    return signature is not None and PROMPT in signature.inputs and IMAGE in signature.outputs


def asked(prompt: str, parameters: Mapping[str, Any], *, stream: bool, wire: Any = None) -> InferenceRequest:
    """The request for pictures of one prompt."""
    return InferenceRequest({PROMPT: np.array([prompt], object)}, parameters=parameters, stream=stream, wire=wire)

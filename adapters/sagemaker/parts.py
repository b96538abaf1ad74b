"""A streamed answer: each part of the model's is a record, or some, of one document."""

from collections.abc import AsyncGenerator, AsyncIterator

from adapters.sagemaker.forms import view
from adapters.sagemaker.responses import Brackets, encode_part
from gateway.types import InferenceResponse, ResponseForm


async def chunks(
    parts: AsyncIterator[InferenceResponse], form: ResponseForm, media: str, verbose: bool
) -> AsyncGenerator[bytes]:
    """Whole records, each with its line feed; as `application/json`, together one document."""
    brackets: Brackets | None = None
    async for part in parts:
        rows = max((len(tensor) for tensor in part.outputs.values() if tensor.ndim), default=1)
        shown = view(part.outputs, form, rows, verbose)
        before = b"" if brackets is None else brackets.comma
        if brackets is None:
            brackets = Brackets(shown, media)
            before = brackets.opening
        yield before + encode_part(shown, media)
    if brackets is not None and brackets.closing:
        yield brackets.closing

"""Bodies that take no time worth a thread: rows of plain numbers that are all alike, and what is not looked into.

Anything else comes back as None, for the exact way to judge.
"""

from adapters._csv import decode_plain_csv
from adapters._jsonlines import decode_dense_lines
from adapters._media import MediaType, parse_media_type
from adapters._recordio import decode_alike
from adapters._rowspec import RowSpec
from adapters._tensorjson import check_size
from adapters.sagemaker import grids
from adapters.sagemaker.layout import row_spec, shape_rows
from adapters.sagemaker.requests import OCTETS, VALUES, Decoded, decode, signature_of
from gateway.interfaces import DecodeLimits
from gateway.types import ModelMetadata, Tensor

_JSONLINES = frozenset(
    {"application/jsonlines", "application/x-jsonlines", "application/jsonl", "application/x-ndjson"}
)
_UNREAD = frozenset({"application/x-npy", OCTETS, "application/x-image"})


def decode_quickly(data: bytes, content_type: str, model: ModelMetadata, limits: DecodeLimits) -> Decoded | None:
    """The tensors of a body, as `requests.decode` would read them, or None. Raises what that raises."""
    if not content_type:
        return None
    media = parse_media_type(content_type)
    signature = signature_of(model)
    specs = list(signature.inputs.items())
    if len(specs) != 1 or specs[0][1].dtype == "any":
        return None
    [(name, spec)] = specs
    if media.name.startswith("image/") or (media.name in _UNREAD and (media.name != OCTETS or spec.media == "image")):
        return decode(data, content_type, model, limits, "auto")
    if any(media.parameters.get(name, "utf-8").lower() != "utf-8" for name in ("charset", "encoding")):
        return None
    rows = _rows(data, media, model, row_spec(spec, limits))
    return None if rows is None else Decoded({name: shape_rows(rows, spec)}, signature.name)


def _rows(data: bytes, media: MediaType, model: ModelMetadata, wanted: RowSpec) -> Tensor | None:
    if media.name == "application/json":
        check_size(data, wanted.limits.elements)
        return grids.json_rows(data, wanted)
    if media.name in _JSONLINES:
        return decode_dense_lines(data, wanted, grids.OPENINGS)
    if media.name == "text/csv" and model.response.form != "xgboost":
        return decode_plain_csv(data, wanted, media.count("label_size"))
    if media.name == "application/x-recordio-protobuf":
        records = decode_alike(data, VALUES, wanted)
        return None if records is None else records.features[VALUES]
    return None

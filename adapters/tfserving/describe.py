"""What a model says of itself: the states of its versions, and its signatures.

Source: TF Serving, model_servers/get_model_status_impl.cc and servables/tensorflow/get_model_metadata_impl.cc.
"""

from typing import Any

import orjson

from adapters._modelcard import card, task_of
from adapters.tfserving.render import cut, type_name
from gateway.errors import LabelNotFound, ModelNotFound
from gateway.types import ModelMetadata, ModelStatus, Signature, Target, TensorSpec, VersionStatus


def status(model: ModelStatus | None, target: Target) -> bytes:
    """All tracked versions, newest first, or the one that the path names. Raises ModelNotFound or LabelNotFound."""
    name = target.model if target.model is not None or model is None else model.name
    versions = model.versions if model else ()
    wanted = target.version
    if target.label is not None:
        # SPEC: TF Serving ignores the label and tells of all versions; the guide promises the label's version.
        labels = model.labels if model else {}
        if target.label not in labels:
            known = ", ".join(sorted(labels)) or "none"
            raise LabelNotFound(f"its labels: {known}", name or "", target.label)
        wanted = labels[target.label]
    if wanted is not None:
        versions = tuple(version for version in versions if version.version == wanted)
    if not versions:
        what = "any versions" if wanted is None else f"version {wanted}"
        raise ModelNotFound(f"Could not find {what} of model {cut(name or '')}")
    told: dict[str, Any] = {"model_version_status": [_version(version) for version in versions]}
    if model is not None and task_of(model.metadata) is not None:
        told |= card(name or "", model.metadata)  # NOTE: OpenAI's clients ask for a model on this path, too
    return orjson.dumps(told)


def _version(version: VersionStatus) -> dict[str, Any]:
    failed = version.error and version.state != "AVAILABLE"
    return {
        "version": str(version.version),
        "state": version.state,
        "status": {"error_code": "INTERNAL" if failed else "OK", "error_message": version.error},
    }


def metadata(model: ModelMetadata) -> bytes:
    """The signatures, as TF Serving prints its SignatureDefMap."""
    signatures = {name: _signature(signature) for name, signature in model.signatures.items()}
    return orjson.dumps(
        {
            "model_spec": {"name": model.name, "signature_name": "", "version": str(model.version)},
            "metadata": {"signature_def": {"signature_def": signatures}},
        }
    )


def _signature(signature: Signature) -> dict[str, Any]:
    return {
        "inputs": {name: _tensor_info(spec) for name, spec in signature.inputs.items()},
        "outputs": {name: _tensor_info(spec) for name, spec in signature.outputs.items()},
        "method_name": f"tensorflow/serving/{signature.method}",
        "defaults": {},
    }


def _tensor_info(spec: TensorSpec) -> dict[str, Any]:
    sizes = [{"size": "-1" if size is None else str(size), "name": ""} for size in spec.shape or ()]
    return {
        "dtype": f"DT_{type_name(spec.dtype).upper()}",
        "tensor_shape": {"dim": sizes, "unknown_rank": spec.shape is None},
        "name": spec.name,
    }

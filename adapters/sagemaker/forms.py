"""What an answer is called: the response forms of SageMaker's algorithms, made from a model's own outputs.

Source: Amazon SageMaker developer guide, the "inference formats" page of each algorithm; sagemaker-xgboost-container.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from msgspec import Struct

from gateway.errors import InferenceFailed
from gateway.types import ResponseForm, Tensor

Outputs = dict[str, Tensor]


_NUMBERS = "iubf"


class View(Struct, frozen=True):
    """An answer, ready to be written: its first dimension runs over the records."""

    columns: Outputs
    top: str = "predictions"
    """The key above the records in a JSON document; without one the document is the bare values."""
    one: bool = False
    """A bare document of one record is that record alone."""


def view(outputs: Mapping[str, Tensor], form: ResponseForm, rows: int, verbose: bool) -> View:
    """The outputs under the names of the form. Raises InferenceFailed where the model has not what the form needs."""
    renamed = {form.names.get(name, name): tensor for name, tensor in _by_record(outputs, rows).items()}
    if form.form in ("predictions", "custom"):
        hidden = set() if verbose or form.form == "predictions" else renamed.keys() - set(form.names.values())
        shown = {name: tensor for name, tensor in renamed.items() if name not in hidden}
        if not shown:
            raise InferenceFailed(f"response.names: none of them is an output; the model's are: {', '.join(outputs)}")
        return View(shown)
    if form.form == "bare":
        return View(renamed, top="")
    rule = _RULES.get(form.form)
    if rule is None:
        known = ", ".join(sorted({"predictions", "custom", "bare", *_RULES}))
        raise InferenceFailed(f"response.form: {form.form!r} is unknown; there are: {known}")
    made = rule.columns(_Picker(form.form, renamed))
    if verbose:  # what the model gave stands behind what the form made of it
        made |= {name: tensor for name, tensor in renamed.items() if name not in made}
    return View(made, rule.top, rule.one)


def _by_record(outputs: Mapping[str, Tensor], rows: int) -> Outputs:
    """SPEC: an answer that has no row for each record of the request is one record."""
    if all(tensor.ndim and len(tensor) == rows for tensor in outputs.values()):
        return dict(outputs)
    lengths = {len(tensor) if tensor.ndim else -1 for tensor in outputs.values()}
    if len(lengths) == 1 and lengths != {-1}:
        return dict(outputs)
    return {name: tensor[np.newaxis] for name, tensor in outputs.items()}


# Picking outputs...


class _Picker:
    """Finds the outputs that a form needs: by name, else by what they hold."""

    def __init__(self, form: str, outputs: Outputs) -> None:
        self.form = form
        self.left = dict(outputs)
        self.names = ", ".join(outputs)

    def take(self, name: str, fits: Callable[[Tensor], bool]) -> Tensor | None:
        """The output of that name if it can be used at all, else the first that fits, if there is one."""
        if name in self.left and (fits(self.left[name]) or self.left[name].dtype.kind in _NUMBERS):
            return self.left.pop(name)
        found = next((key for key, tensor in self.left.items() if fits(tensor)), None)
        return None if found is None else self.left.pop(found)

    def need(self, name: str, fits: Callable[[Tensor], bool]) -> Tensor:
        """The same; raises InferenceFailed if there is none."""
        found = self.take(name, fits)
        if found is None:
            raise InferenceFailed(
                f"response.form: {self.form} needs an output for {name}, and the model's are: {self.names}"
            )
        return found


def _is_float(tensor: Tensor) -> bool:
    return tensor.dtype.kind == "f"


def _is_cluster(tensor: Tensor) -> bool:
    return tensor.dtype.kind in "iu" and _flat(tensor).ndim == 1


def _is_label(tensor: Tensor) -> bool:
    return tensor.dtype.kind in "iubOUS" and _flat(tensor).ndim == 1


def _flat(tensor: Tensor) -> Tensor:
    """`[n, 1]` as `[n]`."""
    return tensor.reshape(len(tensor)) if tensor.ndim > 1 and tensor.size == len(tensor) else tensor


def _score(tensor: Tensor, binary: bool) -> Tensor:
    """SPEC: of two classes only the probability of the second is told."""
    if binary and tensor.ndim == 2 and tensor.shape[1] == 2:
        return np.ascontiguousarray(tensor[:, 1])
    return _flat(tensor)


# Forms...


class _Rule(Struct, frozen=True):
    columns: Callable[[_Picker], Outputs]
    top: str = "predictions"
    one: bool = False


def _kmeans(pick: _Picker) -> Outputs:
    """Clusters and distances are floats; a distance to each cluster becomes that to the closest."""
    closest = pick.take("closest_cluster", _is_cluster)
    distances = _flat(pick.need("distance_to_cluster", _is_float))
    if len(distances) and not distances.size:
        raise InferenceFailed("response.form: kmeans needs distances, and the model gave none")
    distances = distances.reshape(len(distances), -1) if distances.size else np.zeros((0, 1))
    closest = distances.argmin(axis=1) if closest is None else closest
    return {
        "closest_cluster": _flat(closest).astype(np.float32),
        "distance_to_cluster": distances.min(axis=1).astype(np.float32),
    }


def _linear_learner(pick: _Picker) -> Outputs:
    label = pick.take("predicted_label", _is_label)
    score = _score(pick.need("score", _is_float), label is not None)
    return {"score": score} if label is None else {"score": score, "predicted_label": _flat(label)}


def _xgboost(pick: _Picker) -> Outputs:
    label = next((tensor for tensor in pick.left.values() if _is_label(tensor)), None)
    return {"score": _score(pick.need("score", _is_float), label is not None)}


def _knn(pick: _Picker) -> Outputs:
    label = pick.take("predicted_label", _is_label)
    return {"predicted_label": _flat(label if label is not None else pick.need("predicted_label", _is_float))}


def _vector(name: str) -> Callable[[_Picker], Outputs]:
    def columns(pick: _Picker) -> Outputs:
        return {name: pick.need(name, _is_float)}

    return columns


def _scalar(name: str) -> Callable[[_Picker], Outputs]:
    def columns(pick: _Picker) -> Outputs:
        return {name: _flat(pick.need(name, _is_float))}

    return columns


_RULES: dict[str, _Rule] = {
    "kmeans": _Rule(_kmeans),
    "linear-learner": _Rule(_linear_learner),
    "factorization-machines": _Rule(_linear_learner),
    "pca": _Rule(_vector("projection"), "projections"),
    "rcf": _Rule(_scalar("score"), "scores"),
    "knn": _Rule(_knn),
    "ntm": _Rule(_vector("topic_weights")),
    "ip-insights": _Rule(_scalar("dot_product")),
    "xgboost": _Rule(_xgboost),
    "image-classification": _Rule(_vector("prediction"), "", one=True),
}

FORMS: tuple[Any, ...] = ("predictions", "custom", "bare", *_RULES)

"""Seldon's base class, of which every method only says that it is missing, and its response."""

from __future__ import annotations

from typing import Any, NoReturn

from seldon_core.flask_utils import SeldonMicroserviceException


class SeldonNotImplementedError(SeldonMicroserviceException):
    """A method is not there."""

    def __init__(self, message: str) -> None:
        super().__init__(message, reason="MICROSERVICE_NOT_IMPLEMENTED")


class SeldonResponse:
    """A payload with tags and metrics of this one answer; `headers` and `status` go to the HTTP response."""

    def __init__(
        self,
        data: Any,
        tags: dict[str, Any] | None = None,
        metrics: list[dict[str, Any]] | None = None,
        headers: dict[str, str] | None = None,
        status: int | None = None,
    ) -> None:
        self.data = data
        self.tags = tags or {}
        self.metrics = metrics or []
        self.headers = headers
        self.status = status


def _missing(name: str) -> NoReturn:
    raise SeldonNotImplementedError(f"{name} is not implemented")


class SeldonComponent:
    """What a class may define."""

    def __init__(self, **kwargs: Any) -> None:
        pass

    def load(self) -> None:
        _missing("load")

    def predict(self, X: Any, names: Any, meta: Any = None) -> Any:  # noqa: N803 - Seldon's name
        _missing("predict")

    def predict_raw(self, msg: Any) -> Any:
        _missing("predict_raw")

    def transform_input(self, X: Any, names: Any, meta: Any = None) -> Any:  # noqa: N803
        _missing("transform_input")

    def transform_output(self, X: Any, names: Any, meta: Any = None) -> Any:  # noqa: N803
        _missing("transform_output")

    def route(self, X: Any, names: Any, meta: Any = None) -> int:  # noqa: N803
        _missing("route")

    def aggregate(self, features_list: Any, feature_names_list: Any, metas: Any = None) -> Any:
        _missing("aggregate")

    def send_feedback(self, features: Any, feature_names: Any, reward: Any, truth: Any, routing: Any = None) -> Any:
        _missing("send_feedback")

    def class_names(self) -> list[str]:
        _missing("class_names")

    def feature_names(self) -> list[str]:
        _missing("feature_names")

    def tags(self) -> dict[str, Any]:
        _missing("tags")

    def metrics(self) -> list[dict[str, Any]]:
        _missing("metrics")

    def health_status(self) -> Any:
        _missing("health_status")

    def init_metadata(self) -> dict[str, Any]:
        _missing("init_metadata")

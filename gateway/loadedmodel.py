"""A model as requests see it: its versions that answer, and how the others stand."""

from collections.abc import Iterator

from msgspec import Struct

from gateway.errors import LabelNotFound, ModelNotFound, ModelNotReady
from gateway.lifecycle import Loaded
from gateway.summary import VersionSummary, written
from gateway.types import ModelStatus, VersionStatus


class LoadedModel(Struct, frozen=True):
    """A model as it stands now: never changed, only replaced."""

    name: str
    status: ModelStatus
    versions: dict[int, Loaded] = {}
    """Those that take requests; `status` also tells of the others."""
    labels: dict[str, int] = {}
    """As model.toml says; a label of a version that does not serve is kept, but does not resolve."""
    latest: Loaded | None = None
    """The highest version that takes requests."""

    def resolve(self, version: int | None = None, label: str | None = None) -> Loaded:
        """The version meant, else the latest. Raises LabelNotFound, ModelNotReady or ModelNotFound."""
        if label is not None:
            if label not in self.labels:
                known = ", ".join(sorted(self.labels)) or "none"
                text = f"model {self.name!r} has no label {label[:128]!r}; its labels: {known}"
                raise LabelNotFound(text, self.name, label)
            version = self.labels[label]
        found = self.latest if version is None else self.versions.get(version)
        if found is None:
            missing = ModelNotReady if self._comes(version) else ModelNotFound
            raise missing(self._why_not(version), self.name, version)
        return found

    def _comes(self, version: int | None) -> bool:
        """Whether that version, or any, is on its way."""
        return any(
            told.state in ("START", "LOADING") for told in self.status.versions if version in (None, told.version)
        )

    def _why_not(self, version: int | None) -> str:
        for told in self.status.versions:
            if told.version == version:
                return f"version {version} of model {self.name!r} {_stands(told)}"
        if version is None:
            states = ", ".join(f"{told.version} {_stands(told)}" for told in self.status.versions)
            yet = " yet" if self._comes(None) else ""
            return f"no version of model {self.name!r} answers{yet}" + (f": {states}" if states else "")
        answering = ", ".join(str(number) for number in self.versions) or "none"
        return f"model {self.name!r} has no version {version}; versions that answer: {answering}"


def _stands(told: VersionStatus) -> str:
    return f"is in state {told.state}" + (f" ({told.error})" if told.error else "")


def summaries(model: LoadedModel) -> Iterator[VersionSummary]:
    """Every tracked version of the model."""
    for told in model.status.versions:
        loaded = model.versions.get(told.version)
        where = loaded.backend.status if loaded else None
        yield VersionSummary(
            name=model.name,
            version=told.version,
            state=told.state,
            provider=where.provider if where else "",
            note=where.note if where else "",
            fallbacks=where.fallbacks if where else 0,
            load_seconds=loaded.load_seconds if loaded else 0.0,
            signatures=tuple(map(written, loaded.metadata.signatures.values())) if loaded else (),
            contracts=tuple(loaded.metadata.signatures.values()) if loaded else (),
            task=loaded.metadata.extras.get("task", "") if loaded else "",
            labels=tuple(label for label, number in model.labels.items() if number == told.version),
            error=told.error,
        )

"""Model packages: what a service can be made of, and whether it is what the service's type asks for."""

from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from gateway import repository
from gateway.config import ConfigError, ServiceConfig, folders
from gateway.control.errors import Invalid
from gateway.control.plane import Control

CUSTOM = "custom"
"""The backend, and the type of services, of whole servers."""


class Package(Struct, frozen=True):
    """A model on disk."""

    name: str
    backend: str
    versions: tuple[int, ...]
    problem: str = ""

    def fits(self, kind: str) -> bool:
        """Whether a service of that type can be made of it: whole servers are custom services, and nothing else."""
        return kind == "any" or (self.backend == CUSTOM) == (kind == CUSTOM)


def packages(control: Control) -> list[Package]:
    """All of them, by name."""
    config, base = control.config, control.base
    single = {name: base / folder for name, folder in config.models.items()}
    roots: tuple[Path, ...] = folders(config.models_dir, base)
    try:
        scan = repository.scan(roots, None, single)
    except ConfigError:
        return []
    return sorted(_packages(scan), key=lambda package: package.name)


def _packages(scan: repository.Scan) -> Iterator[Package]:
    for name, model in scan.models.items():
        yield Package(name, model.config.backend, tuple(sorted(model.versions)), model.problem)


def check_package(control: Control, name: str, service: ServiceConfig) -> None:
    """Raise Invalid unless the service's models are there, and of its type."""
    known = {package.name: package for package in packages(control)}
    wanted = {"model": service.model or name}
    if service.canary is not None and service.canary.model:
        wanted["canary.model"] = service.canary.model
    for field, model in wanted.items():
        package = known.get(model)
        if package is None:
            raise Invalid(f"there is no model package {model!r}; there are: {', '.join(known) or 'none'}", field)
        if not package.fits(service.type):
            raise Invalid(
                f"the package {model!r} has the backend {package.backend}: it is none for {service.type}", field
            )

"""What requests obey: the services, their keys and their own operations, in one snapshot that is replaced whole."""

from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar, cast

from msgspec import Struct

from gateway.auth import Authenticator
from gateway.config import Config
from gateway.interfaces import Adapter, Infer
from gateway.models import Models
from gateway.paths import Route
from gateway.protocols import load_own_adapters
from gateway.routing import Directory, Service

Run = TypeVar("Run", bound=Infer)


class Plane(Struct, frozen=True):
    """The services as they are at one moment; a request keeps the one that it began with."""

    directory: Directory
    auth: Authenticator
    own_operations: Mapping[tuple[str, str, str, str], Infer]
    """By service, protocol, method and path: those of services with protocol tables of their own."""

    def own(self, operation: Run, service: Service, route: Route) -> Run:
        """The operation as the service has it configured."""
        if not self.own_operations:
            return operation
        key = (service.name, route.protocol, operation.method, operation.path)
        return cast(Run, self.own_operations.get(key, operation))


def draw(config: Config, base: Path, models: Models, adapters: Mapping[str, Adapter]) -> Plane:
    """The snapshot that the configuration's services make. Raises ConfigError, and changes nothing."""
    own_adapters = load_own_adapters(config, adapters)
    own_operations = {
        (*service_and_protocol, operation.method, operation.path): operation
        for service_and_protocol, adapter in own_adapters.items()
        for operation in adapter.routes()
        if isinstance(operation, Infer)
    }
    auth = Authenticator(config.services, base, config.models_control)
    return Plane(Directory(config, models), auth, own_operations)

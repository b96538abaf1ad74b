"""The limits step: the gates of all services, and how they follow the configuration."""

from collections.abc import Mapping
from time import monotonic

from msgspec.structs import replace

from gateway.budgets import Clock
from gateway.config import Config
from gateway.errors import CapacityError, GatewayError, Overloaded, Unauthenticated
from gateway.gate import Gate, Tally
from gateway.limitsconfig import ServiceLimits, ServiceLimitsConfig, resolved
from gateway.parts import name_of
from gateway.suspects import Suspects

MOST_GATES = 4096
"""Services remembered that nobody is in and that the configuration does not name."""


class Limits:
    """The gates of all services."""

    def __init__(self, config: Config, clock: Clock = monotonic) -> None:
        self._clock = clock
        self._gates: dict[str, Gate] = {}
        self._suspects = Suspects(config.limits.wrong_keys_per_second, clock)
        self.tally = Tally()
        self._equal = 1.0 / config.gateway.workers
        self._parts: Mapping[str, float] = {}
        """This process's of budgets that are not shared equally."""
        self.adopt(config)

    def adopt(self, config: Config) -> None:
        """Let the configuration's limits hold from now on; nobody's budget grows by it."""
        self._general = config.limits.service
        self.output_bytes = config.limits.output_bytes
        self._own: Mapping[str, ServiceLimitsConfig] = {name: one.limits for name, one in config.services.items()}
        self._of_keys = {
            name: {key.id: key.limits for key in one.keys if key.limits is not None}
            for name, one in config.services.items()
        }
        for gate in self._gates.values():
            gate.tune(self._said(gate.service))

    def gate(self, service: str) -> Gate:
        """The gate of a service that exists."""
        return self._gates.get(service) or self._made(service)

    def gates(self) -> list[Gate]:
        """Those that anybody has come through."""
        return list(self._gates.values())

    def asked(self) -> dict[str, float]:
        """How much each budget was asked for since the last time, and is held."""
        return {name: count for gate in self._gates.values() for name, count in gate.asked().items()}

    def share(self, parts: Mapping[str, float]) -> None:
        """Have these parts of the budgets from now on, and of others as much as every process."""
        changed = {name.partition("/")[0] for name in self._parts.keys() | parts.keys()}
        self._parts = parts
        for service in changed & self._gates.keys():
            self._gates[service].tune(self._gates[service].limits)

    def refuse(self, reason: str, error: CapacityError) -> CapacityError:
        """Count an error that is raised before the service is known."""
        self.tally.refused["", reason] += 1
        return error

    def no_memory(self) -> CapacityError:
        """What to tell whoever comes while there is no memory left."""
        return self.refuse("memory", Overloaded("memory is short; try again later", 5.0))

    def wrong_key(self, error: Unauthenticated, address: str) -> GatewayError:
        """What to tell a caller without a valid key: that, or that there are too many from there."""
        limited = self._suspects.note(address)
        return error if limited is None else self.refuse("wrong_keys", limited)

    def _made(self, service: str) -> Gate:
        if len(self._gates) >= MOST_GATES:
            self._gates = {name: gate for name, gate in self._gates.items() if name in self._own or not gate.idle}
        gate = self._gates[service] = Gate(
            service, self._said(service), self.tally, self._clock, lambda key: self._part(service, key)
        )
        return gate

    def _part(self, service: str, key: bytes) -> float:
        return self._parts.get(name_of(service, key), self._equal)

    def _said(self, service: str) -> ServiceLimits:
        own = self._own.get(service)
        if own is None:
            return resolved(self._general)
        return replace(resolved(own, self._general), keys=self._of_keys[service])

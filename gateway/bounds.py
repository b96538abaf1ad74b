"""All that bounds a process: what services grant, what bodies and connections take, and how short memory is."""

from collections.abc import Iterator

from prometheus_client.core import Metric

from gateway import limitmetrics
from gateway.bodies import Bodies
from gateway.config import Config
from gateway.connections import Connections
from gateway.cycle import Cycle
from gateway.limits import Limits
from gateway.pressure import Pressure, Stage


class Bounds:
    """Made once for each process; `limits` alone follow the services as they change."""

    def __init__(self, config: Config) -> None:
        self._large_bytes = config.limits.memory.large_bytes
        self.limits = Limits(config)
        self.bodies = Bodies(config.limits, self.limits.tally)
        self.connections = Connections(config.limits)
        self.pressure = Pressure(config.limits.memory)
        self.pressure.on_change.append(self.relieve)

    def collect(self) -> Iterator[Metric]:
        """What they did, as metrics."""
        return limitmetrics.collect(self.limits, self.bodies, self.connections, self.pressure)

    def relieve(self, stage: Stage) -> None:
        """Use less memory while it is short, and as much as configured when it is not."""
        self.connections.shorten(stage >= Stage.SHORT)
        Cycle.shrink(stage >= Stage.SHORT)
        self.bodies.shrink(self._large_bytes if stage >= Stage.SHORTER else None)

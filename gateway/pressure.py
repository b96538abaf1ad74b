"""What is refused while memory is short, in three stages: idle connections, large bodies, all but health."""

import asyncio
import logging
from collections.abc import Callable
from enum import IntEnum

from gateway.limitsconfig import MemoryConfig
from gateway.memoryuse import MemoryUse

_SLACK_PERCENT = 2.0
"""So far below its bound must memory be before a stage ends: else it would come and go."""

log = logging.getLogger("tensorgate.memory")


class Stage(IntEnum):
    """How short memory is."""

    CALM = 0
    SHORT = 1
    """Idle connections are closed soon."""
    SHORTER = 2
    """Large bodies are refused as well."""
    OUT = 3
    """Everything is refused but health and what frees memory."""


class Pressure:
    """Looks at the memory now and then, and tells who is concerned when the stage changes."""

    def __init__(self, config: MemoryConfig, use: MemoryUse | None = None) -> None:
        self._config = config
        self._use = use or MemoryUse(config.limit_bytes)
        self._bounds = (config.shorten_percent, config.refuse_large_percent, config.refuse_percent)
        self.stage = Stage.CALM
        self.percent = 0.0
        """At the last look."""
        self.on_change: list[Callable[[Stage], None]] = []

    def look(self) -> None:
        """Measure, and change the stage if it is time."""
        self.percent = 100 * self._use.fraction()
        reached = sum(self.percent >= bound for bound in self._bounds)
        kept = sum(self.percent >= bound - _SLACK_PERCENT for bound in self._bounds)
        stage = Stage(reached if reached > self.stage else min(kept, self.stage))
        if stage == self.stage:
            return
        level = log.warning if stage > self.stage else log.info
        level("%.1f %% of the memory is taken: stage %d of 3, after %d", self.percent, stage, self.stage)
        self.stage = stage
        for tell in self.on_change:
            tell(stage)

    async def watch(self) -> None:
        """Look again and again, until cancelled."""
        while self._config.watch:
            self.look()
            await asyncio.sleep(self._config.seconds)

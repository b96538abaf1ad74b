"""What every backend that answers from a pool of workers has: nodes, which can become more or fewer."""

from backends._pool import Pool


class Pooled:
    """The nodes are the pool's workers."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    @property
    def nodes(self) -> tuple[int, int]:
        """How many workers are ready, and how many there should be."""
        return self._pool.size

    @property
    def cpu_seconds(self) -> float:
        """What the workers have computed so far."""
        return self._pool.cpu_seconds

    @property
    def process_bytes(self) -> int:
        """What the workers hold of the machine's memory."""
        return self._pool.resident_bytes

    def scale(self, nodes: int) -> None:
        """Have so many workers from now on."""
        self._pool.scale(nodes)

    async def close(self) -> None:
        """End the workers."""
        await self._pool.close()

"""One bounded arena for the runs of models whose tensors are as large as a client says.

What does not fit fails that run with "out of memory", where the machine would else have killed the process.
"""

import logging
import threading
from pathlib import Path

import onnxruntime

_SHARE = 0.5
"""Of the memory that is there when the first such model is loaded."""
_LEAST = 64 << 20
_GROWS_AS_ASKED = 1

log = logging.getLogger("tensorgate.ort")


class _Arena:
    """Made once in a process: ONNX Runtime keeps it for good."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._made: bool | None = None

    def make(self) -> bool:
        """Whether sessions may use it; False where the system does not tell how much memory there is."""
        with self._lock:
            if self._made is None:
                self._made = self._register()
            return self._made

    def _register(self) -> bool:
        free = free_bytes()
        if not free:
            return False
        most = max(_LEAST, int(free * _SHARE))
        kind, memory = onnxruntime.OrtAllocatorType.ORT_ARENA_ALLOCATOR, onnxruntime.OrtMemType.DEFAULT
        config = onnxruntime.OrtArenaCfg({"max_mem": most, "arena_extend_strategy": _GROWS_AS_ASKED})
        onnxruntime.create_and_register_allocator(onnxruntime.OrtMemoryInfo("Cpu", kind, 0, memory), config)
        log.info("models whose outputs are sized by values may use %d MiB together", most >> 20)
        return True


arena = _Arena()


def free_bytes(root: Path = Path("/")) -> int:
    """What the machine has left, or the container's limit if that is less; 0 if nobody tells."""
    try:
        lines = (root / "proc/meminfo").read_text().splitlines()
        free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError):
        return 0
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        try:
            free = min(free, int((root / "sys/fs/cgroup" / name).read_text()))
        except (OSError, ValueError):
            continue
    return free

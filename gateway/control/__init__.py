"""The control plane: it decides, the data plane obeys its snapshots. Imported only where `gateway.data_dir` is set."""

from gateway.control.rule import Prepared, prepare

__all__ = ["Prepared", "prepare"]

"""The control plane: it decides, the data plane obeys its snapshots."""

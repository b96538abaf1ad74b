"""The control plane: it decides, the data plane obeys its snapshots. Begins at `rule`; `client` is for its callers."""

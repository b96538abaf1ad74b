"""tensorgate: one gateway, many wire protocols, one internal tensor request."""

__version__ = "0.1.0"

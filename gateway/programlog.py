"""The program's own log, on stderr."""

import logging


def begin_log() -> None:
    """Warnings of everybody, and what the gateway itself has to tell."""
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("tensorgate").setLevel(logging.INFO)

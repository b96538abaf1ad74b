"""Starts seldon-core-microservice as it is, but on loopback: its command line has no option for the address.

Run by the Python of Seldon's own environment, with the arguments of seldon-core-microservice.
"""

import sys
from typing import Any

from gunicorn.config import Config
from seldon_core.microservice import main

_set = Config.set


def set_on_loopback(config: Config, name: str, value: Any) -> None:
    """In place of gunicorn's own, through which every setting goes."""
    _set(config, name, value.replace("0.0.0.0", "127.0.0.1") if name == "bind" else value)


if __name__ == "__main__":
    sys.path.pop(0)  # where this file lies, and another copy of the class
    Config.set = set_on_loopback
    main()

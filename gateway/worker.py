"""The program of a worker process: one version of a model, loaded as the gateway would, and served to it in frames.

`python -m gateway.worker CONNECTION PARENT`: the number of a socket, and the process that it must not outlive.
"""

import logging
import sys

from gateway import plugins
from gateway.loading import fulfil


def main() -> None:
    """Serve the gateway that holds the other end of the connection."""
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    connection, parent = map(int, sys.argv[1:3])
    plugins.load("backends", "pool", "serve").serve(connection, parent, fulfil)


if __name__ == "__main__":
    main()

"""The sockets that a gateway listens on."""

import socket

from gateway.config import ConfigError, GatewayConfig

BACKLOG = 2048
"""Connections that wait until a process takes them; the kernel may allow fewer."""


def listen(host: str, port: int) -> socket.socket:
    """A socket bound to the address. Raises ConfigError when it cannot be had."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise ConfigError(f"cannot listen on {host}:{port}: {error.strerror or error}") from None


def share(config: GatewayConfig) -> list[socket.socket]:
    """A socket for each of the processes, all on one port. Raises ConfigError when it cannot be had."""
    # NOTE: sockets that share a port would share it with another gateway's too, so it must be free first.
    with listen(config.host, config.port) as first:
        port = first.getsockname()[1]
    if config.grpc_port:
        listen(config.host, config.grpc_port).close()
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    try:
        return [
            socket.create_server((config.host, port), family=family, backlog=BACKLOG, reuse_port=True)
            for _ in range(config.workers)
        ]
    except OSError as error:
        raise ConfigError(f"cannot listen on {config.host}:{port}: {error.strerror or error}") from None

"""Who leads a fleet: a control plane, where there is one, else the configuration file."""

import socket
from collections.abc import Coroutine
from typing import Any

from gateway.admin import control
from gateway.config import Config
from gateway.filecontrol import FileControl
from gateway.fleet import Controls, Fleet
from gateway.rereading import Adopt


def lead(
    fleet: Fleet, config: Config, controls: Controls | None, admin: socket.socket | None
) -> tuple[Coroutine[Any, Any, None], Adopt]:
    """What leads it until cancelled, and what has the file's services served."""
    if controls is not None and admin is not None:
        plane = controls(fleet)
        return control(plane, admin), plane.adopt
    file = FileControl(fleet, config)
    return file.run(), file.adopt

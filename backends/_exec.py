"""Run by path, with a pid and a command: become that command, which ends when the process of that pid does."""

import contextlib
import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Replace this process; says why where that cannot be done."""
    parent, command = int(sys.argv[1]), sys.argv[2:]
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(1)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.exit(f"{os.path.basename(command[0])}: {error.strerror}")


if __name__ == "__main__":
    main()
